#include "trainer/common/agreement.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "configs/base/error.h"
#include "parallel/comm/values.h"
#include "trainer/common/collective_error.h"

namespace equipoise {
namespace {

using Clock = std::chrono::steady_clock;

// How long a rank works between two meetings: far below any deadline, far above what one costs.
constexpr std::chrono::milliseconds kMeetEvery{100};

struct Failure {
  std::string message;
  bool of_run = false;  // it says nothing of the data: no memory, a RunError
};

// What `work` throws; nullopt when it throws nothing.
std::optional<Failure> FailureOf(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const RunError& error) {
    return Failure{error.what(), true};
  } catch (const std::bad_alloc&) {
    return Failure{"this machine has no memory left", true};
  } catch (const c10::OutOfMemoryError& error) {
    return Failure{error.what_without_backtrace(), true};
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    return Failure{message, message.find("DefaultCPUAllocator") != std::string::npos};
  } catch (const std::exception& error) {
    return Failure{error.what()};
  }
}

// The failure of a rank, on all ranks.
Failure BroadcastFailure(Communicator& world, const Failure& mine, int rank) {
  const std::string text = BroadcastText(world, (mine.of_run ? "r" : "d") + mine.message, rank);
  return {text.substr(1), text[0] == 'r'};
}

// That of the lowest rank that failed, on all ranks.
std::optional<Failure> AgreeOnFailure(Communicator& world, const std::function<void()>& work) {
  const std::optional<Failure> mine = FailureOf(work);
  const int64_t failed = mine ? world.rank() : world.size();
  const auto rank = static_cast<int>(AllReduceValue(world, failed, ReduceOp::kMin));
  if (rank == world.size()) return std::nullopt;
  return BroadcastFailure(world, mine.value_or(Failure()), rank);
}

// What a failure says of the data; throws one that says nothing of it.
std::optional<std::string> MessageOf(const std::optional<Failure>& failure) {
  if (!failure) return std::nullopt;
  if (failure->of_run) throw CollectiveRunError(failure->message);
  return failure->message;
}

}  // namespace

void AgreeOrThrowRunError(Communicator& world, const std::function<void()>& work) {
  if (const auto failure = AgreeOnFailure(world, work)) throw CollectiveRunError(failure->message);
}

std::optional<std::string> AgreeOnDataError(Communicator& world,
                                            const std::function<void()>& work) {
  return MessageOf(AgreeOnFailure(world, work));
}

void AgreeOrThrowDataError(Communicator& world, const std::function<void()>& work) {
  if (const auto error = AgreeOnDataError(world, work)) throw DataError(*error);
}

std::optional<std::string> AgreeOnItems(Communicator& world, int64_t count, const ItemWork& work) {
  auto met = Clock::now();
  const auto alive = [&] {
    if (Clock::now() - met < kMeetEvery) return;
    AnyRank(world, /*mine=*/true);
    met = Clock::now();
  };
  std::optional<Failure> mine;
  int64_t failed = count;
  for (int64_t item = world.rank(); item < count && !mine; item += world.size()) {
    // What the group throws in `alive` it throws at the next meeting again.
    mine = FailureOf([&] {
      work(item, alive);
      alive();
    });
    if (mine) failed = item;
  }
  while (AnyRank(world, /*mine=*/false)) continue;
  failed = AllReduceValue(world, failed, ReduceOp::kMin);
  if (failed == count) return std::nullopt;
  const auto rank = static_cast<int>(failed % world.size());
  return MessageOf(BroadcastFailure(world, mine.value_or(Failure()), rank));
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
