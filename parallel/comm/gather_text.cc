#include "parallel/comm/gather_text.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

namespace equipoise {

std::vector<std::string> GatherText(Communicator& group, const std::string& text) {
  at::Tensor length = at::empty({1}, at::kLong);
  length.data_ptr<int64_t>()[0] = static_cast<int64_t>(text.size());
  at::Tensor lengths = at::empty({group.size()}, at::kLong);
  group.AllGather(lengths, length).Wait();
  const int64_t* sizes = lengths.data_ptr<int64_t>();
  const int64_t longest = *std::max_element(sizes, sizes + group.size());

  at::Tensor bytes = at::zeros({longest}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
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

}  // namespace equipoise
