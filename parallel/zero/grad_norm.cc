// One norm for all meshes, bit by bit. Floating-point sums depend on their order, so the order is
// fixed once: blocks of Shards::kBlock elements of a tensor, pairs of blocks, pairs of pairs
// (tree_sum.h), then parts of a tensor by place, then tensors by name.
//
// Under ZeRO a slice may begin anywhere in a tensor: a rank reduces its runs to the fewest tree
// nodes that cover them (at most two a level, O(log n) a run), the data ranks gather all nodes, and
// each completes every tree for itself. Which nodes come from where follows from the shards and is
// never sent. One all-reduce over the world then fills the table of parts; each part has one owner,
// so it adds zeros to one number and is exact.

#include "parallel/zero/grad_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "configs/base/error.h"
#include "parallel/comm/gather_text.h"
#include "parallel/zero/square_nodes.h"
#include "parallel/zero/tree_sum.h"

namespace equipoise {
namespace {

// AddSquares() of tree_sum.h for a contiguous fp32 tensor on the CPU.
void AddSquares(const at::Tensor& values, int64_t first, TreeSum& sum) {
  EQUIPOISE_CHECK(values.is_cpu() && values.is_contiguous() && values.scalar_type() == at::kFloat);
  AddSquares(values.const_data_ptr<float>(), values.numel(), first, sum);
}

double SquareSum(const at::Tensor& gradient) {
  TreeSum sum;
  AddSquares(gradient, 0, sum);
  return sum.Total();
}

// The blocks that a range of the flat gradient covers, counted from `offset`, where the parameter
// begins.
Range Blocks(Range flat, int64_t offset) {
  return {(flat.begin - offset) / Shards::kBlock,
          (flat.end - offset + Shards::kBlock - 1) / Shards::kBlock};
}

}  // namespace

double GradientNorm(const std::vector<Parameter*>& parameters) {
  std::map<std::string, const Parameter*> by_name;
  for (const Parameter* parameter : parameters) {
    if (!parameter->trainable) continue;
    EQUIPOISE_CHECK(by_name.emplace(parameter->name, parameter).second, parameter->name);
  }
  double sum = 0;
  for (const auto& [name, parameter] : by_name) sum += SquareSum(parameter->gradient);
  return std::sqrt(sum);
}

DistributedNorm::DistributedNorm(FlatParameters& parameters, const Shards& shards,
                                 Communicator& data, Communicator& world, bool counts)
    : parameters_(parameters),
      data_(data),
      world_(world),
      sharded_(shards.ranks() > 1),
      counts_(counts) {
  EQUIPOISE_CHECK(!sharded_ || shards.ranks() == data.size(), shards.ranks(), " shards");
  if (sharded_) ListNodes(shards);
  NameParts();
  if (!parameters.gradient().is_cpu()) gpu_squares_.emplace(RunsOnGpu());
}

// Of a GPU: the runs whose squares this rank sums.
std::vector<SquaredRun> DistributedNorm::RunsOnGpu() const {
  std::vector<SquaredRun> runs;
  for (const OwnRun& run : mine_) {
    const int64_t begin = parameters_.GradientAt(run.place);
    runs.push_back({{begin, begin + run.place.flat.size()}, FirstBlock(run)});
  }
  for (size_t i = 0; i < part_of_.size() && !sharded_; ++i) {
    if (part_of_[i] < 0) continue;
    const int64_t begin = parameters_.gradient_offset(i);
    runs.push_back({{begin, begin + parameters_.parameters()[i]->numel()}, 0});
  }
  return runs;
}

int64_t DistributedNorm::FirstBlock(const OwnRun& run) const {
  return (run.place.flat.begin - parameters_.gradient_offset(run.parameter)) / Shards::kBlock;
}

// Lists the nodes of all data ranks, in the order in which each sends its own.
void DistributedNorm::ListNodes(const Shards& shards) {
  std::vector<int64_t> sent(static_cast<size_t>(shards.ranks()));
  for (size_t i = 0; i < parameters_.parameters().size(); ++i) {
    const int64_t offset = parameters_.gradient_offset(i);
    if (offset < 0) continue;
    const Range whole{offset, offset + parameters_.parameters()[i]->numel()};
    for (const Shards::Run& run : shards.RunsIn(whole)) {
      if (run.rank == data_.rank()) mine_.push_back({i, run});
      for (const TreeNode& node : NodesOf(Blocks(run.flat, offset))) {
        places_.push_back({i, node, run.rank, sent[static_cast<size_t>(run.rank)]++});
      }
    }
  }
  most_nodes_ = *std::max_element(sent.begin(), sent.end());
}

// Numbers all parts of all tensors. Data ranks hold the same parts: the first one lists them.
void DistributedNorm::NameParts() {
  const std::vector<Parameter*>& parameters = parameters_.parameters();
  std::ostringstream mine;
  const auto counts = [&](const Parameter& p) {
    return counts_ && p.trainable && p.part.owner && data_.rank() == 0;
  };
  for (const Parameter* p : parameters) {
    if (counts(*p)) mine << p->name << '\n' << p->part.begin << '\n';
  }
  std::map<std::pair<std::string, int64_t>, int64_t> parts;
  for (const std::string& text : GatherText(world_, mine.str())) {
    std::istringstream lines(text);
    for (std::string name, begin; std::getline(lines, name) && std::getline(lines, begin);) {
      EQUIPOISE_CHECK(parts.emplace(std::pair(name, std::stoll(begin)), 0).second, name, " from ",
                      begin, " has two owners");
    }
  }
  int64_t count = 0;
  const std::string* last = nullptr;
  for (auto& [part, number] : parts) {
    if (last == nullptr || *last != part.first) part_ends_.push_back(count);
    last = &part.first;
    number = count++;
    part_ends_.back() = count;
  }
  for (const Parameter* p : parameters) {
    part_of_.push_back(counts(*p) ? parts.at({p->name, p->part.begin}) : -1);
  }
}

std::vector<double> DistributedNorm::SquaresOfWhole() {
  const std::vector<Parameter*>& parameters = parameters_.parameters();
  std::vector<double> squares(parameters.size());
  std::vector<TreeSum> on_gpu;
  if (gpu_squares_) on_gpu = gpu_squares_->Sums(parameters_.gradient());
  size_t run = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (part_of_[i] < 0) continue;
    squares[i] = gpu_squares_ ? on_gpu[run++].Total()
                              : SquareSum(parameters_.gradient().narrow(
                                    0, parameters_.gradient_offset(i), parameters[i]->numel()));
  }
  return squares;
}

