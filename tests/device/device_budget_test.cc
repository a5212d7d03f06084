// What a step asks of a GPU: how often the host waits for it, and how many operations it starts.
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <tuple>

#include "tests/device/gpu_stand_in.h"
#include "tests/device/nccl_gpus.h"

namespace equipoise::testing {
namespace {

GpuCounts CountsOf(const Cell& cell) {
  at::set_num_threads(1);
  const GpuCounts before = CountsOfStandIn();
  NcclGpus gpus(cell.ranks());
  RunCell(cell, gpus.devices());
  const GpuCounts after = CountsOfStandIn();
  return {after.operations - before.operations, after.reads - before.reads, 0,
          after.waits - before.waits};
}

// Of a step with clipping and AdamW: two steps less one.
GpuCounts StepCounts(Cell cell) {
  cell.steps = 1;
  const GpuCounts one = CountsOf(cell);
  cell.steps = 2;
  const GpuCounts two = CountsOf(cell);
  return {two.operations - one.operations, two.reads - one.reads, 0, two.waits - one.waits};
}

// What may be started, and how often the host may wait. Whoever needs less lowers them.
struct Budget {
  const char* precision;
  int64_t of_micro_batch;  // operations: pictures normalized (3), two blocks of the encoder,
                           // two of the decoder, both ends, the head's last columns (3); biases of
                           // linears that share an input are joined anew where they are no multiple
                           // of kFlatAlignment
  int64_t of_step;         // operations beside those: norm, clipping, AdamW
  int64_t waits;           // of a step, whatever its micro-batches
};

TEST_CASE("a step starts no more operations, and waits no more often, than it did", "[device]") {
  const Budget budget = GENERATE(Budget{"fp32", 461, 11, 4}, Budget{"bf16", 287, 14, 4});
  Cell few, many;
  few.precision = many.precision = budget.precision;
  few.modality = many.modality = "balanced";
  few.micro_batches = 2;
  many.micro_batches = 6;
  const GpuCounts small = StepCounts(few), large = StepCounts(many);
  const int64_t of_micro_batch = (large.operations - small.operations) / 4;
  INFO(budget.precision << ": " << of_micro_batch << " operations a micro-batch, "
                        << small.operations - 2 * of_micro_batch << " beside, " << small.waits
                        << " waits");
  CHECK(of_micro_batch <= budget.of_micro_batch);
  CHECK(small.operations - 2 * of_micro_batch <= budget.of_step);
  CHECK(small.waits <= budget.waits);
}

TEST_CASE("a micro-batch is given to a GPU without waiting for it", "[device]") {
  Cell few;
  few.modality = "balanced";
  std::tie(few.tensor, few.data, few.pipeline) =
      GENERATE(table<int, int, int>({{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}}));
  few.zero = few.data - 1;
  few.micro_batches = 2;
  Cell many = few;
  many.micro_batches = 6;
  INFO(ToString(few));
  const GpuCounts small = StepCounts(few), large = StepCounts(many);
  CHECK(large.waits == small.waits);
  CHECK(large.reads == small.reads);
}

}  // namespace
}  // namespace equipoise::testing
