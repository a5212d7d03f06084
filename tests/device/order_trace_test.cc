// The checker of order objects to what may go wrong on a GPU, and to nothing else.
#include "tests/device/order_trace.h"

#include <catch2/catch.hpp>
#include <utility>

namespace equipoise::testing {
namespace {

using What = TraceStep::What;

constexpr int kCompute = 0, kNccl = 1, kOther = 2;
constexpr uintptr_t kBase = 4096;

TraceStep Uses(int stream, const char* name, bool write, uintptr_t begin = 0, uintptr_t end = 64) {
  return {What::kUse, stream, {}, {{kBase + begin, kBase + end, write}}, name};
}
TraceStep Reads(int stream, const char* name) { return Uses(stream, name, false); }
TraceStep Writes(int stream, const char* name) { return Uses(stream, name, true); }
TraceStep Frees(bool computes = true) {
  TraceStep step{What::kFree, kCompute, {}, {{kBase, kBase + 64, true}}, "memory that is freed"};
  step.computes = computes;
  return step;
}
TraceStep Step(What what, int stream, int64_t event, const char* name = "") {
  return {what, stream, {event}, {}, name};
}

TEST_CASE("one stream needs no order", "[device]") {
  CHECK(Conflicts({Writes(kCompute, "a"), Reads(kCompute, "b"), Writes(kCompute, "c")}).empty());
}

TEST_CASE("a use on another stream without an event names both places", "[device]") {
  TraceStep add = Writes(kCompute, "aten::add_");
  add.doing = "2F0";
  CHECK(Conflicts({add, Reads(kNccl, "send")}) ==
        std::vector<std::string>{"send does not wait for aten::add_ (2F0)"});
  CHECK(Conflicts({Reads(kNccl, "send"), Writes(kCompute, "aten::add_")}) ==
        std::vector<std::string>{"aten::add_ does not wait for send"});
  CHECK(Conflicts({Writes(kNccl, "recv"), Writes(kOther, "all_reduce")}).size() == 1);
  // Two that read do no harm, nor two that use other bytes.
  CHECK(Conflicts({Reads(kNccl, "send"), Reads(kCompute, "aten::add")}).empty());
  CHECK(Conflicts({Uses(kNccl, "recv", true, 0, 32), Uses(kCompute, "aten::add_", true, 32, 64)})
            .empty());
}

TEST_CASE("a stream's wait orders what the event was recorded behind, and no more", "[device]") {
  const Trace trace = {Writes(kCompute, "aten::add_"), Step(What::kRecord, kCompute, 1),
                       Step(What::kStreamWait, kNccl, 1), Reads(kNccl, "send")};
  CHECK(Conflicts(trace).empty());
  CHECK(Conflicts(trace, [](size_t step) { return step == 2; }).size() == 1);
  Trace late = trace;
  std::swap(late[0], late[1]);  // recorded before
  CHECK(Conflicts(late).size() == 1);
  Trace other = trace;
  other[2].stream = kOther;
  CHECK(Conflicts(other).size() == 1);
}

TEST_CASE("a wait of the host orders what it asks for later", "[device]") {
  const Trace trace = {Writes(kNccl, "recv"), Step(What::kRecord, kNccl, 1),
                       Step(What::kHostWait, 0, 1), Reads(kCompute, "aten::add")};
  CHECK(Conflicts(trace).empty());
  CHECK(Conflicts(trace, [](size_t step) { return step == 2; }).size() == 1);
  // That the thread of communication has seen it is nothing to the one that computes.
  Trace seen = trace;
  seen[2].what = What::kSeen;
  CHECK(Conflicts(seen).size() == 1);
}

TEST_CASE("a number for the host orders the compute stream before later calls", "[device]") {
  const Trace trace = {Writes(kCompute, "aten::sum"), Step(What::kHostSync, kCompute, 0),
                       Reads(kNccl, "all_reduce")};
  CHECK(Conflicts(trace).empty());
}

TEST_CASE("memory is freed behind those who use it", "[device]") {
  CHECK(Conflicts({Writes(kCompute, "aten::add_"), Frees()}).empty());
  CHECK(Conflicts({Reads(kNccl, "send"), Frees()}) ==
        std::vector<std::string>{"memory that is freed does not wait for send"});
  Trace trace = {Reads(kNccl, "send"), Step(What::kRecord, kNccl, 1), Step(What::kSeen, 0, 1),
                 Frees(/*computes=*/false)};
  CHECK(Conflicts(trace).empty());
  trace[2].what = What::kHostWait;  // by the thread that computes, not by the one that frees
  CHECK(Conflicts(trace).size() == 1);
  trace[3] = Frees();
  CHECK(Conflicts(trace).empty());
  // The next owner has them from the compute stream.
  trace.push_back(Writes(kOther, "recv"));
  CHECK(Conflicts(trace) ==
        std::vector<std::string>{"recv does not wait for memory that is freed"});
  trace.insert(trace.end() - 1,
               {Step(What::kRecord, kCompute, 2), Step(What::kStreamWait, kOther, 2)});
  CHECK(Conflicts(trace).empty());
}

TEST_CASE("ranges that overlap in part are told apart", "[device]") {
  const Trace trace = {Uses(kNccl, "recv", true, 16, 48), Uses(kCompute, "a", true, 0, 16),
                       Uses(kCompute, "b", false, 48, 64), Uses(kCompute, "c", false, 40, 64)};
  CHECK(Conflicts(trace) == std::vector<std::string>{"c does not wait for recv"});
}

}  // namespace
}  // namespace equipoise::testing
