// Gathers and scatters of rows that tensor ranks share out, forwards and backwards, for numbers of
// rows that the ranks do not divide, and fewer rows than ranks.

#include "models/ops/shared_rows.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "models/ops/dropout.h"
#include "models/spec/tensor_parallel.h"
#include "tests/models/model_support.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise::testing {
namespace {

constexpr int64_t kColumns = 5;

// A rank's rows of a whole tensor, with rows of zeros behind the last.
at::Tensor PartOfRows(const at::Tensor& whole, const Communicator& group) {
  const int64_t share = RowShare(whole.size(0), group.size());
  const at::Tensor padded = at::zeros({share * group.size(), whole.size(1)}, whole.options());
  padded.narrow(0, 0, whole.size(0)).copy_(whole);
  return padded.narrow(0, group.rank() * share, share).clone();
}

// What rank `rank` adds to a sum.
at::Tensor Term(int64_t rows, int rank, uint64_t seed) {
  return Normal({rows, kColumns}, seed + static_cast<uint64_t>(rank));
}

at::Tensor SumOfTerms(int64_t rows, int ranks, uint64_t seed) {
  at::Tensor sum = Term(rows, 0, seed);
  for (int rank = 1; rank < ranks; ++rank) sum.add_(Term(rows, rank, seed));
  return sum;
}

at::Tensor GradientOf(const at::Tensor& y, const at::Tensor& x, const at::Tensor& gradient) {
  torch::autograd::backward({y}, {gradient});
  return x.grad();
}

struct Outcome {
  bool gathered = false, gathered_back = false, whole_back = false, scattered = false,
       scattered_back = false, bias = false, taken = false;
};

Outcome RunRank(Communicator& group, int64_t rows) {
  const at::Tensor whole = Normal({rows, kColumns}, 1);
  const auto leaf = [](const at::Tensor& x) { return x.clone().set_requires_grad(true); };
  const int ranks = group.size(), rank = group.rank();
  Outcome outcome;

  const at::Tensor part = leaf(PartOfRows(whole, group));
  const at::Tensor gathered = ops::GatherRows(part, rows, group);
  outcome.gathered = gathered.equal(whole);
  outcome.gathered_back = GradientOf(gathered, part, Term(rows, rank, 10))
                              .equal(PartOfRows(SumOfTerms(rows, ranks, 10), group));

  const at::Tensor same = leaf(PartOfRows(whole, group));
  const at::Tensor gradient = Normal({rows, kColumns}, 2);
  outcome.whole_back = GradientOf(ops::GatherWholeRows(same, rows, group), same, gradient)
                           .equal(PartOfRows(gradient, group));

  Parameter bias;
  bias.shape = {kColumns};
  bias.value = Normal({kColumns}, 3);
  bias.gradient = at::zeros({kColumns});
  const at::Tensor term = leaf(Term(rows, rank, 20));
  const at::Tensor scattered = ops::ScatterRows(term, &bias, group);
  const at::Tensor sum = PartOfRows(SumOfTerms(rows, ranks, 20), group);
  outcome.scattered = scattered.equal(sum + bias.value);
  // Nothing flows into padding, as every result that is used is gathered without it.
  const at::Tensor own = PartOfRows(gradient, group);
  outcome.scattered_back = GradientOf(scattered, term, own).equal(gradient);
  outcome.bias = at::allclose(bias.gradient, own.sum(0));

  ops::SharedInput input(part, rows, group);
  input.WillTake();
  input.WillTake();
  const at::Tensor first = input.Take();
  outcome.taken = first.equal(whole) && input.Take().is_alias_of(first);
  return outcome;
}

TEST_CASE("rows that ranks share out are gathered and scattered", "[models][cpu]") {
  const int ranks = GENERATE(2, 3, 4);
  const int64_t rows = GENERATE(1, 2, 3, 5, 8, 24);
  INFO(rows << " rows over " << ranks << " ranks");
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](Communicator& world) {
    outcomes[static_cast<size_t>(world.rank())] = RunRank(world, rows);
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.gathered);
    CHECK(outcome.gathered_back);
    CHECK(outcome.whole_back);
    CHECK(outcome.scattered);
    CHECK(outcome.scattered_back);
    CHECK(outcome.bias);
    CHECK(outcome.taken);
  }
}

TEST_CASE("a rank's rows have the mask of dropout that they have in the whole tensor",
          "[models][cpu]") {
  const at::Tensor x = at::ones({12, 7});
  const at::Tensor whole = ops::Dropout(x, 0.5, {3, "place"});
  const at::Tensor part = ops::Dropout(x.narrow(0, 4, 4), 0.5, {3, "place", 0, 4});
  CHECK(part.equal(whole.narrow(0, 4, 4)));
  CHECK_FALSE(part.equal(whole.narrow(0, 0, 4)));
}

}  // namespace
}  // namespace equipoise::testing
