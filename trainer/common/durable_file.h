#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace equipoise {

// Files that are whole or absent after a crash. All throw RunError that begins with `path:` and
// says what the system answered (disk full, read-only, ...).

// Replaces `path`: writes `path`.tmp beside it, syncs, renames, syncs the folder.
void WriteFileDurably(const std::string& path, std::string_view text);

// Writes and syncs a new file; not atomic by itself.
void WriteAndSync(const std::string& path, std::string_view text);

// Makes the entries of a folder durable: names created, renamed or removed in it.
void SyncFolder(const std::string& folder);

// Points the link `path` at `target` (relative to the link's folder) in one step.
void ReplaceLink(const std::string& path, const std::string& target);

// Puts the folder `from` where `to` is. An older folder `to` changes places with it in one step,
// where the file system can, and is removed.
void ReplaceFolder(const std::string& from, const std::string& to);

struct FileSum {
  int64_t bytes = 0;
  uint64_t xxh3 = 0;  // XXH3-64, seed 0
};
FileSum SumFile(const std::string& path);

// The 16 hexadecimal digits of a checksum.
std::string HexDigits(uint64_t value);

}  // namespace equipoise
