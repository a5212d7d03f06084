// The stand-in is as strict as it says, and the device helpers do on it what they say.
#include "tests/device/gpu_stand_in.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/device.h"
#include "parallel/host_copies.h"
#include "parallel/streams.h"

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
}

TEST_CASE("scalars of the CPU are for element-wise operations alone", "[device]") {
  const at::Tensor x = at::arange(3, at::kFloat), there = x.to(kGpu);
  CHECK(there.add(at::scalar_tensor(1.0)).cpu().equal(x.add(1)));  // as on a GPU
  CHECK(there.mul(at::scalar_tensor(2.0)).cpu().equal(x.mul(2)));
  CHECK_THROWS(at::index_select(there, 0, at::zeros({}, at::kLong)));
  CHECK_THROWS(there.gather(0, at::zeros({}, at::kLong)));
}

TEST_CASE("a copy to the host that nobody waits for is refused, or not there yet", "[device]") {
  const at::Tensor there = at::ones({3}, at::TensorOptions(kGpu));
  at::Tensor pageable = at::empty({3});
  CHECK_THROWS(pageable.copy_(there, /*non_blocking=*/true));
  CHECK_NOTHROW(pageable.copy_(there));
  // LibTorch takes pinned memory for this one.
  const at::Tensor pinned = there.to(at::kCPU, at::kFloat, /*non_blocking=*/true);
  CHECK(pinned.isnan().all().item<bool>());
  Synchronize(kGpu);
  CHECK(pinned.equal(pageable));
}

TEST_CASE("a copy to pinned memory is done when the host waits for it", "[device]") {
  const at::Tensor there = at::ones({3}, at::TensorOptions(kGpu));
  const at::Tensor first = at::zeros({3}).pin_memory(), second = at::zeros({3}).pin_memory();
  CopyToHost one(there, first);
  there.fill_(2);
  CopyToHost two(there, second);
  CHECK(first.isnan().all().item<bool>());
  one.Wait();
  CHECK(first.eq(1).all().item<bool>());
  CHECK(second.isnan().all().item<bool>());
  two.Wait();
  CHECK(second.eq(2).all().item<bool>());
  two.Wait();  // nothing is under way
}

TEST_CASE("pinned memory stays as it is until it has been copied", "[device]") {
  at::Tensor there = at::zeros({3}, at::TensorOptions(kGpu)), host = at::ones({3}).pin_memory();
  there.copy_(host, /*non_blocking=*/true);
  Synchronize(kGpu);
  host.fill_(2);
  there.copy_(host, /*non_blocking=*/true);
  host.fill_(3);  // too early
  CHECK_THROWS(Synchronize(kGpu));
}

// Attention of one head over segments of 3 and 2 rows.
struct FlashCase {
  at::Tensor q, k, v, ends, y, lse, seed, unused;

  FlashCase() {
    const auto draw = [] { return at::randn({5, 1, 8}).to(at::kBFloat16).to(kGpu); };
    q = draw(), k = draw(), v = draw();
    ends = at::tensor({0, 3, 5}, at::kInt).to(kGpu);
    at::Tensor debug;
    std::tie(y, lse, seed, unused, debug) =
        at::_flash_attention_forward(q, k, v, ends, ends, 3, 3, 0.0, /*is_causal=*/true, false);
  }
  at::Tensor GradientOfQ(const at::Tensor& used_lse, const at::Tensor& used_y) const {
    return std::get<0>(at::_flash_attention_backward(at::ones_like(y), q, k, v, used_y, used_lse,
                                                     ends, ends, 3, 3, 0.0, true, seed, unused))
        .cpu();
  }
};

TEST_CASE("flash attention gives the state that its backward needs", "[device]") {
  const FlashCase flash;
  const at::Tensor q = flash.q.cpu().to(at::kFloat), k = flash.k.cpu().to(at::kFloat);
  // The second row of the second segment sees both of its keys.
  const at::Tensor scores = at::mm(q.select(1, 0).narrow(0, 4, 1), k.select(1, 0).slice(0, 3).t());
  CHECK(flash.lse.sizes() == at::IntArrayRef({1, 5}));
  CHECK(flash.lse.cpu()[0][4].item<float>() ==
        Approx((scores / std::sqrt(8.0)).logsumexp(-1).item<float>()).epsilon(1e-5));
  CHECK(flash.seed.scalar_type() == at::kUInt64);
  const at::Tensor right = flash.GradientOfQ(flash.lse, flash.y);
  CHECK_FALSE(flash.GradientOfQ(flash.lse + 1, flash.y).equal(right));
  CHECK_FALSE(flash.GradientOfQ(flash.lse, flash.y + 1).equal(right));
}

