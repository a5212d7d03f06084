#include "tests/parallel/communicator_conformance.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "parallel/comm/all_to_all.h"
#include "parallel/comm/gather_text.h"

namespace equipoise {
namespace {

template <class... Parts>
void Require(bool condition, const Parts&... parts) {
  if (condition) return;
  std::ostringstream out;
  (out << ... << parts);
  throw std::runtime_error(out.str());
}

// Zero, one, odd, and the border of small messages (16 KiB).
const std::vector<int64_t> kSizes = {0, 1, 2, 3, 7, 1000, 4096, 4097, 100003};
// More than one block; on few ranks, as every rank makes every rank's input to compare with.
constexpr int64_t kLarge = 2200003;
constexpr int kRanksForLarge = 3;

// Any rank can say what any rank's input is: values whose sum depends on the order of addition.
at::Tensor Input(int rank, int64_t count, at::ScalarType dtype) {
  if (dtype == at::kLong) return at::arange(count, at::kLong).mul_(rank + 1);
  const at::Tensor index = at::arange(count, at::kDouble).add_(rank * 1009);
  return index.mul(0.7548776662466927).frac_().sub_(0.4).mul_(rank % 2 ? 1e3 : 1.0).to(dtype);
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0);
}

at::ScalarType SumType(at::ScalarType dtype) {
  return dtype == at::kDouble || dtype == at::kLong ? dtype : at::kFloat;
}

// The definition: added in rank order in fp32, rounded once.
at::Tensor Reduced(const std::vector<at::Tensor>& inputs, ReduceOp op) {
  const at::ScalarType dtype = inputs[0].scalar_type();
  at::Tensor sum = inputs[0].to(SumType(dtype), /*non_blocking=*/false, /*copy=*/true);
  for (size_t i = 1; i < inputs.size(); ++i) {
    const at::Tensor next = inputs[i].to(SumType(dtype));
    if (op == ReduceOp::kSum) sum.add_(next);
    if (op == ReduceOp::kMax) sum = at::maximum(sum, next);
    if (op == ReduceOp::kMin) sum = at::minimum(sum, next);
  }
  return sum.to(dtype);
}

double Epsilon(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return std::ldexp(1.0, -7);
    case at::kHalf:
      return std::ldexp(1.0, -10);
    case at::kFloat:
      return std::ldexp(1.0, -23);
    default:
      return std::ldexp(1.0, -52);
  }
}

// Whether `result` is elements [begin, end) of the inputs' reduction.
struct Expectation {
  Sums sums;
  bool operator()(const at::Tensor& result, const std::vector<at::Tensor>& inputs, ReduceOp op,
                  int64_t begin = 0) const {
    const int64_t end = begin + result.numel();
    const at::Tensor right = Reduced(inputs, op).slice(0, begin, end);
    const at::ScalarType dtype = result.scalar_type();
    if (sums == Sums::kInRankOrder || op != ReduceOp::kSum || dtype == at::kLong ||
        result.numel() == 0) {
      return SameBits(result, right);
    }
    at::Tensor bound = at::zeros({result.numel()}, at::kDouble);
    for (const at::Tensor& input : inputs) {
      bound.add_(input.slice(0, begin, end).to(at::kDouble).abs());
    }
    bound.mul_(4 * Epsilon(dtype));
    return result.to(at::kDouble).sub(right.to(at::kDouble)).abs().le(bound).all().item<bool>();
  }
};

std::vector<at::Tensor> Inputs(int ranks, int64_t count, at::ScalarType dtype) {
  std::vector<at::Tensor> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(Input(rank, count, dtype));
  return inputs;
}

void CheckAllReduce(Communicator& world, const Expectation& is) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
    for (const int64_t count : kSizes) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
        if (count > 10000 && op != ReduceOp::kSum) continue;
        at::Tensor tensor = Input(world.rank(), count, dtype);
        world.AllReduce(tensor, op).Wait();
        Require(is(tensor, Inputs(world.size(), count, dtype), op), "all_reduce of ", count, " ",
                c10::toString(dtype), ", op ", static_cast<int>(op));
      }
    }
  }
}

void CheckLarge(Communicator& world, const Expectation& is) {
  if (world.size() > kRanksForLarge) return;
  at::Tensor tensor = Input(world.rank(), kLarge, at::kFloat);
  world.AllReduce(tensor, ReduceOp::kSum).Wait();
  Require(is(tensor, Inputs(world.size(), kLarge, at::kFloat), ReduceOp::kSum), "large all_reduce");
  const int64_t count = kLarge / world.size() + 3, mine = count * world.rank();
  const at::Tensor input = Input(world.rank(), count * world.size(), at::kFloat);
  at::Tensor output = at::empty({count}, at::kFloat);
  world.ReduceScatter(output, input, ReduceOp::kSum).Wait();
  const auto inputs = Inputs(world.size(), count * world.size(), at::kFloat);
  Require(is(output, inputs, ReduceOp::kSum, mine), "large reduce_scatter");
}

