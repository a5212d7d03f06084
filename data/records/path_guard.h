#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "configs/base/file_handle.h"
#include "data/records/defect.h"

namespace equipoise {

// A picture's file opened for reading, or the defect that prevents it (kImageMissing,
// kImageOutside, kImageUnreadable).
struct OpenedImage {
  FileHandle file;
  std::string held;  // in place of a file: all bytes of a picture that lies in the record itself
  int64_t bytes = 0;
  Defect defect = Defect::kNone;
  std::string reason;
};

// The paths of the pictures in a folder, for Open(), or the defect that prevents it.
struct FolderPictures {
  std::vector<std::string> paths;
  Defect defect = Defect::kNone;
  std::string reason;
};

// The folder that a source's image paths are relative to. Paths come from untrusted records:
// nothing outside the folder is ever opened, be it by `..`, an absolute path, a URL or a symbolic
// link that leaves it, and only regular files are; but a snapshot in the Hub's cache has its files'
// bytes in the `blobs` beside it. With `allow_outside` (data.allow_outside) all
// but URLs may leave it. An absolute path is accepted where it begins with the folder's.
// Thread-safe.
class ImageFolder {
 public:
  // Throws DataError when there is no such folder.
  explicit ImageFolder(const std::string& path, bool allow_outside = false);
  // Opens the picture of a record's path.
  OpenedImage Open(const std::string& given) const;
  // The files in the folder of a record's path that are pictures by the ends of their names, in the
  // order of the numbers in them: 2.png before 10.png. Refused where there are none.
  FolderPictures List(const std::string& given) const;
  const std::string& path() const { return path_; }

 private:
  // The path relative to the folder; empty where it is absolute and leads elsewhere.
  std::string Relative(const std::string& path) const;
  // Opens whatever lies there.
  OpenedImage OpenAny(const std::string& given, std::string& relative) const;

  std::string path_;
  bool allow_outside_;
  std::string blobs_;  // of the Hub's cache, or empty
  FileHandle folder_;
};

// Whether a file's name ends as those of pictures do; not that of a hidden file.
bool IsPictureName(std::string_view name);

}  // namespace equipoise
