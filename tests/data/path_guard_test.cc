#include "data/path_guard.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "configs/error.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {
namespace {

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
      {folder / "images/a.png", Defect::kImageOutside},
      {std::string("a.png\0.jpg", 10), Defect::kImageOutside},
      {"http://169.254.169.254/x.png", Defect::kImageOutside},
      {"file:///etc/passwd", Defect::kImageOutside},
      {"data:image/png;base64,AAAA", Defect::kImageOutside},
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
    CHECK(opened.file.valid() == (each.defect == Defect::kNone));
  }
  CHECK(images.Open("a.png").bytes == 7);
}

TEST_CASE("a link to the image folder itself is followed", "[data][cpu]") {
  const TemporaryFolder folder;
  folder.Write("real/a.png", "x");
  std::filesystem::create_symlink("real", folder / "images");
  CHECK(ImageFolder(folder / "images").Open("a.png").defect == Defect::kNone);
}

TEST_CASE("a missing image folder is the user's error", "[data][cpu]") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(ImageFolder(folder / "none"), DataError);
  folder.Write("file", "x");
  CHECK_THROWS_AS(ImageFolder(folder / "file"), DataError);
}

}  // namespace
}  // namespace equipoise
