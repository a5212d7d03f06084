#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/cost_index.h"
#include "data/line_reader.h"
#include "data/sample_scanner.h"

namespace equipoise {

// Hash of an annotation file's content. Kept in `cache_folder` together with size, time and inode,
// so that an unchanged file of many gigabytes is hashed once; `store` allows writing there.
uint64_t ContentHash(const TextFile& file, const std::string& cache_folder, bool store);

// Costs of the records that begin in a slice of the sources' bytes, chunk by chunk. Behind each
// chunk stands a marker with defect kEnd whose `line` is the number of lines read; line numbers
// count from the first line of the chunk.
struct SliceScan {
  const std::vector<TextFile>* files = nullptr;  // of each source
  const SampleScanner* scanner = nullptr;
  int slice = 0, slices = 1;
  int64_t threads = 1;
  std::function<void(double share)> progress;
};
std::vector<SampleCost> ScanSlice(const SliceScan& scan);

// The slices' costs one after the other, without markers and with line numbers in the whole file.
std::vector<SampleCost> MergeSlices(const std::vector<std::vector<SampleCost>>& slices);

}  // namespace equipoise
