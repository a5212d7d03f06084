// Exchanges of context ranks, forwards and backwards, for numbers of rows that the ranks do not
// divide and for columns that several ranks get; and the part of a micro-batch that each takes.

#include "models/ops/context_ranks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "models/families/families.h"
#include "models/layers/micro_batch.h"
#include "models/spec/tensor_parallel.h"
#include "tests/models/model_support.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise::testing {
namespace {

// Rank r's rows of a whole tensor, with rows of zeros behind the last.
at::Tensor PartOfRows(const at::Tensor& whole, int rank, int ranks) {
  const int64_t share = RowShare(whole.size(0), ranks);
  const at::Tensor padded = at::zeros({share * ranks, whole.size(1)}, whole.options());
  padded.narrow(0, 0, whole.size(0)).copy_(whole);
  return padded.narrow(0, rank * share, share).clone();
}

at::Tensor ColumnsOf(const at::Tensor& whole, const Ranges& ranges) {
  std::vector<at::Tensor> parts;
  for (const Range& range : ranges) parts.push_back(whole.narrow(1, range.begin, range.size()));
  return at::cat(parts, 1);
}

// The sum over ranks of what each does to the columns that it has.
at::Tensor SumOfColumns(int64_t rows, int64_t width, const std::vector<Ranges>& of_ranks,
                        const std::vector<at::Tensor>& columns) {
  at::Tensor sum = at::zeros({rows, width});
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    int64_t begin = 0;
    for (const Range& range : of_ranks[rank]) {
      sum.narrow(1, range.begin, range.size()).add_(columns[rank].narrow(1, begin, range.size()));
      begin += range.size();
    }
  }
  return sum;
}

// Queries by rank, and one column of keys that all have.
std::vector<Ranges> WithCommonKeys(int ranks) {
  std::vector<Ranges> of_ranks;
  int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t size = rank == 0 ? 3 : 2;
    of_ranks.push_back({{begin, begin + size}, {1 + 2 * ranks, 2 + 2 * ranks}});
    begin += size;
  }
  return of_ranks;
}

std::vector<Ranges> Apart(int ranks) {
  std::vector<Ranges> of_ranks = WithCommonKeys(ranks);
  for (Ranges& ranges : of_ranks) ranges.pop_back();
  return of_ranks;
}

at::Tensor GradientOf(const at::Tensor& y, const at::Tensor& x, const at::Tensor& gradient) {
  torch::autograd::backward({y}, {gradient});
  return x.grad();
}

at::Tensor Leaf(const at::Tensor& x) { return x.clone().set_requires_grad(true); }

TEST_CASE("rows become columns of heads, and columns rows", "[models][cpu]") {
  const int ranks = GENERATE(2, 3, 4);
  const int64_t rows = GENERATE(1, 2, 3, 5, 8, 24);
  INFO(ranks << " ranks, " << rows << " rows");
  const std::vector<Ranges> common = WithCommonKeys(ranks), apart = Apart(ranks);
  const int64_t width = 2 * ranks + 2, own_width = width - 1;
  const at::Tensor whole = Normal({rows, width}, 1);
  std::vector<at::Tensor> gradients;
  for (int rank = 0; rank < ranks; ++rank) {
    gradients.push_back(
        Normal(ColumnsOf(whole, common[static_cast<size_t>(rank)]).sizes().vec(), 10 + rank));
  }
  std::vector<char> right(static_cast<size_t>(ranks) * 4);
  RunRanks(ranks, [&](Communicator& group) {
    const int rank = group.rank();
    const auto self = static_cast<size_t>(rank);
    const at::Tensor part = Leaf(PartOfRows(whole, rank, ranks));
    const at::Tensor columns = ops::RowsToColumns(part, rows, {common, {}}, group);
    right[self * 4] = columns.equal(ColumnsOf(whole, common[self]));
    right[self * 4 + 1] =
        GradientOf(columns, part, gradients[self])
            .equal(PartOfRows(SumOfColumns(rows, width, common, gradients), rank, ranks));

    const at::Tensor results = Normal({rows, own_width}, 2);
    const at::Tensor mine = Leaf(ColumnsOf(results, apart[self]));
    const at::Tensor back = ops::ColumnsToRows(mine, rows, {apart, {}}, group);
    right[self * 4 + 2] = back.equal(PartOfRows(results, rank, ranks));
    const at::Tensor gradient = Normal({rows, own_width}, 3);
    right[self * 4 + 3] = GradientOf(back, mine, PartOfRows(gradient, rank, ranks))
                              .equal(ColumnsOf(gradient, apart[self]));
  });
  for (size_t i = 0; i < right.size(); ++i) {
    INFO("rank " << i / 4 << ", check " << i % 4);
    CHECK(right[i] == 1);
  }
}