void CheckReduceScatter(Communicator& world, const Expectation& is) {
  const int n = world.size();
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong}) {
    for (const int64_t count : {0, 1, 3, 1001, 20001}) {
      const at::Tensor input = Input(world.rank(), count * n, dtype);
      at::Tensor output = at::empty({count}, dtype);
      world.ReduceScatter(output, input, ReduceOp::kSum).Wait();
      Require(is(output, Inputs(n, count * n, dtype), ReduceOp::kSum, count * world.rank()),
              "reduce_scatter of ", count, " ", c10::toString(dtype));
      Require(SameBits(input, Input(world.rank(), count * n, dtype)),
              "reduce_scatter input changed");
    }
  }
}

void CheckInPlace(Communicator& world, const Expectation& is) {
  const int64_t count = 70001, mine = count * world.rank();
  at::Tensor buffer = Input(world.rank(), count * world.size(), at::kFloat);
  at::Tensor slice = buffer.slice(0, mine, mine + count);
  world.ReduceScatter(slice, buffer, ReduceOp::kSum).Wait();
  world.AllGather(buffer, slice).Wait();
  Require(is(buffer, Inputs(world.size(), count * world.size(), at::kFloat), ReduceOp::kSum),
          "reduce_scatter and all_gather in place");
}

void CheckAllGather(Communicator& world) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kByte}) {
    for (const int64_t count : {0, 1, 3, 1001, 70001}) {
      const auto part = [&](int rank) {
        return Input(rank, count, dtype == at::kByte ? at::kLong : dtype).to(dtype);
      };
      at::Tensor output = at::empty({world.size(), count}, dtype);
      world.AllGather(output, part(world.rank())).Wait();
      for (int rank = 0; rank < world.size(); ++rank) {
        Require(SameBits(output.select(0, rank), part(rank)), "all_gather of ", count, " ",
                c10::toString(dtype));
      }
    }
  }
}

void CheckBroadcast(Communicator& world) {
  for (int root = 0; root < world.size(); ++root) {
    for (const int64_t count : {0, 1, 3, 4097, 100003}) {
      at::Tensor tensor = Input(world.rank(), count, at::kFloat);
      world.Broadcast(tensor, root).Wait();
      Require(SameBits(tensor, Input(root, count, at::kFloat)), "broadcast of ", count, " from ",
              root);
    }
  }
}

// Every pair, both ways at once, several messages of different sizes on their way.
void CheckPairs(Communicator& world) {
  const std::vector<int64_t> counts = {1, 0, 30001, 5};
  std::vector<Work> works;
  std::vector<std::vector<at::Tensor>> received(world.size());
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer == world.rank()) continue;
    for (const int64_t count : counts) {
      received[peer].push_back(at::empty({count}, at::kFloat));
      works.push_back(world.Recv(received[peer].back(), peer));
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      const int stamp = world.rank() * 100 + peer * 10 + static_cast<int>(i);
      works.push_back(world.Send(Input(stamp, counts[i], at::kFloat), peer));
    }
  }
  while (!works.empty()) {
    works.back().Wait();
    works.pop_back();
  }
  for (int peer = 0; peer < world.size(); ++peer) {
    for (size_t i = 0; i < received[peer].size(); ++i) {
      const int stamp = peer * 100 + world.rank() * 10 + static_cast<int>(i);
      Require(SameBits(received[peer][i], Input(stamp, counts[i], at::kFloat)), "message ", i,
              " from ", peer);
    }
  }
}

// Another size for each pair of ranks, some of them none.
void CheckAllToAll(Communicator& world) {
  const auto size = [](int from, int to) { return int64_t{1009} * ((from * 3 + to * 5) % 4); };
  const auto message = [&](int from, int to) {
    return Input(from * 10 + to, size(from, to), at::kFloat);
  };
  for (int round = 0; round < 2; ++round) {
    std::vector<at::Tensor> inputs, outputs;
    for (int rank = 0; rank < world.size(); ++rank) {
      inputs.push_back(message(world.rank(), rank));
      outputs.push_back(at::empty({size(rank, world.rank())}, at::kFloat));
    }
    AllToAll(world, outputs, inputs);
    for (int rank = 0; rank < world.size(); ++rank) {
      Require(SameBits(outputs[static_cast<size_t>(rank)], message(rank, world.rank())),
              "all-to-all: message of rank ", rank);
    }
  }
}

