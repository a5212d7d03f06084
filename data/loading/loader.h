#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/loading/packing.h"
#include "data/records/bad_sample.h"
#include "data/records/sample_scanner.h"
#include "models/layers/micro_batch.h"

namespace equipoise {

// Of each sample of a pack, in order: why it cannot be used; empty where it can.
using SampleFaults = std::vector<std::string>;

// A pack read from its files as a micro-batch.
struct LoadedPack {
  MicroBatch batch;
  int64_t targets = 0;  // trained tokens after bad samples; = planned_targets without any
  double weight = 0;    // sum of their weights; = targets for LossWeight::kToken
  // Samples that could not be loaded as planned. Their shape is kept: their pictures are black and
  // none of their tokens is a target. Ranks that share out the work on the micro-batch need to know
  // beforehand, ranks of the loss after it what those before them could not read
  // (data/loading/agree_on_faults.h).
  std::vector<BadSample> bad;
  SampleFaults faults;  // of all samples
};

// Reads, decodes and encodes records into micro-batches. Thread-safe.
class Dataset {
 public:
  // The objects pointed to must outlive this one. Throws DataError when a source's files are
  // missing.
  Dataset(const std::vector<SourceConfig>& sources, SampleOptions options, const CostIndex* index,
          const ChatTemplate* chat_template, LossWeight loss = LossWeight::kToken);
  ~Dataset();
  Dataset(Dataset&&) noexcept;

  // `pictures` false: for a rank that uses shapes and tokens alone; no picture is decoded, the
  // micro-batch has no pixels, and pictures that would fail to decode are not noticed. `known`:
  // faults that samples are bad for already; empty: none.
  LoadedPack Load(const Pack& pack, bool pictures = true, const SampleFaults& known = {}) const;
  // The record as it is now: parsed, its pictures' heads read, encoded; or its defect. For `data
  // show`. With `files`, its pictures are read whole.
  ScannedSample Scan(int64_t sample, std::vector<std::string>* files = nullptr) const;
  // Scan() with the pictures decoded too (kImageDamaged): finds every defect that a record can
  // have.
  ScannedSample Check(int64_t sample) const;
  // File and line of the sample, for messages and the quarantine.
  BadSample Locate(int64_t sample, const std::string& id, const std::string& reason) const;
  // Of the pictures of a source (ScannedSample::source).
  const ImageProcessor& processor(size_t source) const;
  const CostIndex& index() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A pack that a loader is to read; `pictures` as in Dataset::Load().
struct LoadRequest {
  Pack pack;
  bool pictures = true;
};

// Loads packs ahead in threads, and returns them in the order of `next` for any number of threads.
class PrefetchLoader {
 public:
  // `next` gives this rank's packs one after the other; it is called from one thread at a time. At
  // most `prefetch` packs are loaded ahead. Packs for a GPU lie in pinned memory.
  PrefetchLoader(const Dataset* dataset, std::function<LoadRequest()> next, int64_t threads,
                 int64_t prefetch, at::Device device = at::kCPU);
  ~PrefetchLoader();
  // The next pack; blocks until it is loaded. Throws the exception of a loader thread.
  LoadedPack Next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace equipoise
