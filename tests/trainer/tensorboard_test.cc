#include "trainer/outputs/tensorboard.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "tests/trainer/run_python.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

// What TensorBoard itself reads from a folder: "tag step value" lines.
std::string ReadByTensorBoard(const std::string& folder) {
  return RunPython(
      "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as E\n"
      "e = E('" +
      folder +
      "')\n"
      "e.Reload()\n"
      "for tag in sorted(e.Tags()['scalars']):\n"
      "  for s in e.Scalars(tag): print(tag, s.step, '%.9g' % s.value)\n");
}

TEST_CASE("CRC-32C gives the published check values", "[tensorboard][cpu]") {
  CHECK(Crc32c("") == 0);
  CHECK(Crc32c("123456789") == 0xe3069283U);            // the standard check value
  CHECK(Crc32c(std::string(32, '\0')) == 0x8a9136aaU);  // RFC 3720, B.4
  CHECK(Crc32c(std::string(32, '\xff')) == 0x62a8ab43U);
}

TEST_CASE("TensorBoard reads the scalars, and a resumed run replaces later steps",
          "[tensorboard][cpu]") {
  const ScratchFolder scratch;
  {
    TensorBoardWriter writer(scratch.path(), /*first_step=*/1);
    for (int64_t step = 1; step <= 4; ++step) {
      writer.AddScalar("loss", step, 1.0 / static_cast<double>(step));
      writer.AddScalar("a tag/\xc3\xa4", step, -1e-30);
      writer.Flush();
    }
  }
  {
    TensorBoardWriter writer(scratch.path(), /*first_step=*/3);
    writer.AddScalar("loss", 3, 7.5);
    writer.AddScalar("loss", 3000000000, 8.5);
    writer.Flush();
  }
  CHECK(ReadByTensorBoard(scratch.path()) ==
        "a tag/\xc3\xa4 1 -1e-30\na tag/\xc3\xa4 2 -1e-30\n"
        "loss 1 1\nloss 2 0.5\nloss 3 7.5\nloss 3000000000 8.5\n");
}

TEST_CASE("an event file that cannot be made is an error", "[tensorboard][cpu]") {
  CHECK_THROWS_AS(TensorBoardWriter("/proc/no/such/folder", 1), RunError);
}

}  // namespace
}  // namespace equipoise
