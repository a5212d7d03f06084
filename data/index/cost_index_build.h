#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/index/cost_index.h"
#include "data/records/annotation_file.h"
#include "data/records/sample_scanner.h"

namespace equipoise {

// Hash of an annotation file's content. Stored in `cache_folder` together with size, time and
// inode, so that an unchanged file of many gigabytes is hashed once; `store` allows writing there.
uint64_t ContentHash(const TextFile& file, const std::string& cache_folder, bool store);

// Scan of the records that begin in a slice of the sources' bytes, chunk by chunk in several
// rounds.
class SliceScan {
 public:
  // `files`, those of the sources, and `scanner` must outlive this object.
  SliceScan(const std::vector<AnnotationFile>* files, const SampleScanner* scanner, int slice,
            int slices);

  // Rounds of the scan, as many for every slice; a round takes seconds.
  int64_t rounds() const { return rounds_; }
  // Appends the costs of the next round to `costs`. Each chunk ends with a marker of defect kEnd
  // whose `line` is the number of lines read; line numbers count from the chunk's first line. (Of
  // an array and a shard they are the records' numbers in the file, and the marker has 0.)
  void ScanRound(int64_t threads, const std::function<void(double share)>& progress,
                 std::vector<SampleCost>& costs);

 private:
  struct Chunk {
    size_t source = 0;
    int64_t begin = 0, end = 0;
  };
  std::vector<SampleCost> ScanChunk(const Chunk& chunk) const;

  const std::vector<AnnotationFile>* files_;
  const SampleScanner* scanner_;
  std::vector<Chunk> chunks_;
  int64_t rounds_ = 1, round_ = 0;
};

// Concatenates the slices' costs, without markers and with line numbers in the whole file.
std::vector<SampleCost> MergeSlices(const std::vector<std::vector<SampleCost>>& slices);

}  // namespace equipoise
