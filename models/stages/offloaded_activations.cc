#include "models/stages/offloaded_activations.h"

#include <ATen/ops/empty.h>
#include <c10/core/TensorOptions.h>

#include <set>
#include <utility>

#include "configs/base/error.h"
#include "parallel/host_copies.h"
#include "parallel/streams.h"

namespace equipoise {
namespace {

// Statistics of norms and the like are not worth a copy.
constexpr size_t kLeastBytes = 1024;

// All bytes of a storage, as a tensor that shares it.
at::Tensor BytesOf(const c10::Storage& storage) {
  const c10::DispatchKey key = c10::computeDispatchKey(at::kByte, at::kStrided, storage.device());
  at::Tensor bytes = at::detail::make_tensor<at::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous(static_cast<int64_t>(storage.nbytes()));
  return bytes;
}

}  // namespace

OffloadedActivations::OffloadedActivations(const std::vector<at::Tensor>& tensors,
                                           const std::vector<at::Tensor>& others) {
  std::set<const c10::StorageImpl*> seen;
  for (const at::Tensor& other : others) seen.insert(other.storage().unsafeGetStorageImpl());
  for (const at::Tensor& tensor : tensors) {
    const c10::Storage& storage = tensor.storage();
    // Memory that a storage does not own cannot be freed.
    const bool owns = storage.allocator() != nullptr && storage.nbytes() >= kLeastBytes;
    if (!owns || !seen.insert(storage.unsafeGetStorageImpl()).second) continue;
    copies_.push_back({storage, {}});
    bytes_ += static_cast<int64_t>(storage.nbytes());
  }
  if (copies_.empty()) return;
  device_ = copies_.front().storage.device();
  const bool on_gpu = !device_.is_cpu();
  const CopyStream stream(device_, CopyDirection::kToHost);
  stream.Run([&] {
    for (Copy& copy : copies_) {
      EQUIPOISE_CHECK(copy.storage.device() == device_, "activations of several devices");
      const at::Tensor bytes = BytesOf(copy.storage);
      copy.host = on_gpu ? PinnedMemory(bytes.numel(), at::kByte)
                         : at::empty(bytes.sizes(), at::TensorOptions().dtype(at::kByte));
      copy.host.copy_(bytes, /*non_blocking=*/on_gpu);
    }
  });
  there_ = stream.Mark();
}

void OffloadedActivations::Release() {
  if (released_ || returned_) return;
  released_ = true;
  there_.Wait();
  for (Copy& copy : copies_) copy.storage.set_data_ptr(c10::DataPtr(nullptr, device_));
}

void OffloadedActivations::Return() {
  if (returned_) return;
  returned_ = true;
  if (copies_.empty()) return;
  if (!released_) {
    // The copies, which nobody needs now, may still read the memory when it is freed.
    CopyStream(device_, CopyDirection::kToHost).Run([&] {
      for (const Copy& copy : copies_) UseOnStream(BytesOf(copy.storage));
    });
    copies_.clear();
    return;
  }
  for (Copy& copy : copies_)
    copy.storage.set_data_ptr(copy.storage.allocator()->allocate(copy.storage.nbytes()));
  // What had the memory before may still be computed with: the stream comes behind that.
  const CopyStream stream(device_, CopyDirection::kToDevice);
  stream.Run([&] {
    for (Copy& copy : copies_) {
      BytesOf(copy.storage).copy_(copy.host, /*non_blocking=*/!device_.is_cpu());
      copy.host.reset();
    }
  });
  copies_.clear();
  back_ = stream.Mark();
}

void OffloadedActivations::Wait() { back_.WaitOnStream(); }

}  // namespace equipoise
