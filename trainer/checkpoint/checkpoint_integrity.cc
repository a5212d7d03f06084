#include "trainer/checkpoint/checkpoint_integrity.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/weights/safetensors_file.h"

// The tensors of a file are scanned in the order of their bytes, so that a single pass both
// computes the checksum and finds elements that are not finite.

namespace equipoise {
namespace {

constexpr std::string_view kBeforeSum = ",\n \"xxh3_64\": \"", kAfterSum = "\"\n}\n";
constexpr size_t kDigits = 16;
constexpr int64_t kReadAtOnce = 1 << 20;  // bytes

std::string SumOf(std::string_view text) {
  return HexDigits(XXH3_64bits(text.data(), text.size()));
}

// The index of the first element whose exponent bits are all 1 (infinity or NaN); -1: none.
template <class Bits>
int64_t FirstNotFinite(const std::vector<char>& bytes, int64_t size, Bits exponent) {
  constexpr int64_t kBlock = 1024;
  const auto* values = reinterpret_cast<const Bits*>(bytes.data());  // allocated, thus aligned
  const int64_t count = size / static_cast<int64_t>(sizeof(Bits));
  // Whole blocks are tested without a branch, so that the loop is vectorized.
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    bool found = false;
    for (int64_t i = begin; i < end; ++i) found |= (values[i] & exponent) == exponent;
    if (!found) continue;
    for (int64_t i = begin; i < end; ++i) {
      if ((values[i] & exponent) == exponent) return i;
    }
  }
  return -1;
}

int64_t FirstNotFinite(const std::string& dtype, const std::vector<char>& bytes, int64_t size) {
  if (dtype == "F32") return FirstNotFinite<uint32_t>(bytes, size, 0x7f800000U);
  if (dtype == "BF16") return FirstNotFinite<uint16_t>(bytes, size, 0x7f80U);
  if (dtype == "F16") return FirstNotFinite<uint16_t>(bytes, size, 0x7c00U);
  if (dtype == "F64") return FirstNotFinite<uint64_t>(bytes, size, 0x7ff0000000000000U);
  return -1;
}

// Checksum of a file that is read sequentially in parts.
class StreamingSum {
 public:
  explicit StreamingSum(const SafetensorsFile& file)
      : file_(file),
        bytes_(static_cast<size_t>(kReadAtOnce)),
        state_(XXH3_createState(), &XXH3_freeState) {
    XXH3_64bits_reset(state_.get());
  }

  // Adds bytes [begin, end), counted from the data section; negative offsets are in the header.
  // Calls `each(offset, size)` for every part, whose bytes are then in bytes().
  template <class Each>
  void Add(int64_t begin, int64_t end, const Each& each) {
    for (int64_t at = begin; at < end; at += kReadAtOnce) {
      const int64_t size = std::min(kReadAtOnce, end - at);
      file_.ReadBytes(at, at + size, bytes_.data());
      XXH3_64bits_update(state_.get(), bytes_.data(), static_cast<size_t>(size));
      sum_.bytes += size;
      each(at, size);
    }
  }

  const std::vector<char>& bytes() const { return bytes_; }
  FileSum Finish() {
    sum_.xxh3 = XXH3_64bits_digest(state_.get());
    return sum_;
  }

 private:
  const SafetensorsFile& file_;
  std::vector<char> bytes_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
  FileSum sum_;
};

}  // namespace

std::string WithChecksum(const std::string& object) {
  const std::string_view end = "\n}";
  EQUIPOISE_CHECK(object.size() > 2 && std::string_view(object).substr(object.size() - 2) == end,
                  "an object of several lines is needed");
  const std::string rest = object.substr(0, object.size() - 2);
  return fmt::format("{}{}{}{}", rest, kBeforeSum, SumOf(rest), kAfterSum);
}

bool HasChecksum(std::string_view text, const std::string& source) {
  const size_t size = kBeforeSum.size() + kDigits + kAfterSum.size();
  if (text.size() < size) return false;
  const std::string_view rest = text.substr(0, text.size() - size), end = text.substr(rest.size());
  if (end.substr(0, kBeforeSum.size()) != kBeforeSum ||
      end.substr(kBeforeSum.size() + kDigits) != kAfterSum) {
    return false;
  }
  const std::string found = SumOf(rest);
  if (end.substr(kBeforeSum.size(), kDigits) == found) return true;
  throw DataError(fmt::format("{}: checksum {}, and it says {}; use another checkpoint", source,
                              found, end.substr(kBeforeSum.size(), kDigits)));
}

TensorScan ScanTensors(const std::string& path, const std::function<void()>& alive) {
  const SafetensorsFile file(path);
  std::vector<std::pair<const SafetensorsEntry*, const std::string*>> order;
  for (const auto& [name, entry] : file.header().entries) order.emplace_back(&entry, &name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  TensorScan scan;
  StreamingSum summing(file);
  // The tensors fill the file without gaps up to its end; the header precedes them.
  const int64_t data = order.empty() ? 0 : order.back().first->end;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  summing.Add(data - size, 0, [](int64_t, int64_t) {});
  for (const auto& [entry, name] : order) {
    const int64_t begin = entry->begin, element = SafetensorsElementSize(entry->dtype);
    summing.Add(begin, entry->end, [&, &entry = *entry, &name = *name](int64_t at, int64_t bytes) {
      alive();
      if (!scan.not_finite.empty()) return;
      const int64_t found = FirstNotFinite(entry.dtype, summing.bytes(), bytes);
      if (found < 0) return;
      scan.not_finite = fmt::format("tensor {}: element {} is infinite or no number", name,
                                    (at - begin) / element + found);
    });
  }
  scan.sum = summing.Finish();
  return scan;
}

}  // namespace equipoise
