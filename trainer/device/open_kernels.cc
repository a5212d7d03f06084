#include "trainer/device/open_kernels.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/ops/kernels/own_kernels.h"
#include "models/ops/matrix_product.h"
#include "parallel/comm/gather_text.h"
#include "parallel/zero/kernels/optimizer_kernels.h"
#include "trainer/device/bf16_units.h"

namespace equipoise {

std::string AttentionOn(at::Device device, const std::string& setting, bool deterministic) {
  if (setting != "auto") return setting;
  const bool hopper = device.is_cuda() && GpuIsHopperOrLater(device.index());
  return hopper && !deterministic ? "cudnn_tiles" : "flash";
}

void ChooseAttention(const std::string& setting) {
  at::Context& context = at::globalContext();
  const auto cudnn = static_cast<int64_t>(at::SDPBackend::cudnn_attention);
  const auto order = context.sDPPriorityOrder();
  std::vector<int64_t> wanted;
  for (const at::SDPBackend backend : order) wanted.push_back(static_cast<int64_t>(backend));
  const auto place = std::find(wanted.begin(), wanted.end(), cudnn);
  if (setting == "flash") {
    std::rotate(place, place + 1, wanted.end());  // last
  } else {
    std::rotate(wanted.begin(), place, place + 1);  // first
  }
  context.setSDPPriorityOrder(wanted);
}

OwnKernels LoadOwnKernels() { return {ops::LoadKernels(), LoadOptimizerKernels()}; }

void UseOwnKernels(OwnKernels kernels) {
  ops::UseKernels(std::move(kernels.of_operations));
  UseOptimizerKernels(std::move(kernels.of_optimizer));
}

void OpenKernels(const std::string& setting, at::Device device, Communicator& world) {
  ops::UseOneDnn(setting != "aten");
  if (device.is_cpu() && ops::AvoidsMkl() && !ops::ProductsAreOneDnns()) {
    spdlog::warn(
        "train.kernels: oneDNN is not installed (Debian: libdnnl2); fp32 products are LibTorch's, "
        "which take about twice as long on this CPU");
  }
  if (!device.is_cuda() || setting == "aten") return;
  OwnKernels kernels;
  std::string cause;
  try {
    kernels = LoadOwnKernels();
  } catch (const RunError& error) {
    cause = error.what();
  }
  const std::vector<std::string> causes = GatherText(world, cause);
  for (size_t rank = 0; rank < causes.size(); ++rank) {
    if (causes[rank].empty()) continue;
    throw ConfigError(fmt::format(
        "train.kernels: the program's own CUDA kernels cannot be loaded (rank {}: {}); set it to "
        "aten, which takes LibTorch's alone",
        rank, causes[rank]));
  }
  UseOwnKernels(std::move(kernels));
}

}  // namespace equipoise
