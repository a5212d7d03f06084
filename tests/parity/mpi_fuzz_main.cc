// Random modality patterns on random meshes of the ranks that mpirun has started: every step gives
// the losses, the gradients, the norms and the weights of one process. Rank 0 prints a line a cell.
// usage: mpi_fuzz CELLS SEED

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/values.h"
#include "tests/parallel/run_under_mpi.h"
#include "tests/parity/cell.h"
#include "tests/parity/random_cell.h"
#include "trainer/common/agreement.h"

namespace equipoise {
namespace {

using testing::Cell;
using testing::CellResult;
using Tensors = std::map<std::string, at::Tensor>;

// `mine` summed over the ranks, on every rank. `like`: names and shapes of the sums; of rank 0.
Tensors AllReduceForward(Communicator& world, const Tensors& mine, const Tensors& like) {
  std::ostringstream names;
  for (const auto& [name, tensor] : like) names << name << " " << tensor.numel() << "\n";
  std::istringstream lines(BroadcastText(world, names.str(), /*root=*/0));
  Tensors sums;
  std::string name;
  for (int64_t size = 0; lines >> name >> size;) {
    at::Tensor sum = at::zeros({size});
    if (const auto found = mine.find(name); found != mine.end())
      sum.copy_(found->second.reshape({-1}));
    world.AllReduce(sum, ReduceOp::kSum).Wait();
    sums[name] = sum;
  }
  for (const auto& [each, tensor] : like) sums[each] = sums[each].view(tensor.sizes());
  return sums;
}

// The first `cell.ranks()` ranks run the cell, rank 0 compares.
void Check(const Cell& cell, Communicator& world) {
  const bool runs = world.rank() < cell.ranks();
  const auto group = world.Split(runs ? 0 : 1, world.rank(), "cell");
  const CellResult mine = runs ? RunRank(cell, *group) : CellResult();
  const CellResult expected = world.rank() == 0 ? RunCell(InOneProcess(cell)) : CellResult();
  std::vector<double> losses(cell.steps + 1, 0.0);
  losses[0] = mine.loss;
  std::copy(mine.losses.begin(), mine.losses.end(), losses.begin() + 1);
  at::Tensor sums = at::from_blob(losses.data(), {cell.steps + 1}, at::kDouble);
  world.AllReduce(sums, ReduceOp::kSum).Wait();
  CellResult whole;
  whole.loss = losses[0];
  whole.losses.assign(losses.begin() + 1, losses.end());
  whole.norms = mine.norms;
  bool agree = mine.copies_agree;
  if (runs) {  // every rank clips by its own
    for (const double norm : mine.norms) {
      const double largest = AllReduceValue(*group, norm, ReduceOp::kMax);
      const double smallest = -AllReduceValue(*group, -norm, ReduceOp::kMax);
      agree = agree && largest == smallest;
    }
  }
  agree = !AnyRank(world, !agree);
  whole.gradients = AllReduceForward(world, mine.gradients, expected.gradients);
  whole.weights = AllReduceForward(world, mine.weights, expected.weights);
  if (world.rank() != 0) return;
  const testing::CellErrors errors = testing::Compare(whole, expected);
  const std::string told = ToString(cell) + ": " + ToString(errors);
  if (!agree) throw RunError(told + ": ranks have different norms or copies");
  if (!testing::WithinRounding(cell, errors, expected))
    throw RunError(told + ": not what one process gives");
  std::printf("passed: %s\n", told.c_str());
}

void RunCells(MpiEnvironment& mpi, int cells, unsigned seed) {
  const auto world = MakeWorldCommunicator(mpi, CommOptions());
  testing::Dice dice(seed);
  for (int i = 0; i < cells; ++i) {
    testing::Cell cell = RandomCell(dice, world->size());
    ThrowDelayed(cell);
    Check(cell, *world);
  }
}

int Main(int cells, unsigned seed) {
  at::set_num_threads(1);
  return RunUnderMpi([&](MpiEnvironment& mpi) { RunCells(mpi, cells, seed); });
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: mpi_fuzz CELLS SEED\n", stderr);
    return 2;
  }
  return equipoise::Main(std::stoi(argv[1]), static_cast<unsigned>(std::stoul(argv[2])));
}
