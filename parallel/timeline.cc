#include "parallel/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace equipoise {
namespace {

double Seconds(TimelineRecorder::Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

// A JSON string. Names are our own and need no escapes; the few that would break the file are made
// harmless.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

// One process of the trace: the spans of one rank in one timeline.
struct Process {
  int pid = 0;
  std::string name;
  const Timeline* timeline;
  int rank = 0;
};

class TraceWriter {
 public:
  // Rows are in the order of pid.
  void Write(const Process& process) {
    std::set<std::string> names;
    for (const Span& span : *process.timeline) {
      if (span.rank == process.rank) names.insert(span.lane);
    }
    const std::vector<std::string> lanes(names.begin(), names.end());
    const int pid = process.pid;
    Metadata("process_name", pid, 0, "name", Quoted(process.name));
    Metadata("process_sort_index", pid, 0, "sort_index", std::to_string(pid));
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      Metadata("thread_name", pid, lane, "name", Quoted(lanes[lane]));
    }
    for (const Span& span : *process.timeline) {
      if (span.rank != process.rank) continue;
      const auto lane = std::lower_bound(lanes.begin(), lanes.end(), span.lane) - lanes.begin();
      Event(fmt::format(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                        Quoted(span.name), pid, lane, span.start_s * 1e6,
                        (span.end_s - span.start_s) * 1e6));
    }
  }

  std::string Text() const { return "{\"traceEvents\":[" + events_ + "\n]}\n"; }

 private:
  void Metadata(const char* name, int pid, size_t tid, const char* key, const std::string& value) {
    Event(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"{}":{}}}}})", name, pid,
                      tid, key, value));
  }
  void Event(const std::string& event) { events_ += (events_.empty() ? "\n" : ",\n") + event; }

  std::string events_;
};

std::set<int> RanksOf(const Timeline& timeline) {
  std::set<int> ranks;
  for (const Span& span : timeline) ranks.insert(span.rank);
  return ranks;
}

}  // namespace

void TimelineRecorder::Add(const std::string& lane, const std::string& name,
                           Clock::time_point start, Clock::time_point end) {
  if (!enabled_) return;
  timeline_.push_back({rank_, lane, name, Seconds(start - origin_), Seconds(end - origin_)});
}

double TimelineRecorder::NowSeconds() const { return Seconds(Clock::now() - origin_); }

std::string ToChromeTrace(const Timeline& timeline) {
  TraceWriter writer;
  for (int rank : RanksOf(timeline)) {
    writer.Write({rank, fmt::format("rank {}", rank), &timeline, rank});
  }
  return writer.Text();
}

std::string ToChromeTrace(const Timeline& measured, const Timeline& predicted) {
  std::set<int> ranks = RanksOf(measured);
  ranks.merge(RanksOf(predicted));
  TraceWriter writer;
  for (int rank : ranks) {
    writer.Write({2 * rank, fmt::format("rank {} measured", rank), &measured, rank});
    writer.Write({2 * rank + 1, fmt::format("rank {} predicted", rank), &predicted, rank});
  }
  return writer.Text();
}

Timeline StartingAt(Timeline timeline, double start_s) {
  if (timeline.empty()) return timeline;
  const auto first =
      std::min_element(timeline.begin(), timeline.end(),
                       [](const Span& a, const Span& b) { return a.start_s < b.start_s; });
  const double shift = start_s - first->start_s;
  for (Span& span : timeline) {
    span.start_s += shift;
    span.end_s += shift;
  }
  return timeline;
}

}  // namespace equipoise
