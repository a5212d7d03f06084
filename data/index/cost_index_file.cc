#include "data/index/cost_index_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "configs/base/error.h"
#include "data/records/path_guard.h"

namespace equipoise {
namespace {

uint64_t HeaderChecksum(const CostIndexHeader& header) {
  return XXH3_64bits(&header, offsetof(CostIndexHeader, header_checksum));
}

[[noreturn]] void FailWrite(const std::string& path) {
  throw DataError(path + ": cannot be written: " + std::strerror(errno) +
                  "; set data.cache to a folder with room");
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
  const std::string temporary = path + ".tmp-" + std::to_string(std::random_device{}());
  {
    const FileHandle file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.valid()) FailWrite(temporary);
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t put = write(file.get(), bytes.data() + done, bytes.size() - done);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) {
        const int error = errno;
        unlink(temporary.c_str());
        errno = error;
        FailWrite(temporary);
      }
      done += static_cast<size_t>(put);
    }
    if (fsync(file.get()) != 0) FailWrite(temporary);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) FailWrite(path);
}

void WriteIndexFile(const std::string& path, uint64_t key, const std::vector<SampleCost>& samples) {
  const size_t content = samples.size() * sizeof(SampleCost);
  CostIndexHeader header;
  header.key = key;
  header.samples = samples.size();
  header.checksum = XXH3_64bits(samples.data(), content);
  header.header_checksum = HeaderChecksum(header);
  std::string bytes(sizeof header + content, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, samples.data(), content);
  WriteFileWhole(path, bytes);
}

bool ReadIndexFile(const std::string& path, uint64_t key, std::vector<SampleCost>& samples) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!IsWholeIndex(bytes.data(), bytes.size(), key)) return false;
  samples.resize((bytes.size() - sizeof(CostIndexHeader)) / sizeof(SampleCost));
  std::memcpy(samples.data(), bytes.data() + sizeof(CostIndexHeader),
              samples.size() * sizeof(SampleCost));
  return true;
}

}  // namespace equipoise
