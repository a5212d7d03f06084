#include "data/index/cost_index_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "configs/base/error.h"
#include "configs/base/file_handle.h"
#include "configs/base/regular_file.h"

namespace equipoise {
namespace {

uint64_t HeaderChecksum(const CostIndexHeader& header) {
  return XXH3_64bits(&header, offsetof(CostIndexHeader, header_checksum));
}

// Version 1 of the format: bytes 0 to 39 of its header, and its sample.
struct HeaderOfVersion1 {
  char magic[8] = {};
  uint32_t version = 1;
  uint32_t sample_bytes = 32;
  uint64_t key = 0;
  uint64_t samples = 0;
  uint64_t checksum = 0;
};
struct SampleOfVersion1 {
  uint64_t offset;
  uint32_t bytes, tokens, trained;
  uint16_t tiles;
  Defect defect;
  uint16_t source, images;
  uint32_t line;
};
static_assert(sizeof(HeaderOfVersion1) == 40 && sizeof(SampleOfVersion1) == 32);

[[noreturn]] void FailWrite(const std::string& path) {
  throw DataError(fmt::format("{}: cannot be written: {}; set data.cache to a folder with room",
                              path, std::strerror(errno)));
}

// FailWrite(), without the file that holds a part.
[[noreturn]] void FailWithout(const std::string& temporary, const std::string& path) {
  const int error = errno;
  unlink(temporary.c_str());
  errno = error;
  FailWrite(path);
}

}  // namespace

bool IsWholeIndex(const char* data, size_t bytes, uint64_t key) {
  CostIndexHeader header;
  const CostIndexHeader expected;
  if (bytes < sizeof header) return false;
  std::memcpy(&header, data, sizeof header);
  if (std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0) return false;
  if (header.version != expected.version || header.sample_bytes != expected.sample_bytes)
    return false;
  if (header.header_checksum != HeaderChecksum(header) || header.key != key) return false;
  const size_t content = bytes - sizeof header;
  if (content % sizeof(SampleCost) != 0 || content / sizeof(SampleCost) != header.samples)
    return false;
  return XXH3_64bits(data + sizeof header, content) == header.checksum;
}

void WriteFileWhole(const std::string& path, const std::string& bytes) {
  // Not named by the process: jobs on two machines may have the same number.
  const std::string temporary = fmt::format("{}.tmp-{}", path, std::random_device{}());
  {
    const FileHandle file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.valid()) FailWrite(temporary);
    if (!WriteFully(file, bytes) || fsync(file.get()) != 0) FailWithout(temporary, temporary);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) FailWithout(temporary, path);
}

uint32_t IndexVersion(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CostIndexHeader header;
  std::string bytes(offsetof(CostIndexHeader, sample_bytes), '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file || std::memcmp(bytes.data(), header.magic, sizeof header.magic) != 0) return 0;
  std::memcpy(&header, bytes.data(), bytes.size());
  return header.version;
}

uint64_t HashOfVersion1(uint64_t key, const std::vector<SampleCost>& samples,
                        const ImageSpec& images) {
  std::vector<SampleOfVersion1> old;
  old.reserve(samples.size());
  for (const SampleCost& cost : samples) {
    old.push_back({cost.offset, cost.bytes, cost.tokens, cost.trained,
                   static_cast<uint16_t>(images.TilesOf(cost.patches)), cost.defect, cost.source,
                   static_cast<uint16_t>(cost.images), cost.line});
  }
  HeaderOfVersion1 header;
  std::memcpy(header.magic, CostIndexHeader().magic, sizeof header.magic);
  header.key = key;
  header.samples = samples.size();
  header.checksum = XXH3_64bits(old.data(), old.size() * sizeof old[0]);
  return XXH3_64bits(&header, sizeof header);
}

void WriteIndexFile(const std::string& path, uint64_t key, uint64_t content,
                    const std::vector<SampleCost>& samples) {
  const size_t sample_bytes = samples.size() * sizeof(SampleCost);
  CostIndexHeader header;
  header.key = key;
  header.samples = samples.size();
  header.content = content;
  header.checksum = XXH3_64bits(samples.data(), sample_bytes);
  header.header_checksum = HeaderChecksum(header);
  std::string bytes(sizeof header + sample_bytes, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, samples.data(), sample_bytes);
  WriteFileWhole(path, bytes);
}

bool ReadIndexFile(const std::string& path, uint64_t key, std::vector<SampleCost>& samples) {
  const auto [bytes, problem] = ReadRegularFile(path, std::numeric_limits<size_t>::max());
  if (!problem.empty() || !IsWholeIndex(bytes.data(), bytes.size(), key)) return false;
  samples.resize((bytes.size() - sizeof(CostIndexHeader)) / sizeof(SampleCost));
  std::memcpy(samples.data(), bytes.data() + sizeof(CostIndexHeader),
              samples.size() * sizeof(SampleCost));
  return true;
}

}  // namespace equipoise
