#include "trainer/outputs/report_picture.h"

#include <catch2/catch.hpp>
#include <string>

#include "configs/base/base64.h"
#include "tests/trainer/run_python.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

void MakeNoise(const std::string& path, const std::string& size) {
  RunPython("import os\nfrom PIL import Image\nw, h = " + size +
            "\n"
            "Image.frombytes('RGB', (w, h), os.urandom(3 * w * h)).save('" +
            path + "')\n");
}

// What Pillow makes of a data URI: format and size.
std::string Seen(const ScratchFolder& scratch, const std::string& uri) {
  WriteText(scratch.Path("uri"), uri);
  return RunPython(
      "import base64, io\nfrom PIL import Image\n"
      "head, data = open('" +
      scratch.Path("uri") +
      "').read().split(',')\n"
      "i = Image.open(io.BytesIO(base64.b64decode(data))); i.load()\n"
      "print(head, i.format, *i.size)\n");
}

TEST_CASE("a small picture keeps its bytes", "[report][cpu]") {
  const ScratchFolder scratch;
  MakeNoise(scratch.Path("a.png"), "30, 20");
  CHECK(PictureDataUri(ReadText(scratch.Path("a.png"))) ==
        "data:image/png;base64," + Base64(ReadText(scratch.Path("a.png"))));
  MakeNoise(scratch.Path("a.jpg"), "30, 20");
  CHECK(Seen(scratch, PictureDataUri(ReadText(scratch.Path("a.jpg")))) ==
        "data:image/jpeg;base64 JPEG 30 20\n");
}

TEST_CASE("a large picture is scaled down", "[report][cpu]") {
  const ScratchFolder scratch;
  MakeNoise(scratch.Path("wide.jpg"), "1024, 300");
  CHECK(Seen(scratch, PictureDataUri(ReadText(scratch.Path("wide.jpg")))) ==
        "data:image/png;base64 PNG 256 75\n");
  MakeNoise(scratch.Path("thin.png"), "5, 9000");
  CHECK(Seen(scratch, PictureDataUri(ReadText(scratch.Path("thin.png")))) ==
        "data:image/png;base64 PNG 1 256\n");
}

TEST_CASE("what is no picture is left out", "[report][cpu]") {
  const ScratchFolder scratch;
  CHECK(PictureDataUri("").empty());
  WriteText(scratch.Path("text"), "hello");
  CHECK(PictureDataUri(ReadText(scratch.Path("text"))).empty());
  WriteText(scratch.Path("large"), "\x89PNG\r\n\x1a\n" + std::string(100'000, 'x'));
  CHECK(PictureDataUri(ReadText(scratch.Path("large"))).empty());
}

}  // namespace
}  // namespace equipoise
