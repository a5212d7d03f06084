#include "parallel/comm/staged_communicator.h"

#include <ATen/ops/from_blob.h>

#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace equipoise {

class StagedCommunicator::Pool : public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(std::shared_ptr<const CudaApi> api) : api_(std::move(api)) {}
  ~Pool() {
    for (const auto& [bytes, data] : free_) api_->host_free(data);
  }

  // A tensor of the same shape in pinned memory, which returns to the pool when it is freed.
  at::Tensor Like(const at::Tensor& tensor) {
    const size_t bytes = tensor.nbytes();
    void* data = Take(bytes);
    const auto give = [pool = shared_from_this(), bytes](void* memory) {
      std::lock_guard lock(pool->mutex_);
      pool->free_.emplace(bytes, memory);
    };
    return at::from_blob(data, tensor.sizes(), give,
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
  void* Take(size_t bytes) {
    {
      std::lock_guard lock(mutex_);
      if (const auto found = free_.find(bytes); found != free_.end()) {
        void* data = found->second;
        free_.erase(found);
        return data;
      }
    }
    void* data = nullptr;
    api_->Check(api_->host_alloc(&data, bytes, 0), "cudaHostAlloc");
    return data;
  }

  std::shared_ptr<const CudaApi> api_;
  std::mutex mutex_;  // the communication thread returns buffers
  std::multimap<size_t, void*> free_;
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
