#include "parallel/timeline.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "configs/base/json.h"

namespace equipoise {
namespace {

std::map<int, std::string> ProcessNames(const Json& trace, const std::string& what,
                                        const std::string& argument) {
  std::map<int, std::string> names;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == what) names[event["pid"]] = event["args"][argument].dump();
  }
  return names;
}

TEST_CASE("a trace has a process a rank and a thread a lane", "[timeline][cpu]") {
  const Json trace = Json::parse(ToChromeTrace({{0, "compute", "0F0", 0.001, 0.003},
                                                {1, "communication", "1R0<0", 0.003, 0.0035},
                                                {1, "compute", "1F\"0\\", 0.0035, 0.005}}));
  CHECK(ProcessNames(trace, "process_name", "name") ==
        std::map<int, std::string>{{0, "\"rank 0\""}, {1, "\"rank 1\""}});
  Json spans = Json::array();
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") spans.push_back(event);
  }
  REQUIRE(spans.size() == 3);
  CHECK(spans[0]["name"] == "0F0");
  CHECK(spans[0]["ts"] == Approx(1000.0));
  CHECK(spans[0]["dur"] == Approx(2000.0));
  CHECK(spans[1]["tid"] != spans[2]["tid"]);
  CHECK(spans[2]["name"] == "1F\"0\\");
}

TEST_CASE("predicted rows lie below the measured ones of their rank", "[timeline][cpu]") {
  const Timeline measured = {{0, "compute", "0F0", 0, 1}, {1, "compute", "1F0", 1, 2}};
  const Timeline predicted = {{0, "compute", "0F0", 0, 0.9}, {2, "communication", "2R0<0", 0, 1}};
  const Json trace = Json::parse(ToChromeTrace(measured, predicted));
  const auto names = ProcessNames(trace, "process_name", "name");
  std::map<int, std::string> rows;
  for (const auto& [pid, index] : ProcessNames(trace, "process_sort_index", "sort_index")) {
    rows[std::stoi(index)] = names.at(pid);
  }
  std::string order;
  for (const auto& [index, name] : rows) order += name;
  CHECK(order ==
        "\"rank 0 measured\"\"rank 0 predicted\"\"rank 1 measured\"\"rank 1 predicted\""
        "\"rank 2 measured\"\"rank 2 predicted\"");
  int spans = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++spans;
    const bool is_predicted = event["dur"] == Approx(0.9e6) || event["name"] == "2R0<0";
    CHECK((names.at(event["pid"]).find("predicted") != std::string::npos) == is_predicted);
  }
  CHECK(spans == 4);
}

TEST_CASE("parts of a two-timeline trace written by each rank can be merged", "[timeline][cpu]") {
  const Json of_zero =
      Json::parse(ToChromeTrace({{0, "compute", "0F0", 0, 1}}, {{0, "compute", "0F0", 0, 1}}));
  const Json of_one =
      Json::parse(ToChromeTrace({{1, "compute", "1F0", 0, 1}}, {{1, "compute", "1F0", 0, 1}}));
  for (const auto& [pid, name] : ProcessNames(of_one, "process_name", "name")) {
    CHECK(ProcessNames(of_zero, "process_name", "name").count(pid) == 0);
  }
}

TEST_CASE("a timeline is moved to a start", "[timeline][cpu]") {
  const Timeline moved = StartingAt({{0, "compute", "0F1", 5, 6}, {1, "compute", "1F0", 2, 3}}, 10);
  CHECK(moved[0].start_s == 13);
  CHECK(moved[0].end_s == 14);
  CHECK(moved[1].start_s == 10);
  CHECK(StartingAt({}, 3).empty());
}

}  // namespace
}  // namespace equipoise