// Two head groups of two ranks each, which have the rows in turn; keys all.
TEST_CASE("ranks get rows of their heads, and give them back", "[models][cpu]") {
  constexpr int kRanks = 4;
  const int64_t rows = GENERATE(1, 2, 5, 11, 40);
  const at::Tensor whole = Normal({rows, 5}, 1);
  ops::AttentionParts queries;
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < kRanks; ++rank) {
    queries.columns.push_back(rank / 2 == 0 ? Ranges{{0, 3}} : Ranges{{3, 5}});
    Ranges own;
    for (int64_t row = rank % 2; row < rows; row += 2) own.push_back({row, row + 1});
    parts.push_back(ColumnsOf(ops::TakeRows(whole, own), queries.columns.back()));
    queries.rows.push_back(std::move(own));
  }
  std::vector<char> right(kRanks * 3);
  RunRanks(kRanks, [&](Communicator& group) {
    const auto self = static_cast<size_t>(group.rank());
    const at::Tensor part = Leaf(PartOfRows(whole, group.rank(), kRanks));
    const at::Tensor mine = ops::RowsToColumns(part, rows, queries, group);
    right[self * 3] = mine.equal(parts[self]);
    const at::Tensor back = ops::ColumnsToRows(mine, rows, queries, group);
    right[self * 3 + 1] = back.equal(part);
    // Through both exchanges the gradient comes back to where it was, but for padding.
    const at::Tensor gradient = Normal({rows, 5}, 2);
    right[self * 3 + 2] = GradientOf(back, part, PartOfRows(gradient, group.rank(), kRanks))
                              .equal(PartOfRows(gradient, group.rank(), kRanks));
  });
  CHECK(std::count(right.begin(), right.end(), 1) == kRanks * 3);
}

TEST_CASE("rows go to the ranks that ask for them, and gradients back", "[models][cpu]") {
  constexpr int kRanks = 3;
  const auto count = [](int from, int to) { return int64_t{(from + 2 * to) % 3}; };
  std::vector<char> right(kRanks * 3);
  RunRanks(kRanks, [&](Communicator& group) {
    const int rank = group.rank();
    std::vector<int64_t> sent, received;
    for (int other = 0; other < kRanks; ++other) {
      sent.push_back(count(rank, other));
      received.push_back(count(other, rank));
    }
    const int64_t all = std::accumulate(sent.begin(), sent.end(), int64_t{0});
    // A row more than goes anywhere; each holds its rank and place.
    at::Tensor values = at::empty({all + 1, 2});
    for (int64_t i = 0; i <= all; ++i) {
      values[i][0] = rank;
      values[i][1] = i;
    }
    const at::Tensor x = Leaf(values);
    const at::Tensor y = ops::SendRows(x, sent, received, group);
    bool same = y.size(0) == std::accumulate(received.begin(), received.end(), int64_t{0});
    for (int64_t i = 0, from = 0, left = received[0]; same && i < y.size(0); ++i, --left) {
      while (left == 0) left = received[static_cast<size_t>(++from)];
      same = y[i][0].item<int64_t>() == from;
    }
    const at::Tensor gradient = GradientOf(y, x, y.detach() + 1);
    const auto self = static_cast<size_t>(rank) * 3;
    right[self] = same;
    right[self + 1] = gradient.narrow(0, 0, all).equal(values.narrow(0, 0, all) + 1);
    right[self + 2] = gradient[all].equal(at::zeros({2}));
  });
  CHECK(std::count(right.begin(), right.end(), 1) == kRanks * 3);
}

// Each picture goes to one rank, each image token to the rank that has it, in order.
TEST_CASE("context ranks share out the pictures of a micro-batch", "[models][cpu]") {
  const int ranks = GENERATE(2, 3, 5);
  const int64_t pictures = GENERATE(1, 2, 3, 7);
  const int kind = GENERATE(0, 1, 2);
  const ModelConfig config = kind == 0   ? TinyInternVl(/*large_form=*/false)
                               : kind == 1 ? TinyQwenVl(/*windows=*/true)
                                           : TinyLlavaNext();
  const ImageSpec images = ImageSpecOf(config);
  const MicroBatch batch = RandomBatch(config, {60, 9}, pictures, 5);
  INFO(config.model_type << ", " << ranks << " ranks, " << pictures << " pictures");
  std::vector<MicroBatch> parts;
  for (int rank = 0; rank < ranks; ++rank)
    parts.push_back(ForContextRank(batch, images, {nullptr, rank, ranks}));
  int64_t placed = 0;
  std::vector<at::Tensor> sent_pixels;
  for (int rank = 0; rank < ranks; ++rank) {
    const MicroBatch& part = parts[static_cast<size_t>(rank)];
    const OwnRows own = RowsOf({nullptr, rank, ranks}, batch.tokens());
    int64_t sent = 0;
    for (int other = 0; other < ranks; ++other) {
      sent += part.features.sent[static_cast<size_t>(other)];
      CHECK(part.features.sent[static_cast<size_t>(other)] ==
            parts[static_cast<size_t>(other)].features.received[static_cast<size_t>(rank)]);
    }
    // Of all its pictures, or of one that it has for nothing.
    const int64_t made = PicturesOf(part, images).image_tokens;
    CHECK(part.tiles() > 0);
    CHECK((sent == made || sent == 0));
    if (sent > 0) sent_pixels.push_back(part.pixel_values);
    const at::Tensor expected =
        batch.image_positions.masked_select(batch.image_positions.ge(own.begin).logical_and(
            batch.image_positions.lt(own.begin + own.size)));
    CHECK((part.features.positions + own.begin).equal(expected));
    placed += part.features.positions.size(0);
  }
  CHECK(placed == batch.image_positions.size(0));
  CHECK(at::cat(sent_pixels).equal(batch.pixel_values));
}

}  // namespace
}  // namespace equipoise::testing
