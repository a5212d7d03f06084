#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/index/cost_index.h"
#include "models/spec/image_spec.h"

namespace equipoise {

// Header of an index file, before the samples (docs/cost_index_format.md); little endian.
struct CostIndexHeader {
  char magic[8] = {'E', 'Q', 'C', 'O', 'S', 'T', '\r', '\n'};
  uint32_t version = 9;
  uint32_t sample_bytes = sizeof(SampleCost);
  uint64_t key = 0;  // hash of all that the index was made from
  uint64_t samples = 0;
  uint64_t content = 0;          // CostIndex::hash()
  uint64_t checksum = 0;         // XXH3 of the samples
  uint64_t header_checksum = 0;  // XXH3 of the fields above
};
static_assert(sizeof(CostIndexHeader) == 56);
static_assert(sizeof(SampleCost) == 56);

// True when `bytes` bytes at `data` are a whole, undamaged index made from `key`.
bool IsWholeIndex(const char* data, size_t bytes, uint64_t key);

// The version of the index at `path`; 0 where there is none.
uint32_t IndexVersion(const std::string& path);

// The hash that an index of version 1 would have: of its header, with `key`, the key in that
// version, and of its samples, which counted the tiles of `images`.
uint64_t HashOfVersion1(uint64_t key, const std::vector<SampleCost>& samples,
                        const ImageSpec& images);

// Replaces a file: writes under a temporary name, syncs, renames. Throws DataError with advice.
void WriteFileWhole(const std::string& path, const std::string& bytes);
void WriteIndexFile(const std::string& path, uint64_t key, uint64_t content,
                    const std::vector<SampleCost>& samples);

// Reads a whole index file into memory; false when it is absent, damaged or of another key.
bool ReadIndexFile(const std::string& path, uint64_t key, std::vector<SampleCost>& samples);

}  // namespace equipoise
