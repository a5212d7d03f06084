#include "parallel/zero/kernels/optimizer_kernels.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "parallel/kernels/launchers.h"
#include "parallel/shards.h"
#include "parallel/zero/kernels/optimizer_image.h"
#include "parallel/zero/kernels/optimizer_kernel_list.h"

namespace equipoise::kernels {
EQUIPOISE_OPTIMIZER_KERNELS(EQUIPOISE_KERNEL_NAME)
}  // namespace equipoise::kernels

namespace equipoise {
namespace {

using kernels::AdamWChunk;
using kernels::AdamWRow;
using kernels::Bf16;
using kernels::Data;
using kernels::MutableData;
using kernels::OnType;
using kernels::Packed;
using kernels::SquareNode;
using kernels::SquareNodeRow;

static_assert(SquareNodeRow::kBlock == Shards::kBlock);

// The operator's arguments.
struct AdamWCall {
  at::Tensor chunks, weight;
  std::optional<at::Tensor> remainder;
  at::Tensor gradient, exp_avg, exp_avg_sq;
  c10::ArrayRef<double> lr, weight_decay, betas;
  double eps, clip;
  int64_t step, random;
};

void Check(const AdamWCall& call) {
  EQUIPOISE_CHECK(call.chunks.scalar_type() == at::kLong && call.chunks.dim() == 2 &&
                  call.chunks.size(1) * sizeof(int64_t) == sizeof(AdamWChunk));
  EQUIPOISE_CHECK(call.gradient.scalar_type() == at::kFloat);
  EQUIPOISE_CHECK(call.exp_avg.scalar_type() == call.exp_avg_sq.scalar_type());
  EQUIPOISE_CHECK(!call.remainder || call.weight.scalar_type() == at::kBFloat16);
  EQUIPOISE_CHECK(!call.remainder || call.remainder->scalar_type() == at::kShort);
  EQUIPOISE_CHECK(call.lr.size() == call.weight_decay.size() && call.betas.size() == 2);
  for (const at::Tensor& each :
       {call.chunks, call.weight, call.gradient, call.exp_avg, call.exp_avg_sq})
    EQUIPOISE_CHECK(each.is_contiguous() && each.device() == call.weight.device());
}

template <class Weight, class Moment, bool kHasMaster, class Launcher>
void LaunchAdamW(const Launcher& launch, const AdamWCall& call) {
  AdamWRow<Weight, Moment, kHasMaster> row = {};
  EQUIPOISE_CHECK(call.lr.size() <= row.kMostGroups, call.lr.size(), " groups");
  row.Begin({call.lr.data(), call.weight_decay.data(), call.lr.size(), call.betas[0], call.betas[1],
             call.eps, call.clip, call.step});
  row.chunks = Data<AdamWChunk>(call.chunks);
  row.weight = MutableData<Weight>(call.weight);
  row.remainder = call.remainder ? MutableData<int16_t>(*call.remainder) : nullptr;
  row.gradient = Data<float>(call.gradient);
  row.average = MutableData<Moment>(call.exp_avg);
  row.square = MutableData<Moment>(call.exp_avg_sq);
  row.random = static_cast<uint64_t>(call.random);
  // Chunks begin at multiples of Shards::kBlock elements.
  row.packed = Packed(Shards::kBlock, {call.weight, call.gradient, call.exp_avg, call.exp_avg_sq,
                                       call.remainder.value_or(call.weight)});
  launch(row, call.chunks.size(0));
}

template <class Launcher>
void AdamWOn(const Launcher& launch, const AdamWCall& call) {
  Check(call);
  OnType(call.weight, [&](auto weight) {
    OnType(call.exp_avg, [&](auto moment) {
      using Weight = decltype(weight);
      using Moment = decltype(moment);
      if constexpr (std::is_same_v<Weight, Bf16>) {
        if (!call.remainder) return LaunchAdamW<Weight, Moment, false>(launch, call);
      }
      LaunchAdamW<Weight, Moment, true>(launch, call);
    });
  });
}

template <class Launcher>
at::Tensor SquareNodesOn(const Launcher& launch, const at::Tensor& nodes, const at::Tensor& flat) {
  EQUIPOISE_CHECK(nodes.scalar_type() == at::kLong && nodes.dim() == 2 && nodes.is_contiguous() &&
                  nodes.size(1) * sizeof(int64_t) == sizeof(SquareNode));
  EQUIPOISE_CHECK(flat.scalar_type() == at::kFloat && flat.is_contiguous());
  at::Tensor sums = at::empty({nodes.size(0)}, flat.options().dtype(at::kDouble));
  launch(SquareNodeRow{Data<SquareNode>(nodes), Data<float>(flat), MutableData<double>(sums)},
         nodes.size(0));
  return sums;
}

template <class Launcher>
void Register(torch::Library& library, const Launcher& launch) {
  library.impl("adamw_", [launch](const at::Tensor& chunks, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& remainder,
                                  const at::Tensor& gradient, const at::Tensor& exp_avg,
                                  const at::Tensor& exp_avg_sq, c10::ArrayRef<double> lr,
                                  c10::ArrayRef<double> weight_decay, c10::ArrayRef<double> betas,
                                  double eps, double clip, int64_t step, int64_t random) {
    AdamWOn(launch, {chunks, weight, remainder, gradient, exp_avg, exp_avg_sq, lr, weight_decay,
                     betas, eps, clip, step, random});
  });
  library.impl("square_nodes", [launch](const at::Tensor& nodes, const at::Tensor& flat) {
    return SquareNodesOn(launch, nodes, flat);
  });
}

TORCH_LIBRARY_FRAGMENT(equipoise, library) {
  library.def(
      "adamw_(Tensor chunks, Tensor(a!) weight, Tensor(b!)? remainder, Tensor gradient, "
      "Tensor(c!) exp_avg, Tensor(d!) exp_avg_sq, float[] lr, float[] weight_decay, "
      "float[] betas, float eps, float clip, int step, int random) -> ()");
  library.def("square_nodes(Tensor nodes, Tensor flat) -> Tensor");
}

TORCH_LIBRARY_IMPL(equipoise, CPU, library) { Register(library, kernels::HostLauncher()); }

}  // namespace

std::unique_ptr<KernelImage> LoadOptimizerKernels() {
  const std::vector<std::string> names = {EQUIPOISE_OPTIMIZER_KERNELS(EQUIPOISE_KERNEL_TEXT)};
  return std::make_unique<KernelImage>(OptimizerImage(), names);
}

void UseOptimizerKernels(std::unique_ptr<KernelImage> image) {
  // Never destroyed, as operations may run until the very end.
  auto* library = std::make_unique<torch::Library>(torch::Library::IMPL, "equipoise",
                                                   c10::DispatchKey::CUDA, __FILE__, __LINE__)
                      .release();
  Register(*library, kernels::ImageLauncher{std::move(image)});
}

}  // namespace equipoise
