#include "parallel/comm/staged_communicator.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace equipoise {
namespace {

// Eighths of a power of two, so that tensors of nearly one size have buffers of one size; pages.
size_t Rounded(size_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t step = std::max(kPage, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

}  // namespace

// Holds at most twice of what was in use at once, and gives up first what was free for longest.
class StagedCommunicator::Pool : public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(std::shared_ptr<const CudaApi> api) : api_(std::move(api)) {}
  ~Pool() {
    for (const Buffer& buffer : free_) api_->host_free(buffer.data);
  }

  // A tensor of the same shape in pinned memory, which returns to the pool when it is freed.
  at::Tensor Like(const at::Tensor& tensor) {
    const Buffer buffer = Take(Rounded(tensor.nbytes()));
    const auto give = [pool = shared_from_this(), buffer](void*) {
      std::lock_guard lock(pool->mutex_);
      pool->in_use_ -= buffer.bytes;
      pool->free_.push_back(buffer);
    };
    return at::from_blob(buffer.data, tensor.sizes(), give,
                         at::TensorOptions(at::kCPU).dtype(tensor.scalar_type()));
  }

  void Copy(const at::Tensor& to, const at::Tensor& from, int kind) const {
    api_->Check(api_->set_device(api_->device), "cudaSetDevice");
    const CudaApi::Stream stream = api_->compute_stream();
    api_->Check(api_->copy(to.data_ptr(), from.data_ptr(), to.nbytes(), kind, stream),
                "cudaMemcpyAsync");
    api_->Check(api_->stream_synchronize(stream), "cudaStreamSynchronize");
  }

 private:
  struct Buffer {
    size_t bytes;
    void* data;
  };

  Buffer Take(size_t bytes) {
    std::vector<Buffer> dropped;
    Buffer buffer{bytes, nullptr};
    {
      std::lock_guard lock(mutex_);
      if (const auto found = Smallest(bytes); found != free_.end()) {
        buffer = *found;
        free_.erase(found);
      }
      in_use_ += buffer.bytes;
      most_in_use_ = std::max(most_in_use_, in_use_);
      if (buffer.data == nullptr) dropped = DropBeyond(2 * most_in_use_);
    }
    // Outside the mutex: CUDA may wait for the device here.
    for (const Buffer& each : dropped) api_->host_free(each.data);
    if (buffer.data == nullptr) {
      api_->Check(api_->host_alloc(&buffer.data, bytes, 0), "cudaHostAlloc");
    }
    return buffer;
  }

  // The smallest free buffer that fits and is at most twice as large.
  std::vector<Buffer>::iterator Smallest(size_t bytes) {
    auto found = free_.end();
    for (auto each = free_.begin(); each != free_.end(); ++each) {
      const bool fits = each->bytes >= bytes && each->bytes <= 2 * bytes;
      if (fits && (found == free_.end() || each->bytes < found->bytes)) found = each;
    }
    return found;
  }

  // Takes from the free buffers so that all together have at most `limit` bytes.
  std::vector<Buffer> DropBeyond(size_t limit) {
    size_t bytes = in_use_;
    auto kept = free_.end();
    while (kept != free_.begin() && bytes + std::prev(kept)->bytes <= limit) {
      bytes += (--kept)->bytes;
    }
    std::vector<Buffer> dropped(free_.begin(), kept);
    free_.erase(free_.begin(), kept);
    return dropped;
  }

  std::shared_ptr<const CudaApi> api_;
  std::mutex mutex_;          // the communication thread returns buffers
  std::vector<Buffer> free_;  // in the order in which they became free
  size_t in_use_ = 0, most_in_use_ = 0;
};

namespace {

// Work that ends with a copy, on the thread that waits.
class StagedWork : public Work::State {
 public:
  StagedWork(Work work, std::function<void()> copy)
      : work_(std::move(work)), copy_(std::move(copy)) {}
  void Wait() override {
    work_.Wait();
    if (copy_) std::exchange(copy_, nullptr)();
  }
  bool Done() const override { return work_.Done(); }
  Work::Clock::time_point FinishedAt() const override { return work_.FinishedAt(); }

 private:
  Work work_;
  std::function<void()> copy_;
};

}  // namespace

StagedCommunicator::StagedCommunicator(std::unique_ptr<GroupCommunicator> cpu,
                                       std::shared_ptr<const CudaApi> api, at::DeviceType device)
    : StagedCommunicator(std::move(cpu), std::make_shared<Pool>(std::move(api)), device) {}

StagedCommunicator::StagedCommunicator(std::unique_ptr<GroupCommunicator> cpu,
                                       std::shared_ptr<Pool> pool, at::DeviceType device)
    : DeviceCommunicator(std::move(cpu), device), pool_(std::move(pool)) {}

std::unique_ptr<Communicator> StagedCommunicator::Wrap(std::unique_ptr<GroupCommunicator> part) {
  return std::unique_ptr<Communicator>(new StagedCommunicator(std::move(part), pool_, device()));
}

at::Tensor StagedCommunicator::ToHost(const at::Tensor& tensor) const {
  at::Tensor host = pool_->Like(tensor);
  pool_->Copy(host, tensor, CudaApi::kDeviceToHost);
  return host;
}

Work StagedCommunicator::Back(Work work, at::Tensor tensor, at::Tensor host) const {
  return Work(std::make_shared<StagedWork>(
      std::move(work), [pool = pool_, tensor = std::move(tensor), host = std::move(host)] {
        pool->Copy(tensor, host, CudaApi::kHostToDevice);
      }));
}

Work StagedCommunicator::DoAllReduce(at::Tensor& tensor, ReduceOp op) {
  at::Tensor host = ToHost(tensor);
  return Back(cpu().AllReduce(host, op), tensor, host);
}

Work StagedCommunicator::DoAllGather(at::Tensor& output, const at::Tensor& input) {
  at::Tensor host = pool_->Like(output);
  return Back(cpu().AllGather(host, ToHost(input)), output, host);
}

Work StagedCommunicator::DoReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  at::Tensor host = pool_->Like(output);
  return Back(cpu().ReduceScatter(host, ToHost(input), op), output, host);
}

Work StagedCommunicator::DoBroadcast(at::Tensor& tensor, int root) {
  at::Tensor host = rank() == root ? ToHost(tensor) : pool_->Like(tensor);
  return Back(cpu().Broadcast(host, root), tensor, host);
}

Work StagedCommunicator::DoSend(const at::Tensor& tensor, int peer) {
  return cpu().Send(ToHost(tensor), peer);
}

Work StagedCommunicator::DoRecv(at::Tensor& tensor, int peer) {
  at::Tensor host = pool_->Like(tensor);
  return Back(cpu().Recv(host, peer), tensor, host);
}

}  // namespace equipoise
