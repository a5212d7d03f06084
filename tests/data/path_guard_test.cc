#include "data/records/path_guard.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {
namespace {

TEST_CASE("pictures of the Hub's cache are links to its blobs", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string snapshot = "hub/datasets--org--set/snapshots/0a1b";
  const std::string blobs = "hub/datasets--org--set/blobs";
  folder.Write(blobs + "/4f2c", "picture");
  folder.Write(blobs + "/deep/b", "b");
  folder.Write("hub/datasets--org--set/refs/main", "0a1b");
  folder.Write(snapshot + "/images/own.png", "own");
  const auto link = [&](const std::string& to, const std::string& name) {
    std::filesystem::create_symlink(to, folder / (snapshot + "/images/" + name));
  };
  link("../../../blobs/4f2c", "a.png");
  link("../../../blobs/none", "gone.png");
  link("../../../blobs/deep/b", "deep.png");
  link("../../../refs/main", "refs.png");
  const ImageFolder images(folder / (snapshot + "/images"));
  CHECK(images.Open("a.png").defect == Defect::kNone);
  CHECK(images.Open("a.png").bytes == 7);
  CHECK(images.Open("own.png").defect == Defect::kNone);
  CHECK(ImageFolder(folder / snapshot).Open("images/a.png").defect == Defect::kNone);
  CHECK(images.Open("gone.png").defect == Defect::kImageMissing);
  CHECK(images.Open("deep.png").defect == Defect::kImageOutside);
  CHECK(images.Open("refs.png").defect == Defect::kImageOutside);
  for (const char* path : {"../../../refs/main", "../../../blobs/4f2c", "../../../blobs/none"})
    CHECK(images.Open(path).defect == Defect::kImageOutside);
  // A folder of that name alone is none of the Hub's.
  folder.Write("snapshots/x/y.png", "y");
  folder.Write("secret.png", "secret");
  std::filesystem::create_symlink("../../secret.png", folder / "snapshots/x/leak.png");
  CHECK(ImageFolder(folder / "snapshots/x").Open("leak.png").defect == Defect::kImageOutside);
}

TEST_CASE("image paths stay below the image folder", "[data][cpu]") {
  const TemporaryFolder folder;
  folder.Write("secret.png", "secret");
  folder.Write("images/a.png", "picture");
  folder.Write("images/deep/b.png", "b");
  std::filesystem::create_symlink("a.png", folder / "images/link.png");
  std::filesystem::create_symlink("../secret.png", folder / "images/leak.png");
  std::filesystem::create_symlink("/etc", folder / "images/etc");
  std::filesystem::create_symlink("loop", folder / "images/loop");
  REQUIRE(mkfifo((folder / "images/fifo").c_str(), 0600) == 0);
  const ImageFolder images(folder / "images");

  struct Case {
    std::string path;
    Defect defect;
  };
  const std::vector<Case> cases = {
      {"a.png", Defect::kNone},
      {"./a.png", Defect::kNone},
      {"deep/b.png", Defect::kNone},
      {"deep/../a.png", Defect::kNone},
      {"link.png", Defect::kNone},
      {"missing.png", Defect::kImageMissing},
      {"A.png", Defect::kImageMissing},
      {"a.png/b.png", Defect::kImageMissing},
      {std::string(5000, 'x'), Defect::kImageMissing},
      {"..\\secret.png", Defect::kImageMissing},
      {"%2e%2e/secret.png", Defect::kImageMissing},
      {"../secret.png", Defect::kImageOutside},
      {"deep/../../secret.png", Defect::kImageOutside},
      {"leak.png", Defect::kImageOutside},
      {"etc/passwd", Defect::kImageOutside},
      {"loop", Defect::kImageOutside},
      {"/etc/passwd", Defect::kImageOutside},
      {folder / "images/a.png", Defect::kNone},
      {folder / "images/../secret.png", Defect::kImageOutside},
      {folder / "secret.png", Defect::kImageOutside},
      {folder / "imagesx/a.png", Defect::kImageOutside},
      {"\x1b[2Jx.png", Defect::kImageMissing},
      {std::string("a.png\0.jpg", 10), Defect::kImageOutside},
      {"http://169.254.169.254/x.png", Defect::kImageOutside},
      {"file:///etc/passwd", Defect::kImageOutside},
      {"file://" + (folder / "images/a.png"), Defect::kNone},
      {"file://" + (folder / "secret.png"), Defect::kImageOutside},
      {"file://host/a.png", Defect::kImageOutside},
      {"s3://bucket/a.png", Defect::kImageOutside},
      {"deep", Defect::kImageUnreadable},
      {".", Defect::kImageUnreadable},
      {"fifo", Defect::kImageUnreadable},
  };
  for (const Case& each : cases) {
    INFO(each.path.substr(0, 80));
    const OpenedImage opened = images.Open(each.path);
    CHECK(DefectName(opened.defect) == DefectName(each.defect));
    CHECK(opened.reason.empty() == (each.defect == Defect::kNone));
    CHECK(opened.reason.size() < 300);
    CHECK(opened.reason.find('\x1b') == std::string::npos);
    CHECK(opened.file.valid() == (each.defect == Defect::kNone));
  }
  CHECK(images.Open("a.png").bytes == 7);
  CHECK(images.Open("file:///a.png").reason.find("is an absolute path outside") !=
        std::string::npos);
  CHECK(images.Open("file://host/a.png").reason.find("is a URL of another machine") !=
        std::string::npos);
  CHECK(images.Open("http://x/y.png").reason.find("nothing is downloaded") != std::string::npos);
  CHECK(images.Open("deep\\b.png").reason ==
        "deep\\b.png: no such file in the image folder; write / in place of \\");
}

TEST_CASE("paths lead out of the image folder where that is asked for", "[data][cpu]") {
  const TemporaryFolder folder;
  folder.Write("elsewhere/b.png", "b");
  folder.Write("images/a.png", "a");
  std::filesystem::create_symlink(folder / "elsewhere", folder / "images/coco");
  REQUIRE(mkfifo((folder / "elsewhere/fifo").c_str(), 0600) == 0);
  const OpenedImage refused = ImageFolder(folder / "images").Open("coco/b.png");
  CHECK(refused.defect == Defect::kImageOutside);
  CHECK(refused.reason.find("data.allow_outside: true") != std::string::npos);
  const ImageFolder following(folder / "images", /*allow_outside=*/true);
  CHECK(following.Open("coco/b.png").defect == Defect::kNone);
  CHECK(following.Open(folder / "images/coco/b.png").defect == Defect::kNone);
  CHECK(following.Open("coco/fifo").defect == Defect::kImageUnreadable);
  CHECK(following.Open("none.png").defect == Defect::kImageMissing);
  CHECK(following.Open("../elsewhere/b.png").defect == Defect::kNone);
  CHECK(following.Open(folder / "elsewhere/b.png").defect == Defect::kNone);
  CHECK(following.Open("http://x/y.png").defect == Defect::kImageOutside);
}

TEST_CASE("a link to the image folder itself is followed", "[data][cpu]") {
  const TemporaryFolder folder;
  folder.Write("real/a.png", "x");
  std::filesystem::create_symlink("real", folder / "images");
  CHECK(ImageFolder(folder / "images").Open("a.png").defect == Defect::kNone);
}

TEST_CASE("all absolute paths lie in the root of the file system", "[data][cpu]") {
  const TemporaryFolder folder;
  folder.Write("a.png", "picture");
  // Links are not followed to absolute paths.
  const std::string path = std::filesystem::canonical(folder / "a.png").string();
  const ImageFolder root("/");
  CHECK(root.Open(path).bytes == 7);
  CHECK(root.Open("file://" + path).bytes == 7);
  CHECK(root.Open(path.substr(1)).bytes == 7);
}

TEST_CASE("a missing image folder is the user's error", "[data][cpu]") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(ImageFolder(folder / "none"), DataError);
  folder.Write("file", "x");
  CHECK_THROWS_AS(ImageFolder(folder / "file"), DataError);
}

}  // namespace
}  // namespace equipoise
