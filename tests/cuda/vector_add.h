#pragma once

#include <vector>

namespace equipoise {

// Devices that can run kernels; 0 without a GPU or a driver.
int CudaDevices();

// Sum of two vectors of the same size, element by element, on the first device.
// Throws std::runtime_error with CUDA's own words when a call fails.
std::vector<float> AddOnDevice(const std::vector<float>& left, const std::vector<float>& right);

}  // namespace equipoise
