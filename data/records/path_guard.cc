#include "data/records/path_guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"

namespace equipoise {
namespace {

// No O_NOFOLLOW: links inside the folder are fine. O_NONBLOCK: opening a FIFO must not hang.
constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// The fallback for kernels before 5.6 and some sandboxes, which have no openat2. Checks the
// resolved path, and opens it without following a link that has replaced it since.
int OpenBeneathByCheck(const std::string& root, const std::string& relative) {
  std::error_code error;
  const auto folder = std::filesystem::canonical(root, error);
  if (error) return errno = error.value(), -1;
  const auto file = std::filesystem::canonical(folder / relative, error);
  if (error) return errno = error.value(), -1;
  const auto inside = file.lexically_relative(folder);
  if (inside.empty() || *inside.begin() == "..") return errno = EXDEV, -1;
  return open(file.c_str(), kFlags | O_NOFOLLOW);
}

int OpenBeneath(int folder, const std::string& root, const std::string& relative) {
  open_how how{};
  how.flags = static_cast<uint64_t>(kFlags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  long fd = -1;
  do {
    fd = syscall(SYS_openat2, folder, relative.c_str(), &how, sizeof how);
    // EAGAIN: a rename raced with `..` in the path.
  } while (fd < 0 && (errno == EINTR || errno == EAGAIN));
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) return OpenBeneathByCheck(root, relative);
  return static_cast<int>(fd);
}

// Where the Hub's cache keeps the files to which a folder at or below REPO/snapshots/REVISION
// links: REPO/blobs. Empty for other folders.
std::string BlobsOf(const std::string& root) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(root, error);
  for (std::filesystem::path at = whole; !error && at.has_relative_path(); at = at.parent_path()) {
    const std::filesystem::path snapshots = at.parent_path();
    if (snapshots.filename() != "snapshots") continue;
    const std::filesystem::path blobs = snapshots.parent_path() / "blobs";
    return std::filesystem::is_directory(blobs, error) ? blobs.string() : "";
  }
  return "";
}

// Opens the file of `blobs` itself that a path links to.
int OpenBlob(const std::string& blobs, const std::string& root, const std::string& relative) {
  const auto path = std::filesystem::path(relative).lexically_normal();
  if (path.is_absolute() || *path.begin() == "..") return errno = EXDEV, -1;
  std::error_code error;
  const auto file = std::filesystem::canonical(std::filesystem::path(root) / relative, error);
  if (error) return errno = error.value(), -1;
  if (file.parent_path() != blobs) return errno = EXDEV, -1;
  return open(file.c_str(), kFlags | O_NOFOLLOW);
}

// The path shortened in the middle: its end says most.
std::string ShownPath(const std::string& path) {
  constexpr size_t kHead = 40, kTail = 80;
  if (path.size() <= kHead + kTail) return ShownText(path);
  return ShownText(path.substr(0, kHead)) + "..." + ShownText(path.substr(path.size() - kTail));
}

OpenedImage Refused(Defect defect, const std::string& path, const std::string& what) {
  OpenedImage opened;
  opened.defect = defect;
  opened.reason = ShownPath(path) + ": " + what;
  return opened;
}

OpenedImage RefusedBy(int error, const std::string& path) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
      return Refused(Defect::kImageMissing, path,
                     path.find('\\') == path.npos
                         ? "no such file in the image folder"
                         : "no such file in the image folder; write / in place of \\");
    case EXDEV:
    case ELOOP:
      return Refused(Defect::kImageOutside, path,
                     "leaves the image folder; data.allow_outside: true allows that");
    default:
      return Refused(Defect::kImageUnreadable, path, std::strerror(error));
  }
}

// True for schemes such as http:, file:, s3:.
bool IsUrl(const std::string& path) {
  const size_t colon = path.find(':');
  if (colon == std::string::npos || colon < 2) return false;
  const bool scheme =
      path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.") ==
      colon;
  return scheme && (path.compare(colon, 3, "://") == 0 || path.compare(0, colon, "file") == 0);
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Takes the digits at the front of a text, without the zeros before them.
std::string_view TakeNumber(std::string_view& text) {
  size_t zeros = 0, end = 0;
  while (end < text.size() && IsDigit(text[end])) {
    if (zeros == end && text[end] == '0') ++zeros;
    ++end;
  }
  const std::string_view number = text.substr(zeros, end - zeros);
  text.remove_prefix(end);
  return number;
}

// The order of names by the numbers in them, then of their bytes.
bool InNaturalOrder(const std::string& a, const std::string& b) {
  std::string_view left = a, right = b;
  while (!left.empty() && !right.empty()) {
    if (IsDigit(left[0]) && IsDigit(right[0])) {
      const std::string_view x = TakeNumber(left), y = TakeNumber(right);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (left[0] != right[0])
        return static_cast<uint8_t>(left[0]) < static_cast<uint8_t>(right[0]);
      left.remove_prefix(1);
      right.remove_prefix(1);
    }
  }
  if (left.empty() != right.empty()) return left.empty();
  return a < b;
}

constexpr size_t kMostFrames = 100'000;  // of a folder, and of data.max_frames
constexpr char kDecode[] =
    "decode the video's frames into a folder, such as with ffmpeg -i VIDEO FOLDER/%05d.jpg, and "
    "give the folder";

FolderPictures NotListed(Defect defect, const std::string& path, const std::string& what) {
  return {{}, defect, ShownPath(path) + ": " + what};
}

}  // namespace

