// The stand-in is as strict as it says, and the device helpers do on it what they say.
#include "tests/device/gpu_stand_in.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>

#include "parallel/device.h"

namespace equipoise {
namespace {

using testing::CountsOfStandIn;

const at::Device kGpu(at::kCUDA, 0), kOther(at::kCUDA, 1);

TEST_CASE("numbers come back from the stand-in, in any layout", "[device]") {
  const at::Tensor x = at::arange(24, at::kFloat).view({2, 3, 4});
  const at::Tensor on_gpu = ToDevice(x, kGpu);
  CHECK(on_gpu.is_cuda());
  CHECK(on_gpu.cpu().equal(x));
  CHECK(on_gpu.transpose(0, 2).add(1).sum(1).cpu().equal(x.transpose(0, 2).add(1).sum(1)));
  CHECK(at::cat({on_gpu, on_gpu}, 1).mul(2.5).cpu().equal(at::cat({x, x}, 1).mul(2.5)));
  CHECK(on_gpu.sum().item<float>() == 276);
}

TEST_CASE("tensors of two devices do not meet", "[device]") {
  const at::Tensor x = at::ones({3}), a = x.to(kGpu), b = x.to(kOther);
  CHECK_THROWS(a.add(x));
  CHECK_THROWS(a.add(b));
  CHECK_THROWS(at::mm(a.view({1, 3}), x.view({3, 1})));
  CHECK_THROWS(a.view({3, 1}).index_select(0, at::zeros({1}, at::kLong)));
  CHECK(a.add(at::scalar_tensor(1.0)).cpu().equal(x.add(1)));  // as on a GPU
}

TEST_CASE("the host cannot read memory of the stand-in", "[device]") {
  const at::Tensor x = at::ones({3}, at::TensorOptions(kGpu));
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  CHECK(write(pipe_ends[1], x.const_data_ptr(), x.nbytes()) == -1);
  CHECK(errno == EFAULT);
  CHECK(write(pipe_ends[1], testing::HostAddress(x.const_data_ptr()), x.nbytes()) == 12);
  for (const int end : pipe_ends) close(end);
}

TEST_CASE("a tensor goes to a device through pinned memory, and stays where it is", "[device]") {
  const at::Tensor x = at::arange(5, at::kLong);
  CHECK(ToDevice(x, at::kCPU).is_same(x));
  CHECK_FALSE(ToDevice(at::Tensor(), kGpu).defined());
  CHECK(ToDevice(at::empty({0}), kGpu).is_cuda());
  CHECK_THROWS(x.to(kGpu, at::kLong, /*non_blocking=*/true));  // not pinned
  const at::Tensor there = ToDevice(x, kGpu);
  CHECK(ToDevice(there, kGpu).is_same(there));
  CHECK(there.cpu().equal(x));
  CHECK(ToDevice(there, kOther).device() == kOther);
}

TEST_CASE("times on a device are those of its events", "[device]") {
  DeviceClock clock(kGpu);
  CHECK(clock.runs_behind());
  const auto before = DeviceClock::Clock::now();
  clock.Start();
  const DeviceClock::Mark first = clock.Now(), second = clock.Now();
  clock.Finish();
  const auto after = DeviceClock::Clock::now();
  CHECK(before <= clock.TimeOf(first));
  CHECK(clock.TimeOf(first) <= clock.TimeOf(second));
  // Events count milliseconds in floating point.
  CHECK(clock.TimeOf(second) <= after + std::chrono::microseconds(1));
  CHECK_FALSE(DeviceClock(at::kCPU).runs_behind());
}

TEST_CASE("reads of the host are counted", "[device]") {
  const at::Tensor x = at::ones({3}, at::TensorOptions(kGpu));
  const auto before = CountsOfStandIn();
  x.add(1);
  CHECK(CountsOfStandIn().reads == before.reads);
  CHECK(CountsOfStandIn().operations > before.operations);
  x.sum().item<float>();
  x.cpu();
  CHECK(CountsOfStandIn().reads == before.reads + 2);
}

}  // namespace
}  // namespace equipoise
