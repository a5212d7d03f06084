// Times linear + cross entropy, forward and backward, in one thread: CPU seconds (the median of
// ROUNDS after one that is not counted) and the most bytes of tensors beside input, weight and
// their gradients. One JSON line.
// usage: cross_entropy_bench ours|full fp32|bf16 ROWS VOCABULARY HIDDEN ROUNDS
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "models/ops/cross_entropy.h"
#include "parallel/parameter.h"
#include "trainer/device/memory_stats.h"

namespace equipoise {
namespace {

struct Problem {
  at::Tensor x, ids;
  Parameter weight;
};

double OurLoss(Problem& problem) {
  problem.weight.gradient.zero_();
  const at::Tensor loss =
      ops::LinearCrossEntropy(problem.x, {problem.ids, {}, 1.0}, problem.weight, false);
  loss.backward();
  return loss.item<double>();
}

// All logits at once, in ATen's autograd.
double FullLoss(Problem& problem) {
  const at::Tensor weight = problem.weight.value.detach().requires_grad_();
  const at::Tensor loss = at::cross_entropy_loss(at::linear(problem.x, weight).to(at::kFloat),
                                                 problem.ids, {}, at::Reduction::Sum);
  loss.backward();
  return loss.item<double>();
}

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

int Run(const std::vector<std::string>& arguments) {
  const bool ours = arguments[0] == "ours";
  const at::ScalarType dtype = arguments[1] == "bf16" ? at::kBFloat16 : at::kFloat;
  const int64_t rows = std::stoll(arguments[2]), vocabulary = std::stoll(arguments[3]),
                hidden = std::stoll(arguments[4]), rounds = std::stoll(arguments[5]);
  CountCpuMemory();
  at::set_num_threads(1);
  at::manual_seed(0);  // both methods are to give the same loss
  Problem problem;
  problem.weight.name = "weight";
  problem.weight.shape = {vocabulary, hidden};
  FlatParameters flat({&problem.weight}, dtype);
  problem.weight.master.normal_(0, 0.02);
  flat.UpdateCompute();
  flat.ZeroGradient();
  problem.ids = at::arange(rows, at::kLong).mul_(7919).remainder_(vocabulary);
  problem.x = at::randn({rows, hidden}).to(dtype).requires_grad_();
  const int64_t before = GetCpuMemory().current_bytes;
  std::vector<double> seconds;
  double loss = 0;
  for (int64_t round = 0; round <= rounds; ++round) {
    problem.x.mutable_grad().reset();
    const double start = CpuSeconds();
    loss = ours ? OurLoss(problem) : FullLoss(problem);
    if (round > 0) seconds.push_back(CpuSeconds() - start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  std::printf("{\"seconds\": %.6f, \"bytes\": %lld, \"loss\": %.9g}\n",
              seconds[static_cast<size_t>(rounds / 2)],
              static_cast<long long>(GetCpuMemory().peak_bytes - before), loss);
  return 0;
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr,
                 "usage: cross_entropy_bench ours|full fp32|bf16 ROWS VOCABULARY HIDDEN ROUNDS\n");
    return 2;
  }
  return equipoise::Run({argv + 1, argv + argc});
}
