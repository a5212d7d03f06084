#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/cuda/vector_add.h"

namespace equipoise {
namespace {

__global__ void AddKernel(const float* left, const float* right, float* sum, size_t count) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = left[i] + right[i];
}

void Check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

struct DeviceFree {
  void operator()(float* memory) const { cudaFree(memory); }
};
using DeviceFloats = std::unique_ptr<float, DeviceFree>;

DeviceFloats Allocate(size_t count) {
  float* memory = nullptr;
  Check(cudaMalloc(&memory, count * sizeof(float)));
  return DeviceFloats(memory);
}

DeviceFloats ToDevice(const std::vector<float>& values) {
  DeviceFloats memory = Allocate(values.size());
  Check(cudaMemcpy(memory.get(), values.data(), values.size() * sizeof(float),
                   cudaMemcpyHostToDevice));
  return memory;
}

}  // namespace

int CudaDevices() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

std::vector<float> AddOnDevice(const std::vector<float>& left, const std::vector<float>& right) {
  constexpr unsigned kThreads = 256;
  const DeviceFloats device_left = ToDevice(left);
  const DeviceFloats device_right = ToDevice(right);
  const DeviceFloats sum = Allocate(left.size());
  const auto blocks = static_cast<unsigned>((left.size() + kThreads - 1) / kThreads);
  AddKernel<<<blocks, kThreads>>>(device_left.get(), device_right.get(), sum.get(), left.size());
  Check(cudaGetLastError());
  std::vector<float> result(left.size());
  Check(
      cudaMemcpy(result.data(), sum.get(), result.size() * sizeof(float), cudaMemcpyDeviceToHost));
  return result;
}

}  // namespace equipoise
