// The training of whole models over NCCL's table: stand-ins of GPUs, one for each rank, with NCCL's
// stand-in between them, beside the same on the CPU. What would hang or corrupt data there fails
// here, and so does memory that is used without waiting for those who use it (order_trace.h).
#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/device/device_cells.h"
#include "tests/device/nccl_gpus.h"
#include "tests/device/order_checker.h"

namespace equipoise::testing {
namespace {

using Queues = NcclStandIn::Queues;

void Check(const Cell& cell, Queues queues = Queues::kEach) {
  INFO(ToString(cell));
  OrderChecker checker(cell.ranks());
  NcclGpus gpus(cell.ranks(), &checker, queues);
  CheckCell(cell, gpus.devices());
  CHECK(gpus.stand_in().OpenCommunicators() == 0);
  CHECK(gpus.stand_in().Aborted() == 0);
  CHECK(gpus.stand_in().Refused() == "");
  for (int rank = 0; rank < cell.ranks(); ++rank) {
    INFO("rank " << rank);
    CHECK_FALSE(checker.trace(rank).empty());
    CHECK(Conflicts(checker.trace(rank)) == std::vector<std::string>());
  }
}

TEST_CASE("over NCCL: every schedule with data, pipeline and tensor ranks", "[device]") {
  Cell cell;
  cell.schedule =
      GENERATE("naive", "gpipe", "1f1b", "zb_h1", "interleaved", "zb_v", "pipedream_2bw");
  cell.data = cell.pipeline = cell.tensor = 2;
  cell.modality = GENERATE("text", "pictures");
  cell.zero = cell.modality == "text" ? 1 : 0;
  cell.steps = 2;
  Check(cell);
}

TEST_CASE("over NCCL: more pipeline ranks", "[device]") {
  Cell cell;
  cell.model = "internvl-llama";
  cell.schedule = GENERATE("1f1b", "zb_h1", "interleaved", "zb_v", "pipedream_2bw");
  cell.pipeline = GENERATE(3, 4);
  cell.steps = 2;
  Check(cell);
}

// Every receive then blocks what comes after it, which each schedule is proved for, and joined
// transfers have to start as one.
TEST_CASE("over NCCL: streams that share one queue of the hardware", "[device]") {
  Cell cell;
  cell.schedule =
      GENERATE("naive", "gpipe", "1f1b", "zb_h1", "interleaved", "zb_v", "pipedream_2bw");
  cell.pipeline = GENERATE(2, 3);
  cell.data = cell.pipeline == 2 ? 2 : 1;
  cell.steps = 1;
  Check(cell, Queues::kOne);
}

// The same bits as on one stream, and as on the CPU.
void CheckEncoderStream(Cell cell) {
  INFO(ToString(cell));
  cell.encoder_stream = true;
  Check(cell);
  NcclGpus gpus(cell.ranks());
  const CellResult beside = RunCell(cell, gpus.devices());
  cell.encoder_stream = false;
  NcclGpus others(cell.ranks());
  CHECK(SameBits(beside, RunCell(cell, others.devices())));
}

TEST_CASE("over NCCL: the encoder on a stream of its own, schedules and copies", "[device]") {
  Cell cell;
  cell.encoder = GENERATE(EncoderPlacement::kThreePhase, EncoderPlacement::kOptimus);
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.pipeline = 2;
  cell.encoder_ranks = GENERATE(1, 2);
  cell.data = GENERATE(1, 2);
  cell.zero = cell.data == 2 ? 1 : 0;
  cell.bucket_bytes = 1 << 20;  // weights arrive in one, which both streams read
  cell.steps = 2;
  CheckEncoderStream(cell);
}

TEST_CASE("over NCCL: the encoder on a stream of its own beside tensor ranks' sums", "[device]") {
  Cell cell;
  cell.encoder = EncoderPlacement::kOptimus;
  cell.pipeline = cell.tensor = 2;
  cell.encoder_tensor = GENERATE(1, 2);
  cell.data = GENERATE(1, 2);
  cell.zero = cell.data == 2 ? 1 : 0;
  cell.precision = GENERATE("fp32", "bf16");
  cell.sequence = cell.encoder_tensor == 1;
  cell.steps = 2;
  CheckEncoderStream(cell);
}

TEST_CASE("over NCCL: the encoder on a stream of its own, frozen, a step ahead", "[device]") {
  Cell cell;
  cell.encoder = EncoderPlacement::kOptimus;
  cell.freeze = {"vision", "projector"};
  cell.pipeline = 2;
  cell.tensor = GENERATE(1, 2);
  cell.encoder_tensor = cell.tensor == 2 ? 1 : 0;
  cell.prefetch = GENERATE(false, true);
  cell.turning = cell.prefetch;
  cell.steps = 3;
  CheckEncoderStream(cell);
}

TEST_CASE("over NCCL: tied weights on other ranks", "[device]") {
  Cell cell;
  cell.model = "qwen2-tied";
  std::tie(cell.schedule, cell.pipeline) = GENERATE(table<std::string, int>(
      {{"gpipe", 3}, {"1f1b", 4}, {"zb_h1", 4}, {"interleaved", 2}, {"zb_v", 2}}));
  cell.data = 2;
  cell.steps = 2;
  Check(cell);
}

TEST_CASE("over NCCL: sixteen ranks", "[device]") {
  Cell cell;
  cell.schedule = "zb_v";
  cell.pipeline = 4;
  cell.data = cell.tensor = 2;
  cell.zero = 1;
  cell.steps = 1;
  Check(cell);
}

TEST_CASE("over NCCL: bf16 by flash attention, with recompute", "[device]") {
  Cell cell;
  cell.precision = "bf16";
  cell.schedule = GENERATE("1f1b", "zb_v");
  cell.pipeline = 2;
  std::tie(cell.data, cell.tensor) = GENERATE(table<int, int>({{2, 1}, {1, 2}}));
  cell.zero = 1;
  cell.recompute = "random 3";
  Check(cell);
}

TEST_CASE("over NCCL: activations in host memory of micro-batches without targets", "[device]") {
  Cell cell;
  cell.modality = "blank";
  cell.recompute = GENERATE("elementwise", "offload", "full_offload");
  cell.schedule = GENERATE("1f1b", "zb_h1");
  cell.pipeline = 2;
  Check(cell);
}

TEST_CASE("over NCCL: an encoder in the bubbles", "[device]") {
  Cell cell;
  cell.encoder = GENERATE(EncoderPlacement::kDep, EncoderPlacement::kOptimus);
  cell.schedule = GENERATE("1f1b", "zb_v");
  cell.modality = "pictures";
  cell.pipeline = 2;
  cell.encoder_chunks = 2;
  cell.data = 2;
  cell.steps = 2;
  Check(cell);
}

TEST_CASE("over NCCL: an encoder on ranks of its own", "[device]") {
  Cell cell;
  cell.schedule = GENERATE("gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.pipeline = 3;
  cell.encoder = EncoderPlacement::kDisaggregated;
  cell.data = 2;
  cell.steps = 2;
  Check(cell);
}

TEST_CASE("over NCCL: gradients and weights that data ranks share out", "[device]") {
  Cell cell;
  cell.schedule = GENERATE("1f1b", "zb_h1", "interleaved");
  cell.zero = GENERATE(2, 3);
  cell.pipeline = GENERATE(1, 2);
  cell.data = 2;
  cell.precision = cell.pipeline == 1 ? "bf16" : "fp32";
  cell.steps = 2;
  Check(cell, cell.pipeline == 2 ? Queues::kOne : Queues::kEach);
}

// All of it takes minutes: scripts/parity --device stand-in
TEST_CASE("over NCCL: the whole matrix", "[.matrix]") {
  Cell cell;
  cell.schedule = GENERATE("naive", "gpipe", "1f1b", "zb_h1", "interleaved", "zb_v");
  cell.modality = GENERATE("text", "pictures", "mixed");
  cell.pipeline = GENERATE(2, 3, 4);
  cell.data = GENERATE(1, 2);
  cell.tensor = GENERATE(1, 2);
  cell.zero = cell.data - 1;
  Check(cell);
}

}  // namespace
}  // namespace equipoise::testing