bool IsPictureName(std::string_view name) {
  static constexpr std::array<std::string_view, 8> kEnds = {".jpg", ".jpeg", ".png", ".webp",
                                                            ".bmp", ".gif",  ".tif", ".tiff"};
  if (name.starts_with('.')) return false;
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(kEnds.begin(), kEnds.end(),
                     [&](std::string_view end) { return lower.ends_with(end); });
}

ImageFolder::ImageFolder(const std::string& path, bool allow_outside)
    : path_(path),
      allow_outside_(allow_outside),
      blobs_(allow_outside ? "" : BlobsOf(path)),
      folder_(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  if (!folder_.valid()) {
    throw DataError(fmt::format(
        "{}: cannot open the image folder: {}; set `images` of this source to the folder "
        "that its image paths are relative to",
        path, std::strerror(errno)));
  }
}

std::string ImageFolder::Relative(const std::string& path) const {
  if (!path.starts_with('/')) return path;
  std::error_code error;
  for (const auto& root :
       {std::filesystem::path(path_), std::filesystem::canonical(path_, error)}) {
    std::string begin = root.string();
    while (begin.ends_with('/')) begin.pop_back();
    if (!root.empty() && path.starts_with(begin + "/")) return path.substr(begin.size() + 1);
  }
  return "";
}

OpenedImage ImageFolder::OpenAny(const std::string& given, std::string& relative) const {
  if (given.find('\0') != std::string::npos) {
    return Refused(Defect::kImageOutside, given.substr(0, given.find('\0')), "NUL in the path");
  }
  constexpr std::string_view kFile = "file://";  // as Qwen's messages name a local file
  if (given.starts_with("file:///")) return OpenAny(given.substr(kFile.size()), relative);
  if (given.starts_with("file:")) {
    return Refused(Defect::kImageOutside, given,
                   "is a URL of another machine; write file:///PATH, or the path alone");
  }
  if (IsUrl(given)) {
    return Refused(Defect::kImageOutside, given,
                   "is a URL, and nothing is downloaded; save the picture in the image folder and "
                   "give its path");
  }
  relative = allow_outside_ ? given : Relative(given);
  if (relative.empty() && !given.empty()) {
    return Refused(Defect::kImageOutside, given,
                   "is an absolute path outside the image folder; set `images` of this source to "
                   "a folder that holds it, or data.allow_outside: true");
  }
  OpenedImage opened;
  opened.file = FileHandle(allow_outside_ ? openat(folder_.get(), relative.c_str(), kFlags)
                                          : OpenBeneath(folder_.get(), path_, relative));
  if (!opened.file.valid() && errno == EXDEV && !blobs_.empty())
    opened.file = FileHandle(OpenBlob(blobs_, path_, relative));
  if (!opened.file.valid()) return RefusedBy(errno, relative);
  return opened;
}

OpenedImage ImageFolder::Open(const std::string& given) const {
  std::string relative;
  OpenedImage opened = OpenAny(given, relative);
  if (opened.defect != Defect::kNone) return opened;
  struct stat info {};
  if (fstat(opened.file.get(), &info) != 0) return RefusedBy(errno, relative);
  if (!S_ISREG(info.st_mode))
    return Refused(Defect::kImageUnreadable, relative, "is not a regular file");
  opened.bytes = info.st_size;
  return opened;
}

FolderPictures ImageFolder::List(const std::string& given) const {
  std::string relative;
  const OpenedImage opened = OpenAny(given, relative);
  if (opened.defect != Defect::kNone) return {{}, opened.defect, opened.reason};
  // The stream closes its own descriptor.
  const int descriptor = fcntl(opened.file.get(), F_DUPFD_CLOEXEC, 0);
  const std::unique_ptr<DIR, int (*)(DIR*)> names(fdopendir(descriptor), closedir);
  if (names == nullptr) {
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    if (error != ENOTDIR)
      return NotListed(Defect::kImageUnreadable, relative, std::strerror(error));
    return NotListed(
        Defect::kBadField, relative,
        std::string("is a file, and this program is built without what decodes videos; "
                    "build it with --define ffmpeg=1, or ") +
            kDecode);
  }
  FolderPictures found;
  while (const dirent* entry = readdir(names.get())) {
    if (IsPictureName(entry->d_name)) found.paths.emplace_back(entry->d_name);
    if (found.paths.size() > kMostFrames) {
      return NotListed(Defect::kImageTooLarge, relative,
                       fmt::format("holds more than {} pictures; split the video", kMostFrames));
    }
  }
  if (found.paths.empty()) {
    return NotListed(Defect::kImageMissing, relative,
                     std::string("the folder holds no pictures; ") + kDecode);
  }
  std::sort(found.paths.begin(), found.paths.end(), InNaturalOrder);
  const std::string folder = relative.ends_with('/') ? relative : relative + "/";
  for (std::string& path : found.paths) path.insert(0, folder);
  return found;
}

}  // namespace equipoise
