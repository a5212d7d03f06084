#include "balance/workload.h"

namespace equipoise {

std::vector<int> PacksOfRank(int packs, int data, int rank) {
  std::vector<int> numbers;
  for (int pack = rank; pack < packs; pack += data) numbers.push_back(pack);
  return numbers;
}

}  // namespace equipoise
