#include "trainer/device/nvidia_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "configs/base/error.h"

namespace equipoise {
namespace {

[[noreturn]] void Refuse(const std::string& why) {
  throw ConfigError(
      fmt::format("train.device: this machine has no usable GPU ({}); set it to cpu or auto", why));
}

}  // namespace

NvidiaDriver::NvidiaDriver() : handle_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}

template <class Signature, class... Arguments>
int NvidiaDriver::Call(const char* symbol, Arguments... arguments) const {
  auto* function = reinterpret_cast<Signature*>(dlsym(handle_, symbol));
  if (function == nullptr) Refuse(fmt::format("NVIDIA's driver has no {}", symbol));
  return function(arguments...);
}

int NvidiaDriver::CountGpus() const {
  if (!found()) Refuse("NVIDIA's driver, libcuda.so.1, is not there");
  int count = 0;
  const int error = Call<int(unsigned)>("cuInit", 0U);
  if (error != 0) Refuse(fmt::format("NVIDIA's driver does not start, error {}", error));
  if (Call<int(int*)>("cuDeviceGetCount", &count) != 0 || count == 0) Refuse("none found");
  return count;
}

std::string NvidiaDriver::NameOf(int index) const {
  std::array<char, 256> name = {};
  Call<int(char*, int, int)>("cuDeviceGetName", name.data(), static_cast<int>(name.size() - 1),
                             index);
  return name.data();
}

int64_t NvidiaDriver::MemoryOf(int index) const {
  size_t bytes = 0;
  Call<int(size_t*, int)>("cuDeviceTotalMem_v2", &bytes, index);
  return static_cast<int64_t>(bytes);
}

int NvidiaDriver::MajorCapability(int index) const {
  int major = 0;
  Call<int(int*, int, int)>("cuDeviceGetAttribute", &major, kMajorCapability, index);
  return major;
}

}  // namespace equipoise
