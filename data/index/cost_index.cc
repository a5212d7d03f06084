#include "data/index/cost_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>

#include "configs/base/file_handle.h"
#include "data/index/cost_index_file.h"

namespace equipoise {

std::optional<CostIndex> CostIndex::Map(const std::string& path, uint64_t key) {
  const FileHandle file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0 || info.st_size == 0) return std::nullopt;
  CostIndex index;
  index.map_bytes_ = static_cast<size_t>(info.st_size);
  void* map = mmap(nullptr, index.map_bytes_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (map == MAP_FAILED) return std::nullopt;
  index.map_ = map;
  const char* data = static_cast<const char*>(map);
  if (!IsWholeIndex(data, index.map_bytes_, key)) return std::nullopt;
  CostIndexHeader header;
  std::memcpy(&header, data, sizeof header);
  index.path_ = path;
  index.samples_ = reinterpret_cast<const SampleCost*>(data + sizeof header);
  index.size_ = static_cast<int64_t>(header.samples);
  index.hash_ = header.content;
  return index;
}

std::vector<int64_t> CostIndex::CountDefects() const {
  std::vector<int64_t> counts(static_cast<size_t>(Defect::kEnd), 0);
  for (int64_t i = 0; i < size_; ++i) {
    const auto defect = static_cast<size_t>(samples_[i].defect);
    if (defect < counts.size()) ++counts[defect];
  }
  return counts;
}

int64_t CostIndex::CountBad() const {
  const std::vector<int64_t> counts = CountDefects();
  return size_ - counts[static_cast<size_t>(Defect::kNone)] -
         counts[static_cast<size_t>(Defect::kTooLong)];
}

std::string CostIndex::DescribeDefects() const {
  const std::vector<int64_t> counts = CountDefects();
  std::string text;
  for (size_t i = 1; i < counts.size(); ++i) {
    if (counts[i] == 0 || static_cast<Defect>(i) == Defect::kTooLong) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", counts[i],
                        DefectName(static_cast<Defect>(i)));
  }
  return text;
}

CostIndex::~CostIndex() {
  if (map_ != nullptr) munmap(map_, map_bytes_);
}

CostIndex::CostIndex(CostIndex&& other) noexcept { *this = std::move(other); }

CostIndex& CostIndex::operator=(CostIndex&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(samples_, other.samples_);
  std::swap(size_, other.size_);
  std::swap(hash_, other.hash_);
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  return *this;
}

}  // namespace equipoise