// The sum of each of `mine_`.
std::vector<TreeSum> DistributedNorm::SumsOfRuns() {
  if (gpu_squares_) return gpu_squares_->Sums(parameters_.gradient());
  std::vector<TreeSum> sums(mine_.size());
  for (size_t i = 0; i < mine_.size(); ++i) {
    AddSquares(parameters_.GradientOf(mine_[i].place), FirstBlock(mine_[i]), sums[i]);
  }
  return sums;
}

std::vector<double> DistributedNorm::SquaresOfShards() {
  at::Tensor values = at::zeros({most_nodes_}, at::kDouble);
  double* next = values.mutable_data_ptr<double>();
  for (const TreeSum& sum : SumsOfRuns()) {
    for (const TreeNode& node : sum.nodes()) *next++ = node.value;
  }
  at::Tensor all = at::empty({most_nodes_ * data_.size()}, at::kDouble);
  data_.AllGather(all, values).Wait();
  const double* value = all.const_data_ptr<double>();
  std::vector<TreeSum> sums(parameters_.parameters().size());
  for (const Place& place : places_) {
    TreeNode node = place.node;
    node.value = value[place.rank * most_nodes_ + place.place];
    sums[place.parameter].Add(node);
  }
  std::vector<double> squares;
  squares.reserve(sums.size());
  for (const TreeSum& sum : sums) squares.push_back(sum.Total());
  return squares;
}

double DistributedNorm::Compute() {
  const std::vector<double> squares = sharded_ ? SquaresOfShards() : SquaresOfWhole();
  at::Tensor table = at::zeros({part_ends_.empty() ? 0 : part_ends_.back()}, at::kDouble);
  double* parts = table.mutable_data_ptr<double>();
  for (size_t i = 0; i < squares.size(); ++i) {
    if (part_of_[i] >= 0) parts[part_of_[i]] = squares[i];
  }
  // Each part has one owner: only zeros are added to its number.
  world_.AllReduce(table, ReduceOp::kSum).Wait();
  double sum = 0;
  int64_t part = 0;
  for (const int64_t end : part_ends_) {
    double tensor = 0;
    for (; part < end; ++part) tensor += parts[part];
    sum += tensor;
  }
  return std::sqrt(sum);
}

double ClipFactor(double norm, double max_norm) {
  if (max_norm == 0) return 1.0;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace equipoise
