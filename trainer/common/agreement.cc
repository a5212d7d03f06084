#include "trainer/common/agreement.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>

#include "configs/base/error.h"
#include "parallel/comm/values.h"
#include "trainer/common/collective_error.h"

namespace equipoise {
namespace {

using Clock = std::chrono::steady_clock;

// How long a rank works between two meetings: far below any deadline, far above what one costs.
constexpr std::chrono::milliseconds kMeetEvery{100};

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

std::optional<std::string> AgreeOnItems(Communicator& world, int64_t count, const ItemWork& work) {
  auto met = Clock::now();
  const auto alive = [&] {
    if (Clock::now() - met < kMeetEvery) return;
    AnyRank(world, /*mine=*/true);
    met = Clock::now();
  };
  std::optional<std::string> error;
  int64_t failed = count;
  for (int64_t item = world.rank(); item < count && !error; item += world.size()) {
    // What the group throws in `alive` it throws at the next meeting again.
    error = ErrorOf([&] {
      work(item, alive);
      alive();
    });
    if (error) failed = item;
  }
  while (AnyRank(world, /*mine=*/false)) continue;
  failed = AllReduceValue(world, failed, ReduceOp::kMin);
  if (failed == count) return std::nullopt;
  return BroadcastText(world, error.value_or(""), static_cast<int>(failed % world.size()));
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
