#include "parallel/comm/gather_text.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

namespace equipoise {
namespace {

// The text as a tensor [size] of bytes, padded with zeros.
at::Tensor BytesOf(const std::string& text, int64_t size) {
  at::Tensor bytes = at::zeros({size}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.data_ptr(), text.data(), text.size());  // else no memory
  return bytes;
}

}  // namespace

std::vector<std::string> GatherText(Communicator& group, const std::string& text) {
  at::Tensor length = at::empty({1}, at::kLong);
  length.data_ptr<int64_t>()[0] = static_cast<int64_t>(text.size());
  at::Tensor lengths = at::empty({group.size()}, at::kLong);
  group.AllGather(lengths, length).Wait();
  const int64_t* sizes = lengths.data_ptr<int64_t>();
  const int64_t longest = *std::max_element(sizes, sizes + group.size());

  const at::Tensor bytes = BytesOf(text, longest);
  at::Tensor all = at::empty({group.size() * longest}, at::kByte);
  group.AllGather(all, bytes).Wait();
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(group.size()));
  const char* data = static_cast<const char*>(all.data_ptr());
  for (int rank = 0; rank < group.size(); ++rank) {
    texts.emplace_back(data + rank * longest, static_cast<size_t>(sizes[rank]));
  }
  return texts;
}

std::vector<std::string> CollectText(Communicator& group, const std::string& text) {
  at::Tensor length = at::empty({1}, at::kLong);
  length.data_ptr<int64_t>()[0] = static_cast<int64_t>(text.size());
  if (group.rank() > 0) {
    const at::Tensor bytes = BytesOf(text, static_cast<int64_t>(text.size()));
    group.Send(length, 0).Wait();
    group.Send(bytes, 0).Wait();
    return {};
  }
  std::vector<std::string> texts{text};
  texts.reserve(static_cast<size_t>(group.size()));
  for (int rank = 1; rank < group.size(); ++rank) {
    group.Recv(length, rank).Wait();
    at::Tensor bytes = at::empty({length.const_data_ptr<int64_t>()[0]}, at::kByte);
    group.Recv(bytes, rank).Wait();
    texts.emplace_back(static_cast<const char*>(bytes.const_data_ptr()),
                       static_cast<size_t>(bytes.numel()));
  }
  return texts;
}

}  // namespace equipoise
