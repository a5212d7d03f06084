#pragma once

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"

namespace equipoise {

// Collectives of a few values in host memory, such as counts and seconds. T: int64_t or double.

// The values reduced over the ranks, element by element. REQUIRES: as many on every rank.
template <class T>
std::vector<T> AllReduceValues(Communicator& group, const std::vector<T>& values, ReduceOp op);
extern template std::vector<int64_t> AllReduceValues(Communicator&, const std::vector<int64_t>&,
                                                     ReduceOp);
extern template std::vector<double> AllReduceValues(Communicator&, const std::vector<double>&,
                                                    ReduceOp);

template <class T>
T AllReduceValue(Communicator& group, T value, ReduceOp op) {
  return AllReduceValues(group, std::vector<T>{value}, op).front();
}

// Whether the flag is set on any rank.
bool AnyRank(Communicator& group, bool mine);

// The values of each rank, in rank order. REQUIRES: as many on every rank.
template <class T>
std::vector<std::vector<T>> GatherValues(Communicator& group, const std::vector<T>& mine);
extern template std::vector<std::vector<int64_t>> GatherValues(Communicator&,
                                                               const std::vector<int64_t>&);
extern template std::vector<std::vector<double>> GatherValues(Communicator&,
                                                              const std::vector<double>&);

}  // namespace equipoise
