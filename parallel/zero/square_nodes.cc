// By LibTorch's kernels: each run's blocks begin anywhere in the flat gradient, but the nodes of
// its tree at multiples of 64 blocks of its tensor. So the sum of 64 blocks is made for every first
// block at once, by doubling: W0[i] is block i, W(k+1)[i] = Wk[i] + Wk[i + 2^k]. Six additions of
// whole arrays give in W6[i] the tree over blocks i to i + 63 with the additions in TreeSum's
// order, and an index picks the nodes. For n elements that is one pass over n fp32 numbers, and 7
// over n / 64 fp64 ones; the number of kernels does not depend on the number of tensors.

#include "parallel/zero/square_nodes.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "configs/base/error.h"
#include "parallel/flat_alignment.h"
#include "parallel/kernels/own_operator.h"
#include "parallel/zero/kernels/square_rows.h"

namespace equipoise {
namespace {

constexpr int kLevel = 6;  // of the nodes that the host reads
constexpr int64_t kNodeBlocks = int64_t{1} << kLevel;
constexpr int64_t kPieceBlocks = int64_t{1} << 24;  // at a time: 128 MiB of fp64

int64_t BlocksOf(Range flat) { return (flat.size() + Shards::kBlock - 1) / Shards::kBlock; }

using OwnSquares = OwnOperator<at::Tensor(const at::Tensor& nodes, const at::Tensor& flat)>;

const OwnSquares& Own() {
  static const OwnSquares own("equipoise::square_nodes");
  return own;
}

}  // namespace

GpuSquares::GpuSquares(std::vector<SquaredRun> runs) : runs_(std::move(runs)) {
  for (const SquaredRun& run : runs_) AddSpan(run.flat);
  AddPieces();
  int64_t first = 0;  // block of the span that holds the run
  size_t span = 0;
  for (const SquaredRun& run : runs_) {
    while (run.flat.begin >= spans_[span].end) first += BlocksOf(spans_[span++]);
    PlaceRun(run, first + (run.flat.begin - spans_[span].begin) / Shards::kBlock);
  }
}

// Joins it to the span before where no more than the padding of a tensor is between them; blocks of
// padding belong to no run.
void GpuSquares::AddSpan(Range flat) {
  EQUIPOISE_CHECK(flat.begin % Shards::kBlock == 0 && flat.size() > 0);
  flat.end = flat.begin + BlocksOf(flat) * Shards::kBlock;
  EQUIPOISE_CHECK(spans_.empty() || spans_.back().end <= flat.begin);
  if (spans_.empty() || flat.begin - spans_.back().end >= kFlatAlignment) {
    spans_.push_back({flat.begin, flat.begin});
  }
  num_blocks_ += BlocksOf({spans_.back().end, flat.end});
  spans_.back().end = flat.end;
}

void GpuSquares::AddPieces() {
  for (int64_t begin = 0; begin < num_blocks_; begin += kPieceBlocks)
    pieces_.push_back({{begin, std::min(begin + kPieceBlocks, num_blocks_)}, {}, {}, {}, {}});
}

// `first`: the run's first block among all.
void GpuSquares::PlaceRun(const SquaredRun& run, int64_t first) {
  std::vector<Place>& places = places_.emplace_back();
  const int64_t end = run.first_block + BlocksOf(run.flat);
  for (int64_t block = run.first_block; block < end;) {
    const bool node = block % kNodeBlocks == 0 && block + kNodeBlocks <= end;
    const int64_t at = first + block - run.first_block;
    const auto number = static_cast<size_t>(at / kPieceBlocks);
    Piece& piece = pieces_[number];
    std::vector<int64_t>& list = node ? piece.nodes : piece.single;
    places.push_back({number, static_cast<int64_t>(list.size()), node ? kLevel : 0});
    list.push_back(at - piece.blocks.begin);
    block += node ? kNodeBlocks : 1;
  }
}

// The single blocks of a piece, then its nodes.
at::Tensor GpuSquares::Values(const at::Tensor& blocks, Piece& piece) const {
  if (!piece.nodes_on_device.defined()) {
    piece.single_on_device = at::tensor(piece.single, at::kLong).to(blocks.device());
    piece.nodes_on_device = at::tensor(piece.nodes, at::kLong).to(blocks.device());
  }
  // A node that begins in the piece may end behind it.
  const int64_t size =
      std::min(piece.blocks.size() + kNodeBlocks - 1, num_blocks_ - piece.blocks.begin);
  at::Tensor sums = blocks.narrow(0, piece.blocks.begin, size).to(at::kDouble);
  sums.mul_(sums);
  const at::Tensor single = sums.index_select(0, piece.single_on_device);
  if (piece.nodes.empty()) return single;
  for (int k = 0; k < kLevel; ++k) {
    const int64_t step = int64_t{1} << k, rest = sums.size(0) - step;
    sums = at::add(sums.narrow(0, 0, rest), sums.narrow(0, step, rest));
  }
  return at::cat({single, sums.index_select(0, piece.nodes_on_device)});
}

// The fewest nodes that cover each run, none larger than the kernel takes.
void GpuSquares::ListNodes(at::Device device) {
  static_assert(kernels::SquareNodeRow::kMostBlocks == kNodeBlocks);
  std::vector<kernels::SquareNode> list;
  for (const SquaredRun& run : runs_) {
    std::vector<TreeNode>& nodes = own_nodes_.emplace_back();
    for (const TreeNode& whole : NodesOf({run.first_block, run.first_block + BlocksOf(run.flat)})) {
      const int level = std::min(whole.level, kLevel), above = whole.level - level;
      for (int64_t i = whole.index << above; i < (whole.index + 1) << above; ++i) {
        const int64_t begin = run.flat.begin + ((i << level) - run.first_block) * Shards::kBlock;
        nodes.push_back({level, i, 0});
        list.push_back({begin, std::min(Shards::kBlock << level, run.flat.end - begin)});
      }
    }
  }
  constexpr auto kNumbers = static_cast<int64_t>(sizeof list[0] / sizeof(int64_t));
  own_nodes_on_device_ =
      at::from_blob(list.data(), {static_cast<int64_t>(list.size()), kNumbers}, at::kLong)
          .to(device, at::kLong, /*non_blocking=*/false, /*copy=*/true);
}

std::vector<TreeSum> GpuSquares::SumsByOwnKernel(const at::Tensor& flat) {
  if (!own_nodes_on_device_.defined()) ListNodes(flat.device());
  const at::Tensor values = Own()(own_nodes_on_device_, flat).cpu();
  const auto* next = values.const_data_ptr<double>();
  std::vector<TreeSum> sums(runs_.size());
  for (size_t i = 0; i < runs_.size(); ++i) {
    for (TreeNode node : own_nodes_[i]) {
      node.value = *next++;
      sums[i].Add(node);
    }
  }
  return sums;
}

std::vector<TreeSum> GpuSquares::Sums(const at::Tensor& flat) {
  std::vector<TreeSum> sums(runs_.size());
  if (runs_.empty()) return sums;
  EQUIPOISE_CHECK(flat.is_contiguous() && flat.scalar_type() == at::kFloat);
  if (Own().IsFor(flat)) return SumsByOwnKernel(flat);
  const at::Tensor blocks = at::empty({num_blocks_}, flat.options());
  int64_t first = 0;
  for (const Range& span : spans_) {
    at::Tensor norms = blocks.narrow(0, first, BlocksOf(span));
    const at::Tensor rows = flat.narrow(0, span.begin, span.size()).view({-1, Shards::kBlock});
    at::linalg_vector_norm_out(norms, rows, /*ord=*/2, at::IntArrayRef{1});
    first += BlocksOf(span);
  }
  std::vector<at::Tensor> values;
  values.reserve(pieces_.size());
  for (Piece& piece : pieces_) values.push_back(Values(blocks, piece));
  const at::Tensor host = (values.size() == 1 ? values[0] : at::cat(values)).cpu();
  std::vector<const double*> of_piece;
  const auto* next = host.const_data_ptr<double>();
  for (const Piece& piece : pieces_) {
    of_piece.push_back(next);
    next += piece.single.size() + piece.nodes.size();
  }
  for (size_t i = 0; i < runs_.size(); ++i) {
    int64_t block = runs_[i].first_block;
    for (const Place& place : places_[i]) {
      const int64_t skipped =
          place.level == 0 ? 0 : static_cast<int64_t>(pieces_[place.piece].single.size());
      sums[i].Add(
          {place.level, block >> place.level, of_piece[place.piece][skipped + place.index]});
      block += int64_t{1} << place.level;
    }
  }
  return sums;
}

}  // namespace equipoise
