#include "data/cost_index_build.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "configs/error.h"
#include "data/cost_index_file.h"

namespace equipoise {
namespace {

constexpr int64_t kChunkBytes = 256 << 10;
constexpr uint64_t kHashBlock = 4 << 20;
// A file changed this recently may change again without a new time stamp.
constexpr int64_t kUnsettledNs = 2'000'000'000;

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

uint64_t HashContent(const TextFile& file) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (uint64_t offset = 0;; offset += kHashBlock) {
    const std::string block = ReadAt(file, offset, kHashBlock);
    XXH3_64bits_update(&state, block.data(), block.size());
    if (block.size() < kHashBlock) return XXH3_64bits_digest(&state);
  }
}

struct Chunk {
  size_t source = 0;
  int64_t begin = 0, end = 0;
  std::vector<SampleCost> costs;
};

std::vector<Chunk> ChunksOf(const SliceScan& scan) {
  int64_t total = 0;
  for (const TextFile& file : *scan.files) total += file.bytes;
  // total * slices does not fit in 64 bits for petabytes only.
  const int64_t first = total * scan.slice / scan.slices;
  const int64_t last = total * (scan.slice + 1) / scan.slices;
  std::vector<Chunk> chunks;
  int64_t start = 0;  // of the source in the bytes of all sources
  for (size_t source = 0; source < scan.files->size(); ++source) {
    const int64_t bytes = (*scan.files)[source].bytes;
    const int64_t end = std::clamp<int64_t>(last - start, 0, bytes);
    for (int64_t at = std::clamp<int64_t>(first - start, 0, bytes); at < end; at += kChunkBytes) {
      chunks.push_back({source, at, std::min(at + kChunkBytes, end), {}});
    }
    start += bytes;
  }
  return chunks;
}

SampleCost CostOf(const ScannedSample& sample) {
  SampleCost cost;
  cost.defect = sample.defect;
  if (sample.defect != Defect::kNone) return cost;
  cost.tokens = static_cast<uint32_t>(sample.encoded.ids.size());
  cost.trained = static_cast<uint32_t>(sample.trained);
  cost.tiles = static_cast<uint16_t>(sample.all_tiles());
  cost.images = static_cast<uint16_t>(sample.tiles.size());
  return cost;
}

void ScanChunk(const SliceScan& scan, Chunk& chunk) {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  LineReader reader(&(*scan.files)[chunk.source], chunk.begin, chunk.end,
                    scan.scanner->options().limits.record_bytes);
  Line line;
  SampleCost cost;
  while (reader.Next(line)) {
    if (line.too_long) {
      cost = {};
      cost.defect = Defect::kLineTooLong;
    } else {
      cost = CostOf(scan.scanner->Scan(chunk.source, line.text));
    }
    cost.offset = line.offset;
    cost.bytes = static_cast<uint32_t>(std::min(line.bytes, kMost));
    cost.source = static_cast<uint16_t>(chunk.source);
    cost.line = static_cast<uint32_t>(line.number);
    chunk.costs.push_back(cost);
  }
  SampleCost marker;
  marker.defect = Defect::kEnd;
  marker.source = static_cast<uint16_t>(chunk.source);
  marker.line = static_cast<uint32_t>(reader.lines());
  chunk.costs.push_back(marker);
}

// Runs `work` in `threads` threads; rethrows the first exception.
void RunThreads(int64_t threads, const std::function<void()>& work) {
  std::exception_ptr failure;
  std::mutex mutex;
  const auto guarded = [&] {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < threads; ++i) others.emplace_back(guarded);
  guarded();
  others.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

uint64_t ContentHash(const TextFile& file, const std::string& cache_folder, bool store) {
  const std::string stamp_path =
      cache_folder + "/content-" + Hex(XXH3_64bits(file.path.data(), file.path.size()));
  std::ostringstream stamp;
  stamp << file.bytes << ' ' << file.mtime_ns << ' ' << file.inode;
  std::ifstream stored(stamp_path);
  std::string known_stamp, known_hash;
  if (std::getline(stored, known_stamp) && std::getline(stored, known_hash) &&
      known_stamp == stamp.str()) {
    uint64_t hash = 0;
    const auto [end, error] =
        std::from_chars(known_hash.data(), known_hash.data() + known_hash.size(), hash, 16);
    if (error == std::errc() && known_hash.size() == 16 && *end == '\0') return hash;
  }
  const int64_t now =
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  const uint64_t hash = HashContent(file);
  if (store && now - file.mtime_ns > kUnsettledNs) {
    WriteFileWhole(stamp_path, stamp.str() + "\n" + Hex(hash) + "\n");
  }
  return hash;
}

std::vector<SampleCost> ScanSlice(const SliceScan& scan) {
  std::vector<Chunk> chunks = ChunksOf(scan);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  size_t done = 0;
  RunThreads(scan.threads, [&] {
    for (size_t i = next++; i < chunks.size(); i = next++) {
      ScanChunk(scan, chunks[i]);
      const std::lock_guard lock(mutex);
      ++done;
      if (scan.progress)
        scan.progress(static_cast<double>(done) / static_cast<double>(chunks.size()));
    }
  });
  std::vector<SampleCost> costs;
  for (Chunk& chunk : chunks) costs.insert(costs.end(), chunk.costs.begin(), chunk.costs.end());
  return costs;
}

std::vector<SampleCost> MergeSlices(const std::vector<std::vector<SampleCost>>& slices) {
  std::map<uint16_t, uint32_t> lines;  // of each source, before the current marker
  std::vector<SampleCost> merged;
  for (const auto& slice : slices) {
    for (SampleCost cost : slice) {
      uint32_t& before = lines[cost.source];
      if (cost.defect == Defect::kEnd) {
        before += cost.line;
      } else {
        cost.line += before;
        merged.push_back(cost);
      }
    }
  }
  return merged;
}

}  // namespace equipoise
