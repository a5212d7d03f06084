// Reads schedules of a chain as one JSON a line, writes what simulator and validator say of each:
//   {"rank_of": [0, 1], "micro_batches": 1, "ranks": [[["F", 0, 0], ["B", 0, 0]], ...],
//    "seconds": {"F": [1, 1], "B": [2, 2], ...by stage}, "latency": 0.5, "kept": 1}
//   {"step": 6.0, "end": [[1.0, 6.0], ...], "busy": [3.0, 3.0], "peak": [1.0, 1.0], "fault": ""}
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/validate.h"

namespace equipoise {
namespace {

Json Answer(const Json& question) {
  const std::map<std::string, OpKind> kinds = {{"F", OpKind::kForward},
                                               {"B", OpKind::kBackward},
                                               {"I", OpKind::kInputGradient},
                                               {"W", OpKind::kWeightGradient}};
  Schedule schedule;
  schedule.graph = ChainGraph(question["rank_of"].get<std::vector<int>>());
  schedule.micro_batches = question["micro_batches"];
  for (const Json& list : question["ranks"]) {
    std::vector<Op>& ops = schedule.ranks.emplace_back();
    for (const Json& op : list) ops.push_back({kinds.at(op[0]), op[1], op[2]});
  }
  std::map<OpKind, std::vector<double>> seconds;
  for (const auto& [name, kind] : kinds) {
    seconds[kind] = question["seconds"][name].get<std::vector<double>>();
  }
  SimulationCosts costs;
  costs.seconds = [&](const Op& op) { return seconds.at(op.kind)[op.stage]; };
  costs.link = [&](int, int) { return LinkModel{question["latency"], 0}; };
  costs.kept_bytes = [&](int, int) { return question["kept"].get<double>(); };
  const Simulation result = Simulate(schedule, costs);
  const auto fault = FindFault(schedule);
  return {{"step", result.step_s},
          {"end", result.end_s},
          {"busy", result.busy_s},
          {"peak", result.peak_kept_bytes},
          {"fault", fault ? fault->message : ""}};
}

}  // namespace
}  // namespace equipoise

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << equipoise::Answer(equipoise::Json::parse(line)) << "\n";
  }
  return 0;
}
