#include "tests/device/order_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace equipoise::testing {
namespace {

constexpr size_t kMostConflicts = 20;

// By stream: how much of its work is known to be done.
class Clock {
 public:
  uint32_t At(int stream) const {
    const auto i = static_cast<size_t>(stream);
    return i < times_.size() ? times_[i] : 0;
  }
  void Join(const Clock& other) {
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
    for (size_t i = 0; i < other.times_.size(); ++i) {
      times_[i] = std::max(times_[i], other.times_[i]);
    }
  }
  void Tick(int stream) {
    const auto i = static_cast<size_t>(stream);
    if (times_.size() <= i) times_.resize(i + 1);
    ++times_[i];
  }

 private:
  std::vector<uint32_t> times_;
};

struct Use {
  int stream = -1;  // none
  uint32_t time = 0;
  size_t step = 0;
};

// The last uses of every byte: one write, and reads since then, one for each stream.
struct Span {
  uintptr_t end = 0;
  Use write;
  std::vector<Use> reads;
};

class Replay {
 public:
  explicit Replay(const Trace& trace) : trace_(trace) {}

  void Run(size_t i, bool dropped) {
    const TraceStep& step = trace_[i];
    switch (step.what) {
      case TraceStep::What::kUse:
        return Enqueue(i);
      case TraceStep::What::kTake:
        return Take(i);
      case TraceStep::What::kFree:
        return Free(i);
      case TraceStep::What::kRecord: {
        Clock& stream = streams_[step.stream];
        stream.Join(host_);
        events_[step.events.front()] = stream;
        return;
      }
      case TraceStep::What::kStreamWait:
        if (!dropped) streams_[step.stream].Join(events_[step.events.front()]);
        return;
      case TraceStep::What::kHostWait:
        if (dropped) return;
        for (const int64_t event : step.events) host_.Join(events_[event]);
        return;
      case TraceStep::What::kSeen:
        if (!dropped) seen_.Join(events_[step.events.front()]);
        return;
      case TraceStep::What::kHostSync:
        host_.Join(streams_[step.stream]);
        return;
    }
  }
  std::vector<std::string> Found() const { return {conflicts_.begin(), conflicts_.end()}; }

 private:
  void Enqueue(size_t i) {
    const TraceStep& step = trace_[i];
    Clock& clock = streams_[step.stream];
    clock.Join(host_);
    clock.Tick(step.stream);
    const Use use{step.stream, clock.At(step.stream), i};
    for (const MemoryUse& range : step.uses) {
      range.write ? Write(range, use, clock) : Read(range, use, clock);
    }
  }

  // Memory that other streams have freed would not come from the allocator: what the stand-in has
  // taken in its place is as if this one had used it.
  void Take(size_t i) {
    const TraceStep& step = trace_[i];
    const MemoryUse& range = step.uses.front();
    const Use use{step.stream, streams_[step.stream].At(step.stream), i};
    ForEachSpan(range, [&](Span& span) {
      if (span.write.stream >= 0 && span.write.stream != step.stream) span = {span.end, use, {}};
    });
  }

  // The stream may write there from now on; another stream has to wait for it first.
  void Free(size_t i) {
    const TraceStep& step = trace_[i];
    Clock& stream = streams_[step.stream];
    stream.Tick(step.stream);
    Clock clock = stream;
    if (step.computes) clock.Join(host_);
    clock.Join(seen_);
    Write(step.uses.front(), {step.stream, stream.At(step.stream), i}, clock);
  }

  void Read(const MemoryUse& range, const Use& use, const Clock& clock) {
    ForEachSpan(range, [&](Span& span) {
      Check(span.write, use.step, clock);
      for (Use& read : span.reads) {
        if (read.stream == use.stream) {
          read = use;
          return;
        }
      }
      span.reads.push_back(use);
    });
  }

  void Write(const MemoryUse& range, const Use& use, const Clock& clock) {
    Split(range);
    for (auto at = spans_.lower_bound(range.begin); at != spans_.end() && at->first < range.end;) {
      CheckAll(at->second, use.step, clock);
      at = spans_.erase(at);
    }
    spans_[range.begin] = Span{range.end, use, {}};
  }

  void CheckAll(const Span& span, size_t step, const Clock& clock) {
    Check(span.write, step, clock);
    for (const Use& read : span.reads) Check(read, step, clock);
  }

  void Check(const Use& before, size_t step, const Clock& clock) {
    if (before.stream < 0 || before.time <= clock.At(before.stream)) return;
    if (conflicts_.size() < kMostConflicts) {
      conflicts_.insert(fmt::format("{} does not wait for {}", Place(step), Place(before.step)));
    }
  }

  std::string Place(size_t i) const {
    const TraceStep& step = trace_[i];
    return step.doing.empty() ? step.name : fmt::format("{} ({})", step.name, step.doing);
  }

  // So that spans begin and end at the ends of the range.
  void Split(const MemoryUse& range) {
    for (const uintptr_t at : {range.begin, range.end}) {
      auto next = spans_.upper_bound(at);
      if (next == spans_.begin()) continue;
      const auto span = std::prev(next);
      if (span->first == at || span->second.end <= at) continue;
      Span rest = span->second;
      span->second.end = at;
      spans_.emplace_hint(next, at, std::move(rest));
    }
  }

  template <class Visit>
  void ForEachSpan(const MemoryUse& range, const Visit& visit) {
    Split(range);
    uintptr_t at = range.begin;
    auto next = spans_.lower_bound(at);
    while (at < range.end) {
      if (next == spans_.end() || next->first > at) {  // memory that nothing has used
        const uintptr_t end = next == spans_.end() ? range.end : std::min(range.end, next->first);
        next = spans_.emplace_hint(next, at, Span{end, {}, {}});
      }
      visit(next->second);
      at = next->second.end;
      ++next;
    }
  }

  const Trace& trace_;
  std::map<int, Clock> streams_;
  std::map<int64_t, Clock> events_;
  Clock host_, seen_;
  std::map<uintptr_t, Span> spans_;  // by begin
  std::set<std::string> conflicts_;
};

}  // namespace

std::string SiteOf(const TraceStep& step) {
  if (step.name.empty()) return "";
  if (step.what == TraceStep::What::kStreamWait) {
    return (step.stream == 0 ? "compute stream waits for " : "stream waits before ") + step.name;
  }
  if (step.what == TraceStep::What::kHostWait) return "host waits for " + step.name;
  return "";
}

std::vector<std::string> Conflicts(const Trace& trace,
                                   const std::function<bool(size_t step)>& dropped) {
  Replay replay(trace);
  for (size_t i = 0; i < trace.size(); ++i) replay.Run(i, dropped(i));
  return replay.Found();
}

}  // namespace equipoise::testing
