#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace equipoise {

// A regular file in a tar archive.
struct TarMember {
  std::string name;
  uint64_t begin = 0;   // of its headers, those of a long name included
  uint64_t offset = 0;  // of its bytes
  uint64_t bytes = 0;
  uint64_t end = 0;  // behind its padding
};

// Reader of the members of a tar archive (ustar, and the long names and sizes of pax and GNU tar),
// by their headers alone: 512 bytes a member. Folders are passed over. Names are names, never
// paths: nothing is ever opened or written by one.
class TarReader {
 public:
  // Gives bytes of the archive, fewer behind its end.
  using ReadBytes = std::function<std::string(uint64_t offset, uint64_t bytes)>;
  // `source` for messages; `bytes` of the whole archive.
  TarReader(std::string source, uint64_t bytes, ReadBytes read)
      : source_(std::move(source)), bytes_(bytes), read_(std::move(read)) {}

  // Reads the next member; false at the end. Throws DataError "source: what" for an archive that is
  // damaged, cut, or holds links or sparse files.
  bool Next(TarMember& member);

 private:
  // What headers before a member's own say of it.
  struct Extended {
    std::string name;
    uint64_t bytes = 0;
    bool has_bytes = false;
  };
  std::string ReadExtended(uint64_t offset, uint64_t bytes) const;
  void ReadPax(std::string_view text, Extended& extended) const;
  [[noreturn]] void Fail(const std::string& what) const;

  std::string source_;
  uint64_t bytes_;
  ReadBytes read_;
  uint64_t at_ = 0;
};

}  // namespace equipoise