// What is done on "default" and on other streams, which are numbered as they come.
class Hears : public testing::MemoryObserver {
 public:
  Hears() { testing::Observe(this); }
  ~Hears() override { testing::Observe(nullptr); }
  std::vector<std::string> heard;

  void Used(int gpu, void* stream, const std::string& operation,
            const std::vector<testing::MemoryUse>& uses) override {
    std::string text = operation + " on " + std::to_string(gpu) + Name(stream) + ":";
    for (const auto& [begin, end, write] : uses) {
      text += (write ? " w" : " r") + std::to_string(end - begin);
    }
    heard.push_back(text);
  }
  void Taken(int, void* stream, const testing::MemoryUse& block) override {
    heard.push_back("take " + Size(block) + Name(stream));
  }
  void Freed(int, void* stream, const testing::MemoryUse& block,
             const std::vector<void*>& others) override {
    heard.push_back("free " + Size(block) + Name(stream));
    for (void* other : others) heard.back() += " behind" + Name(other);
  }
  void Recorded(int, void* stream, const void*) override {
    heard.push_back("record" + Name(stream));
  }
  void StreamWaited(int, void* stream, const void*) override {
    heard.push_back("wait of" + Name(stream));
  }
  void HostWaitedFor(int, const void*) override { heard.push_back("wait for an event"); }
  void HostWaited(int, void* stream, const std::string& operation) override {
    heard.push_back("wait for " + operation + Name(stream));
  }

 private:
  static std::string Size(const testing::MemoryUse& block) {
    return std::to_string(block.end - block.begin);
  }
  std::string Name(void* stream) {
    if (stream == nullptr) return "";
    return " beside" + std::to_string(names_.try_emplace(stream, names_.size() + 1).first->second);
  }
  std::map<void*, size_t> names_;
};

TEST_CASE("who observes the stand-in hears which memory is used", "[device]") {
  const at::Tensor x = at::ones({3, 2}, at::TensorOptions(kOther));
  const Hears hears;
  x.select(1, 0).mul_(2);
  x.sum().item<float>();
  testing::Observe(nullptr);
  CHECK(hears.heard == std::vector<std::string>{"aten::mul.out on 1: r20 w20", "take 4",
                                                "aten::sum.IntList_out on 1: r24 w4",
                                                "aten::_local_scalar_dense on 1: r4",
                                                "wait for aten::_local_scalar_dense", "free 4"});
}

TEST_CASE("who observes the stand-in hears on which stream", "[device]") {
  at::Tensor x = at::ones({3}, at::TensorOptions(kOther)), y;
  const c10::Stream beside = *StreamBeside(kOther);
  CHECK(ComputeStreamHandle(kOther) == nullptr);
  Hears hears;
  StreamMark::Here(kOther).HoldUp(beside);
  StreamMark made;
  {
    const c10::StreamGuard on(beside);
    CHECK(ComputeStreamHandle(kOther) != nullptr);
    UseOnStream(x);
    y = x * 2;
    made = StreamMark::Here(kOther);
  }
  made.WaitOnStream();
  UseOnStream(y);
  x.add_(y);
  y.reset();
  x.reset();
  made.Wait();
  CHECK(hears.heard ==
        std::vector<std::string>{"record", "wait of beside1", "take 12 beside1",
                                 "aten::mul.out on 1 beside1: r12 w12", "record beside1", "wait of",
                                 "aten::add.out on 1: r12 r12 w12", "free 12 beside1 behind",
                                 "free 12 behind beside1", "wait for an event"});
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

TEST_CASE("a clock starts, and a step ends, beside what other streams do", "[device]") {
  StreamBeside(kGpu);
  const Hears hears;
  WaitForComputeStream(at::kCPU);
  WaitForComputeStream(kGpu);
  DeviceClock(kGpu).Start();
  testing::Observe(nullptr);
  CHECK(hears.heard == std::vector<std::string>{"wait for a synchronisation",
                                                "wait for a synchronisation", "record"});
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
  CHECK(CountsOfStandIn().waits == before.waits + 2);
  ToDevice(at::ones({3}), kGpu);  // pinned
  CHECK(CountsOfStandIn().waits == before.waits + 2);
  at::ones({3}).to(kGpu);
  CHECK(CountsOfStandIn().waits == before.waits + 3);
}

}  // namespace
}  // namespace equipoise
