// Reads "NAME RANKS CHUNKS MICRO_BATCHES" lines, writes each schedule as one line a rank and an
// empty line after it.
#include <iostream>
#include <string>

#include "parallel/schedule/builders.h"

int main() {
  std::string name;
  int ranks = 0, chunks = 0, micro_batches = 0;
  while (std::cin >> name >> ranks >> chunks >> micro_batches) {
    std::vector<int> rank_of_stage;
    const equipoise::Placement placement = equipoise::FindSchedule(name)->placement;
    for (int stage = 0; stage < ranks * chunks; ++stage)
      rank_of_stage.push_back(equipoise::RankOfPlace(placement, stage, ranks));
    const auto graph = equipoise::ChainGraph(rank_of_stage);
    for (const auto& list : equipoise::BuildSchedule(name, graph, micro_batches).ranks) {
      for (const equipoise::Op& op : list) std::cout << ToString(op) << " ";
      std::cout << "\n";
    }
    std::cout << "\n";
  }
  return 0;
}
