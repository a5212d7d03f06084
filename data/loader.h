#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/packing.h"
#include "models/micro_batch.h"

namespace equipoise {

// A sample that could not be loaded as planned. Its shape is kept: its tiles are zeros and none of its
// tokens is learnt, so no other rank needs to know.
struct BadSample {
  int64_t sample = 0;
  std::string file;        // annotations
  int64_t line = 0;
  std::string id;
  std::string reason;
};

struct LoadedPack {
  MicroBatch batch;
  int64_t targets = 0;               // trained tokens after bad samples; = planned_targets without any
  std::vector<BadSample> bad;
};

// Reads, decodes and encodes records into micro-batches. Thread-safe.
class Dataset {
 public:
  // The objects pointed to must outlive this one.
  Dataset(std::vector<SourceConfig> sources, const DataConfig* config, const CostIndex* index,
          const Tokenizer* tokenizer, const ChatTemplate* chat_template, int64_t tokens_per_tile,
          int64_t tile_size);
  ~Dataset();

  LoadedPack Load(const Pack& pack) const;
  Record ReadRecord(int64_t sample) const;     // throws DataError for a defective line
  // The record's turns with pictures placed, ids and mask: for `data show`.
  EncodedConversation Encode(int64_t sample) const;
  const CostIndex& index() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Loads packs ahead in threads; gives them in order. The order of results does not depend on the threads.
class PrefetchLoader {
 public:
  // `next` gives this rank's packs one after the other; it is called from one thread at a time.
  PrefetchLoader(const Dataset* dataset, std::function<Pack()> next, int64_t threads, int64_t prefetch);
  ~PrefetchLoader();
  // Blocks until the next pack is there. An exception of a loader thread is thrown here.
  LoadedPack Next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace equipoise
