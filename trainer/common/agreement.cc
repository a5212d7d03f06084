#include "trainer/common/agreement.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "configs/base/error.h"
#include "parallel/comm/values.h"
#include "trainer/common/collective_error.h"

namespace equipoise {
namespace {

// The message of the exception that `work` throws; nullopt when it throws none.
std::optional<std::string> ErrorOf(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const c10::Error& error) {
    return std::string(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return std::string(error.what());
  }
}

}  // namespace

std::optional<std::string> AgreeOnError(Communicator& world, const std::function<void()>& work) {
  const std::optional<std::string> error = ErrorOf(work);
  const int64_t failed = error ? world.rank() : world.size();
  const auto rank = static_cast<int>(AllReduceValue(world, failed, ReduceOp::kMin));
  if (rank == world.size()) return std::nullopt;
  return BroadcastText(world, error.value_or(""), rank);
}

void AgreeOrThrowRunError(Communicator& world, const std::function<void()>& work) {
  if (const auto error = AgreeOnError(world, work)) throw CollectiveRunError(*error);
}

void AgreeOrThrowDataError(Communicator& world, const std::function<void()>& work) {
  if (const auto error = AgreeOnError(world, work)) throw DataError(*error);
}

std::string BroadcastText(Communicator& world, const std::string& text, int root) {
  at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  world.Broadcast(length, root).Wait();
  at::Tensor bytes = at::empty({length.item<int64_t>()}, at::kByte);
  if (world.rank() == root) std::copy(text.begin(), text.end(), bytes.data_ptr<uint8_t>());
  world.Broadcast(bytes, root).Wait();
  const uint8_t* data = bytes.data_ptr<uint8_t>();
  return std::string(data, data + bytes.numel());
}

}  // namespace equipoise
