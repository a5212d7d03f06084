#include "tests/device/late_copies.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace equipoise::testing {
namespace {

struct Late {
  at::Tensor host, numbers;
  bool to_host;
  bool overwritten = false;  // by the GPU, behind this copy from the host
};

struct Queue {
  int64_t given = 0;
  std::deque<Late> waiting;
};

std::mutex mutex;

std::map<int, Queue>& Queues() {
  // Tensors of the host are freed until the very end.
  static auto* queues = std::make_unique<std::map<int, Queue>>().release();
  return *queues;
}

bool Same(const at::Tensor& a, const at::Tensor& b) {
  const auto begin = [](const at::Tensor& t) {
    return static_cast<const char*>(t.const_data_ptr());
  };
  if (begin(a) == begin(b) && a.nbytes() == b.nbytes()) return true;
  const bool apart = begin(a) + a.nbytes() <= begin(b) || begin(b) + b.nbytes() <= begin(a);
  TORCH_CHECK(apart || !a.is_contiguous() || !b.is_contiguous(),
              "late copies that overlap in part");
  return false;
}

void Add(int gpu, Late late) {
  const std::lock_guard lock(mutex);
  Queue& queue = Queues()[gpu];
  ++queue.given;
  queue.waiting.push_back(std::move(late));
}

}  // namespace

void CopyLate(int gpu, const at::Tensor& gpu_numbers, at::Tensor host) {
  TORCH_CHECK(host.is_contiguous(), "a late copy to memory with holes");
  const at::AutoDispatchBelowADInplaceOrView guard;
  Late late{host, gpu_numbers.to(host.scalar_type()).clone().contiguous(), /*to_host=*/true};
  {
    const std::lock_guard lock(mutex);
    for (Late& each : Queues()[gpu].waiting)
      each.overwritten = each.overwritten || (!each.to_host && Same(each.host, host));
  }
  std::memset(host.mutable_data_ptr(), 0xFF, host.nbytes());
  Add(gpu, std::move(late));
}

at::Tensor CopiedFromHost(int gpu, const at::Tensor& host) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor numbers;
  {
    const std::lock_guard lock(mutex);
    for (const Late& each : Queues()[gpu].waiting)
      if (each.to_host && Same(each.host, host)) numbers = each.numbers.view(host.sizes());
  }
  if (!numbers.defined()) numbers = host.contiguous().clone();
  Add(gpu, {host, numbers, /*to_host=*/false});
  return numbers;
}

int64_t LateCopies(int gpu) {
  const std::lock_guard lock(mutex);
  return Queues()[gpu].given;
}

void Arrived(int gpu, int64_t count) {
  const std::lock_guard lock(mutex);
  Queue& queue = Queues()[gpu];
  const at::AutoDispatchBelowADInplaceOrView guard;
  while (queue.given - static_cast<int64_t>(queue.waiting.size()) < count) {
    const Late late = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    if (late.to_host) {
      std::memcpy(late.host.mutable_data_ptr(), late.numbers.const_data_ptr(), late.host.nbytes());
      continue;
    }
    if (late.overwritten) continue;
    const at::Tensor now = late.host.contiguous();
    TORCH_CHECK(std::memcmp(now.const_data_ptr(), late.numbers.const_data_ptr(), now.nbytes()) == 0,
                "memory of the host was written before it had been copied to the GPU");
  }
}

}  // namespace equipoise::testing
