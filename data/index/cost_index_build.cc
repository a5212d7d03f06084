#include "data/index/cost_index_build.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>

#include "configs/base/error.h"
#include "configs/base/parallel_for.h"
#include "data/index/cost_index_file.h"

// The bytes of all files are divided evenly among the slices, and each slice's part into chunks,
// which its threads scan in rounds of equal number; a record belongs to the chunk in which its line
// begins. What the slices found is merged in the order of the bytes, so the index is bitwise the
// same for any number of ranks and threads.

namespace equipoise {
namespace {

constexpr int64_t kChunkBytes = 256 << 10;
constexpr int64_t kRoundBytes = 16 << 20;
constexpr uint64_t kHashBlock = 4 << 20;
// A file changed this recently may change again without a new time stamp.
constexpr int64_t kUnsettledNs = 2'000'000'000;

uint64_t HashContent(const TextFile& file) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (uint64_t offset = 0;; offset += kHashBlock) {
    const std::string block = ReadAt(file, offset, kHashBlock);
    XXH3_64bits_update(&state, block.data(), block.size());
    if (block.size() < kHashBlock) return XXH3_64bits_digest(&state);
  }
}

SampleCost CostOf(const ScannedSample& sample) {
  SampleCost cost;
  cost.defect = sample.defect;
  if (sample.defect != Defect::kNone) return cost;
  cost.tokens = static_cast<uint32_t>(sample.encoded.ids.size());
  cost.trained = static_cast<uint32_t>(sample.trained);
  const PictureLoad pictures = sample.all_pictures();
  cost.patches = static_cast<uint32_t>(pictures.patches);
  cost.patch_pairs = static_cast<uint64_t>(pictures.patch_pairs);
  cost.window_pairs = static_cast<uint64_t>(pictures.window_pairs);
  cost.image_tokens = static_cast<uint32_t>(pictures.image_tokens);
  cost.images = static_cast<uint32_t>(sample.pictures.size());
  return cost;
}

}  // namespace

uint64_t ContentHash(const TextFile& file, const std::string& cache_folder, bool store) {
  const std::string stamp_path = fmt::format("{}/content-{:016x}", cache_folder,
                                             XXH3_64bits(file.path.data(), file.path.size()));
  const std::string stamp = fmt::format("{} {} {}", file.bytes, file.mtime_ns, file.inode);
  std::ifstream stored(stamp_path);
  std::string known_stamp, known_hash;
  if (std::getline(stored, known_stamp) && std::getline(stored, known_hash) &&
      known_stamp == stamp) {
    uint64_t hash = 0;
    const auto [end, error] =
        std::from_chars(known_hash.data(), known_hash.data() + known_hash.size(), hash, 16);
    if (error == std::errc() && known_hash.size() == 16 && *end == '\0') return hash;
  }
  const int64_t now =
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  const uint64_t hash = HashContent(file);
  if (store && now - file.mtime_ns > kUnsettledNs) {
    WriteFileWhole(stamp_path, fmt::format("{}\n{:016x}\n", stamp, hash));
  }
  return hash;
}

SliceScan::SliceScan(const std::vector<AnnotationFile>* files, const SampleScanner* scanner,
                     int slice, int slices)
    : files_(files), scanner_(scanner) {
  int64_t total = 0;
  for (const AnnotationFile& annotations : *files) total += annotations.file().bytes;
  const int64_t first = total / slices * slice + total % slices * slice / slices;
  const int64_t last = total / slices * (slice + 1) + total % slices * (slice + 1) / slices;
  int64_t start = 0;  // of the source in the bytes of all sources
  for (size_t source = 0; source < files->size(); ++source) {
    const int64_t bytes = (*files)[source].file().bytes;
    const int64_t end = std::clamp<int64_t>(last - start, 0, bytes);
    for (int64_t at = std::clamp<int64_t>(first - start, 0, bytes); at < end; at += kChunkBytes) {
      chunks_.push_back({source, at, std::min(at + kChunkBytes, end)});
    }
    start += bytes;
  }
  rounds_ = 1 + total / slices / kRoundBytes;
}

std::vector<SampleCost> SliceScan::ScanChunk(const Chunk& chunk) const {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto reader =
      (*files_)[chunk.source].Read(chunk.begin, chunk.end, scanner_->options().limits.record_bytes);
  std::vector<SampleCost> costs;
  SampleCost cost;
  for (Line line; reader->Next(line);) {
    cost = {};
    if (line.too_long) {
      cost.defect = Defect::kLineTooLong;
    } else {
      cost = CostOf(scanner_->Scan(chunk.source, line.text));
    }
    cost.offset = line.offset;
    cost.bytes = static_cast<uint32_t>(std::min(line.bytes, kMost));
    cost.source = static_cast<uint16_t>(chunk.source);
    cost.line = static_cast<uint32_t>(line.number);
    costs.push_back(cost);
  }
  cost = {};
  cost.defect = Defect::kEnd;
  cost.source = static_cast<uint16_t>(chunk.source);
  cost.line = static_cast<uint32_t>(reader->lines());
  costs.push_back(cost);
  return costs;
}

void SliceScan::ScanRound(int64_t threads, const std::function<void(double share)>& progress,
                          std::vector<SampleCost>& costs) {
  const auto all = static_cast<int64_t>(chunks_.size());
  const int64_t first = all * round_ / rounds_, last = all * (round_ + 1) / rounds_;
  ++round_;
  std::vector<std::vector<SampleCost>> parts(static_cast<size_t>(last - first));
  std::mutex mutex;
  int64_t done = first;
  ParallelFor(last - first, threads, [&](int64_t i) {
    parts[static_cast<size_t>(i)] = ScanChunk(chunks_[static_cast<size_t>(first + i)]);
    const std::lock_guard lock(mutex);
    ++done;
    if (progress) progress(static_cast<double>(done) / static_cast<double>(all));
  });
  for (const auto& part : parts) costs.insert(costs.end(), part.begin(), part.end());
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
