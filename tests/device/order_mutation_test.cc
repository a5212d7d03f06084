// The waits of each place of the program, left out: the checker objects, but at two places. What is
// left out orders nothing in the trace of a run; the run itself has waited.
#include <catch2/catch.hpp>
#include <cstdio>
#include <map>
#include <set>

#include "tests/device/nccl_gpus.h"
#include "tests/device/order_checker.h"

namespace equipoise::testing {
namespace {

// The executor waits for a send so that it fails where the send does. Nothing in memory asks for
// that: an operation holds its tensor until its end has been seen.
constexpr char kSend[] = "host waits for send in group pipeline";
// The sum of the token embedding, which comes behind it on NCCL's stream, is waited for anyway.
constexpr char kFeatures[] = "compute stream waits for broadcast in group tensor";

struct Site {
  int waits = 0, needed = 0;  // those without which alone the checker objects
  bool needed_at_all = false;
};

// What cells have to say about the waits at each place of the program.
class Mutations {
 public:
  void Add(const Cell& cell) {
    OrderChecker checker(cell.ranks());
    NcclGpus gpus(cell.ranks(), &checker);
    RunCell(cell, gpus.devices());
    for (int rank = 0; rank < cell.ranks(); ++rank) AddRank(checker.trace(rank));
  }
  const std::map<std::string, Site>& sites() const { return sites_; }
  bool held() const { return held_; }
  bool kept() const { return kept_; }

 private:
  void AddRank(const Trace& trace) {
    CHECK(Conflicts(trace) == std::vector<std::string>());
    std::set<std::string> here;
    for (size_t i = 0; i < trace.size(); ++i) {
      const std::string site = SiteOf(trace[i]);
      if (site.empty()) continue;
      here.insert(site);
      ++sites_[site].waits;
      sites_[site].needed += !Conflicts(trace, [&](size_t step) { return step == i; }).empty();
    }
    for (const std::string& site : here) {
      const auto at_site = [&](size_t step) { return SiteOf(trace[step]) == site; };
      sites_[site].needed_at_all |= !Conflicts(trace, at_site).empty();
    }
    held_ |= !Conflicts(trace, [&](size_t step) {
                return SiteOf(trace[step]) == kSend || trace[step].what == TraceStep::What::kSeen;
              }).empty();
    kept_ |= !Conflicts(trace, [&](size_t step) { return IsOfAllocator(trace[step]); }).empty();
  }

  static bool IsOfAllocator(const TraceStep& step) {
    return step.what == TraceStep::What::kStreamWait && step.name.empty();
  }

  std::map<std::string, Site> sites_;
  bool held_ = false;  // whether something objects where operations do not hold what they send
  bool kept_ = false;  // and where the allocator knows of one stream alone that uses memory
};

TEST_CASE("without the waits of any place but two the checker objects", "[device]") {
  Mutations mutations;
  const auto add = [&](const std::function<void(Cell&)>& change) {
    Cell cell;
    cell.steps = 1;
    cell.micro_batches = 2;
    change(cell);
    mutations.Add(cell);
  };
  for (const int zero : {0, 1}) {
    add([=](Cell& cell) { cell.data = 2, cell.zero = zero; });
  }
  add([](Cell& cell) { cell.pipeline = 2; });
  add([](Cell& cell) { cell.pipeline = 2, cell.schedule = "zb_v"; });
  add([](Cell& cell) { cell.pipeline = 2, cell.model = "qwen2-tied"; });
  add([](Cell& cell) { cell.tensor = 2; });
  const auto beside = [](Cell& cell) {
    cell.encoder = EncoderPlacement::kOptimus;
    cell.encoder_stream = true;
    cell.pipeline = 2;
    cell.micro_batches = 4;
  };
  add([&](Cell& cell) { beside(cell), cell.tensor = 2, cell.encoder_tensor = 1; });
  add([&](Cell& cell) { beside(cell), cell.encoder_ranks = 2, cell.data = 2; });
  add([&](Cell& cell) { beside(cell), cell.pipeline = 1, cell.tensor = 2; });
  add([&](Cell& cell) { beside(cell), cell.pipeline = 1; });  // no sum tells of what is done
  for (const auto& [site, count] : mutations.sites()) {
    std::printf("wait\t%s\t%d of %d\n", site.c_str(), count.needed, count.waits);
    INFO(site);
    CHECK(count.needed_at_all == (site != kSend && site != kFeatures));
  }
  CHECK(mutations.sites().count(kSend) == 1);
  CHECK(mutations.held());
  CHECK(mutations.kept());
}

}  // namespace
}  // namespace equipoise::testing
