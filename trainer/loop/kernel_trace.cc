#include "trainer/loop/kernel_trace.h"

#include <fmt/format.h>
#include <kineto/ActivityType.h>
#include <spdlog/spdlog.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "parallel/comm/gather_text.h"
#include "parallel/device.h"
#include "trainer/common/durable_file.h"
#include "trainer/outputs/kernel_table.h"

namespace equipoise {
namespace {

using libkineto::ActivityType;
using torch::autograd::profiler::KinetoEvent;
using torch::autograd::profiler::ProfilerResult;
using Activities = std::set<torch::profiler::impl::ActivityType>;

void Warn(const std::exception& error) {
  const std::string_view text = error.what();  // LibTorch's has a stack behind the first line
  spdlog::warn("run.kernel_trace: {}; the run goes on without it", text.substr(0, text.find('\n')));
}

void StartProfiler(at::Device device) {
  namespace impl = torch::profiler::impl;
  Activities activities = {impl::ActivityType::CPU};
  if (device.is_cuda()) activities.insert(impl::ActivityType::CUDA);
  impl::ExperimentalConfig options;
  options.profile_all_threads = true;  // backward of a GPU has one of its own
  const impl::ProfilerConfig config(impl::ProfilerState::KINETO, false, false, false, false, false,
                                    options);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION});
}

bool OfStream(const KinetoEvent& event) {
  const auto type = static_cast<ActivityType>(event.activityType());
  return type == ActivityType::CONCURRENT_KERNEL || type == ActivityType::GPU_MEMCPY ||
         type == ActivityType::GPU_MEMSET;
}

bool OfThread(const KinetoEvent& event) {
  return static_cast<ActivityType>(event.activityType()) == ActivityType::CPU_OP;
}

TracedWork WorkOf(const KinetoEvent& event, int64_t lane) {
  return {event.name(), lane, static_cast<int64_t>(event.startNs()),
          static_cast<int64_t>(event.endNs())};
}

std::string TableOf(const ProfilerResult& result, int64_t steps, at::Device device) {
  std::vector<TracedWork> kernels, operators;
  for (const KinetoEvent& event : result.events()) {
    if (OfStream(event)) kernels.push_back(WorkOf(event, event.deviceResourceId()));
    if (OfThread(event))
      operators.push_back(WorkOf(event, static_cast<int64_t>(event.startThreadId())));
  }
  if (!kernels.empty()) return KernelTable(kernels, steps, KernelKind());
  if (device.is_cuda())
    spdlog::warn(
        "run.kernel_trace: LibTorch's profiler saw no CUDA kernels (may this user profile the "
        "GPU?); kernels.txt has operators");
  return KernelTable(operators, steps, OperatorKind());
}

}  // namespace

KernelTrace::KernelTrace(RunContext& context, const RunFolder& folder, int64_t done)
    : context_(context), folder_(folder) {
  const int64_t wanted = context.config.run.kernel_trace, steps = context.config.train.steps;
  if (wanted == 0 || done >= steps) return;
  first_ = std::clamp(steps - wanted + 1, done + 1, done + 3);
  last_ = std::min(first_ + wanted - 1, steps);
}

// A step that throws leaves the profiler on, which would outlive what it records.
KernelTrace::~KernelTrace() {
  if (!recording_) return;
  try {
    torch::autograd::profiler::disableProfiler();
  } catch (const std::exception& error) {
    Warn(error);
  }
}

void KernelTrace::BeforeStep(int64_t number) {
  if (number != first_) return;
  try {
    Synchronize(context_.device());
    StartProfiler(context_.device());
    recording_ = true;
  } catch (const std::exception& error) {
    Warn(error);
  }
}

void KernelTrace::AfterStep(int64_t number, bool stop) {
  if (first_ == 0 || number < first_ || (number < last_ && !stop)) return;
  const int64_t first = first_;
  first_ = last_ = 0;
  // Also of a rank whose profiler has failed: the others wait for it.
  const std::vector<std::string> tables = CollectText(context_.world(), Write(number - first + 1));
  std::string text;
  for (size_t rank = 0; rank < tables.size(); ++rank) {
    if (tables[rank].empty()) continue;
    text += fmt::format("{}rank {}, steps {} to {}\n{}", text.empty() ? "" : "\n", rank, first,
                        number, tables[rank]);
  }
  if (text.empty()) return;
  try {
    WriteFileDurably(folder_.Path("kernels.txt"), text);
    spdlog::info("kernels of steps {} to {}: {}", first, number, folder_.Path("kernels.txt"));
  } catch (const std::exception& error) {
    Warn(error);
  }
}

std::string KernelTrace::Write(int64_t steps) {
  if (!recording_) return "";
  recording_ = false;
  try {
    Synchronize(context_.device());  // work that is under way has no end to be recorded
    const std::unique_ptr<ProfilerResult> result = torch::autograd::profiler::disableProfiler();
    const std::string path = folder_.Path(fmt::format("kernels.{}.json", context_.rank()));
    std::error_code absent;
    std::filesystem::remove(path, absent);  // an older start's, for the check below
    result->save(path);
    if (!std::filesystem::exists(path))  // the profiler does not say so
      spdlog::warn("run.kernel_trace: {} cannot be written; the run goes on without it", path);
    return TableOf(*result, steps, context_.device());
  } catch (const std::exception& error) {
    Warn(error);
    return "";
  }
}

}  // namespace equipoise
