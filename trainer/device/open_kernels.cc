#include "trainer/device/open_kernels.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/ops/kernels/own_kernels.h"
#include "parallel/comm/gather_text.h"

namespace equipoise {

void OpenKernels(const std::string& setting, at::Device device, Communicator& world) {
  if (!device.is_cuda() || setting == "aten") return;
  std::unique_ptr<KernelImage> image;
  std::string cause;
  try {
    image = ops::LoadKernels();
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
  ops::UseKernels(std::move(image));
}

}  // namespace equipoise
