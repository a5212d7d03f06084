#include "parallel/zero/square_nodes.h"

#include <ATen/ops/add.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr int kLevel = 6;  // tree level of the nodes that the host gets
constexpr int64_t kNodeBlocks = int64_t{1} << kLevel;
constexpr int64_t kPieceBlocks = int64_t{1} << 18;  // squared at a time: 128 MiB of fp64

// Sums of neighbouring pairs, `times` over. Element by element, so that the order of the additions
// does not depend on the size.
at::Tensor PairSums(at::Tensor x, int times) {
  for (int i = 0; i < times; ++i) {
    const at::Tensor pairs = x.view({-1, 2});
    x = at::add(pairs.select(1, 0), pairs.select(1, 1));
  }
  return x;
}

// Adds nodes of one level; the first has this index.
void AddNodes(const at::Tensor& values, int level, int64_t index, TreeSum& sum) {
  const at::Tensor host = values.cpu();
  const auto* value = host.const_data_ptr<double>();
  for (int64_t i = 0; i < host.numel(); ++i) sum.Add({level, index + i, value[i]});
}

// Adds the sums of blocks; the first block has the index `first`. Whole groups of kNodeBlocks are
// summed on the device, the blocks before and after them on the host.
void AddBlocks(const at::Tensor& blocks, int64_t first, TreeSum& sum) {
  const int64_t end = first + blocks.numel();
  const int64_t begin = std::min(end, (first + kNodeBlocks - 1) / kNodeBlocks * kNodeBlocks);
  const int64_t last = std::max(begin, end / kNodeBlocks * kNodeBlocks);
  AddNodes(blocks.narrow(0, 0, begin - first), 0, first, sum);
  AddNodes(PairSums(blocks.narrow(0, begin - first, last - begin), kLevel), kLevel,
           begin / kNodeBlocks, sum);
  AddNodes(blocks.narrow(0, last - first, end - last), 0, last, sum);
}

}  // namespace

void AddSquares(const at::Tensor& values, int64_t first, TreeSum& sum) {
  EQUIPOISE_CHECK(values.is_contiguous() && values.scalar_type() == at::kFloat);
  if (values.is_cpu()) {
    AddSquares(values.const_data_ptr<float>(), values.numel(), first, sum);
    return;
  }
  const at::Tensor flat = values.view({-1});
  constexpr int64_t kPiece = kPieceBlocks * Shards::kBlock;
  for (int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
    const at::Tensor piece = flat.narrow(0, begin, std::min(kPiece, flat.numel() - begin));
    const int64_t blocks = (piece.numel() + Shards::kBlock - 1) / Shards::kBlock;
    at::Tensor squares = at::zeros({blocks * Shards::kBlock}, piece.options().dtype(at::kDouble));
    squares.narrow(0, 0, piece.numel()).copy_(piece);
    static_assert(Shards::kBlock == 1 << 6);
    AddBlocks(PairSums(squares.mul_(squares), 6), first + begin / Shards::kBlock, sum);
  }
}

}  // namespace equipoise
