#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <string>

namespace equipoise::testing {

// Devices and streams of the stand-in of GPUs (gpu_stand_in.cc), as LibTorch's guards see them. A
// thread has a current GPU, and on each GPU a current stream.

c10::DeviceIndex& CurrentGpu();
// CUDA's handle of a stream; null for the default one.
void* HandleOf(const c10::Stream& stream);
void* CurrentHandle(int gpu);
// The host waits for all that a stream holds.
void WaitOnHost(int gpu, void* stream, const std::string& operation);
// How often it had to, so far.
int64_t HostWaits();

}  // namespace equipoise::testing
