#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace equipoise {

// Writing of files that are complete or absent after a crash. All functions throw RunError that
// begins with `path:` and gives the system's error (disk full, read-only, ...).

// Replaces `path` atomically: writes `path`.tmp, syncs it, renames it, and syncs the folder.
void WriteFileDurably(const std::string& path, std::string_view text);

// Writes and syncs a file; not atomic.
void WriteAndSync(const std::string& path, std::string_view text);

// Syncs the entries of a folder: names created, renamed or removed in it.
void SyncFolder(const std::string& folder);

// Atomically makes the symbolic link `path` point to `target` (relative to the link's folder).
void ReplaceLink(const std::string& path, const std::string& target);

// Renames the folder `from` to `to`. An existing folder `to` is exchanged with it atomically, where
// the file system supports that, and removed. Elsewhere `to` lies under the name of `from` with
// kAsideSuffix for a moment, and is not yet there.
inline constexpr char kAsideSuffix[] = ".old";
void ReplaceFolder(const std::string& from, const std::string& to);

struct FileSum {
  int64_t bytes = 0;
  uint64_t xxh3 = 0;  // XXH3-64, seed 0
};
// The size and checksum of a file.
FileSum SumFile(const std::string& path);

// The 16 hexadecimal digits of a checksum.
std::string HexDigits(uint64_t value);

}  // namespace equipoise
