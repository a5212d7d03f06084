#include "trainer/outputs/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "configs/base/error.h"

namespace equipoise {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<uint32_t, 256> Crc32cTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    table[byte] = crc;
  }
  return table;
}

template <class T>
void AppendRaw(std::string& out, T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  out.append(bytes.data(), bytes.size());
}

// Protobuf's wire types.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void AppendKey(std::string& out, uint32_t field, Wire wire) {
  AppendVarint(out, field << 3 | wire);
}

void AppendBytes(std::string& out, uint32_t field, std::string_view bytes) {
  AppendKey(out, field, kBytes);
  AppendVarint(out, bytes.size());
  out.append(bytes);
}

// The fields of tensorflow.Event used here: wall_time = 1, step = 2, and one of file_version = 3,
// summary = 5, session_log = 7.
std::string Event(int64_t step, uint32_t what_field, std::string_view what) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string out;
  AppendKey(out, 1, kFixed64);
  AppendRaw(out, now.count());
  AppendKey(out, 2, kVarint);
  AppendVarint(out, static_cast<uint64_t>(step));
  AppendBytes(out, what_field, what);
  return out;
}

// TFRecord's masked CRC, rotated and offset, as the CRC of data that contains CRCs is problematic.
uint32_t MaskedCrc(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

void AppendRecord(std::string& out, std::string_view data) {
  std::string length;
  AppendRaw(length, static_cast<uint64_t>(data.size()));
  out += length;
  AppendRaw(out, MaskedCrc(length));
  out += data;
  AppendRaw(out, MaskedCrc(data));
}

std::string NewPath(const std::string& folder) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  // TensorBoard reads the files of a folder in the order of their names, here that of time.
  return fmt::format("{}/events.out.tfevents.{}.{}.{}", folder, us / 1'000'000, us, host.data());
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = Crc32cTable();
  uint32_t crc = ~0U;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder, int64_t first_step)
    : path_(NewPath(folder)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644)) {
  if (!file_.valid())
    throw RunError(fmt::format("{}: cannot create: {}", path_, std::strerror(errno)));
  AppendRecord(pending_, Event(0, 3, "brain.Event:2"));
  std::string session_log;  // status = START: drops older events from this step on
  AppendKey(session_log, 1, kVarint);
  AppendVarint(session_log, 1);
  AppendRecord(pending_, Event(first_step, 7, session_log));
}

void TensorBoardWriter::AddScalar(std::string_view tag, int64_t step, double value) {
  std::string item;  // Summary.Value: tag = 1, simple_value = 2
  AppendBytes(item, 1, tag);
  AppendKey(item, 2, kFixed32);
  AppendRaw(item, static_cast<float>(value));
  std::string summary;
  AppendBytes(summary, 1, item);
  AppendRecord(pending_, Event(step, 5, summary));
}

void TensorBoardWriter::Flush() {
  if (!WriteFully(file_, pending_))
    throw RunError(fmt::format("{}: cannot write: {}", path_, std::strerror(errno)));
  pending_.clear();
}

}  // namespace equipoise