void CheckManyOutstanding(Communicator& world, const Expectation& is) {
  constexpr int kMany = 16;
  std::vector<at::Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < kMany; ++i) {
    tensors.push_back(Input(world.rank() + i, 1 + 1777 * i, at::kFloat));
    works.push_back(i % 3 == 2 ? world.Broadcast(tensors[i], i % world.size())
                               : world.AllReduce(tensors[i], ReduceOp::kSum));
  }
  // Another order on every rank.
  for (int i = 0; i < kMany; ++i) {
    const int next = (i * 5 + 3 + world.rank()) % kMany;
    works[next].Wait();
    Require(works[next].Done(), "not done after Wait");
    std::vector<at::Tensor> inputs;
    for (int rank = 0; rank < world.size(); ++rank) {
      inputs.push_back(Input(rank + next, 1 + 1777 * next, at::kFloat));
    }
    Require(next % 3 == 2 ? SameBits(tensors[next], inputs[next % world.size()])
                          : is(tensors[next], inputs, ReduceOp::kSum),
            "operation ", next, " of ", kMany);
  }
}

void CheckGroups(Communicator& world, const Expectation& is) {
  // Odd and even ranks, in reverse order; both groups and the world at work at once.
  const int color = world.rank() % 2;
  const auto group = world.Split(color, /*key=*/-world.rank(), "parity");
  std::vector<at::Tensor> inputs;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank % 2 == color) inputs.insert(inputs.begin(), Input(rank, 5001, at::kFloat));
  }
  Require(group->size() == static_cast<int>(inputs.size()), "size ", group->size());
  Require(group->name() == "parity", group->name());
  Require(SameBits(inputs[group->rank()], Input(world.rank(), 5001, at::kFloat)), "rank in group");

  at::Tensor mine = Input(world.rank(), 5001, at::kFloat);
  at::Tensor all = Input(world.rank(), 20001, at::kFloat);
  Work in_world = world.AllReduce(all, ReduceOp::kSum);
  Work in_group = group->AllReduce(mine, ReduceOp::kSum);
  in_group.Wait();
  in_world.Wait();
  Require(is(mine, inputs, ReduceOp::kSum), "all_reduce in a group");
  Require(is(all, Inputs(world.size(), 20001, at::kFloat), ReduceOp::kSum),
          "all_reduce beside a group");

  // A group of a group: one rank each.
  const auto alone = group->Split(/*color=*/group->rank(), 0, "alone");
  Require(alone->size() == 1 && alone->rank() == 0, "group of one");
  at::Tensor same = Input(world.rank(), 10, at::kFloat);
  alone->AllReduce(same, ReduceOp::kSum).Wait();
  Require(SameBits(same, Input(world.rank(), 10, at::kFloat)), "group of one");
}

void CheckNan(Communicator& world) {
  at::Tensor tensor = at::full({3}, 1.0, at::kFloat);
  if (world.rank() == world.size() - 1) tensor[1] = std::numeric_limits<float>::quiet_NaN();
  world.AllReduce(tensor, ReduceOp::kMax).Wait();
  Require(tensor[0].item<float>() == 1 && tensor[1].isnan().item<bool>(), "NaN must win a maximum");
}

void CheckBarrier(Communicator& world) {
  for (int i = 0; i < 20; ++i) Barrier(world);
}

// Of another length on each rank, one of them empty.
void CheckTexts(Communicator& world) {
  const auto text = [](int rank) { return std::string(static_cast<size_t>(rank) * 1000, 'a'); };
  std::vector<std::string> expected;
  expected.reserve(static_cast<size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) expected.push_back(text(rank));
  Require(GatherText(world, text(world.rank())) == expected, "gathered texts");
  if (world.rank() > 0) expected.clear();
  Require(CollectText(world, text(world.rank())) == expected, "collected texts");
}

}  // namespace

std::vector<ConformanceCheck> ConformanceChecks(Sums sums) {
  const auto reducing = [sums](auto* check) {
    return [sums, check](Communicator& world) { check(world, Expectation{sums}); };
  };
  return {
      {"all_reduce", reducing(CheckAllReduce)},
      {"large reductions", reducing(CheckLarge)},
      {"reduce_scatter", reducing(CheckReduceScatter)},
      {"in place", reducing(CheckInPlace)},
      {"all_gather", CheckAllGather},
      {"broadcast", CheckBroadcast},
      {"send and recv between all pairs", CheckPairs},
      {"all-to-all", CheckAllToAll},
      {"many outstanding", reducing(CheckManyOutstanding)},
      {"groups", reducing(CheckGroups)},
      {"NaN", CheckNan},
      {"barrier", CheckBarrier},
      {"texts", CheckTexts},
  };
}

}  // namespace equipoise
