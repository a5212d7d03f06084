// Random modality patterns on random meshes of the ranks that mpirun has started: every step gives
// the loss, the gradients and the norms of one process. Rank 0 prints a line a cell.
// usage: mpi_fuzz CELLS SEED

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>

#include "configs/error.h"
#include "parallel/comm/make_communicator.h"
#include "tests/parallel/run_under_mpi.h"
#include "tests/parity/cell.h"
#include "tests/parity/random_cell.h"
#include "trainer/agreement.h"

namespace equipoise {
namespace {

using testing::Cell;
using testing::CellResult;
using Tensors = std::map<std::string, at::Tensor>;

// `mine` summed over the ranks, on every rank. `like`: names and shapes of the sums; of rank 0.
Tensors SumOverRanks(Communicator& world, const Tensors& mine, const Tensors& like) {
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

bool Near(double a, double b, double bound) { return std::abs(a - b) <= bound * std::abs(b); }

// The first `cell.ranks()` ranks run the cell, rank 0 compares.
void Check(const Cell& cell, Communicator& world) {
  const bool runs = world.rank() < cell.ranks();
  const auto group = world.Split(runs ? 0 : 1, world.rank(), "cell");
  const CellResult mine = runs ? RunRank(cell, *group) : CellResult();
  const CellResult expected = world.rank() == 0 ? RunCell(InOneProcess(cell)) : CellResult();
  at::Tensor loss = at::zeros({1}, at::kDouble);
  loss.data_ptr<double>()[0] = mine.loss;
  world.AllReduce(loss, ReduceOp::kSum).Wait();
  const Tensors gradients = SumOverRanks(world, mine.gradients, expected.gradients);
  if (world.rank() != 0) return;
  bool same = Near(loss.item<double>(), expected.loss, 1e-6) &&
              testing::WorstError(gradients, expected.gradients) <= 2e-5;
  for (size_t i = 0; i < expected.norms.size(); ++i) {
    same = same && Near(mine.norms.at(i), expected.norms[i], 1e-3);
  }
  if (!same) throw RunError(ToString(cell) + ": not what one process gives");
  std::printf("passed: %s\n", ToString(cell).c_str());
}

void RunCells(MpiEnvironment& mpi, int cells, unsigned seed) {
  const auto world = MakeWorldCommunicator(mpi, CommOptions());
  testing::Dice dice(seed);
  for (int i = 0; i < cells; ++i) Check(RandomCell(dice, world->size()), *world);
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
