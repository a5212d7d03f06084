#include "parallel/timeline.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

namespace equipoise {
namespace {

double Seconds(TimelineRecorder::Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

// Names are our own and hold no characters that JSON escapes, except by mistake.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

std::string NameEvent(const char* what, int rank, int lane, const std::string& name) {
  char head[128];
  std::snprintf(head, sizeof head, R"({"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{"name":)",
                what, rank, lane);
  return head + Quoted(name) + "}}";
}

}  // namespace

void TimelineRecorder::Add(const std::string& lane, const std::string& name,
                           Clock::time_point start, Clock::time_point end) {
  if (!enabled_) return;
  timeline_.push_back({rank_, lane, name, Seconds(start - origin_), Seconds(end - origin_)});
}

std::string ToChromeTrace(const Timeline& timeline) {
  std::set<std::string> names;
  std::set<int> ranks;
  for (const Span& span : timeline) {
    names.insert(span.lane);
    ranks.insert(span.rank);
  }
  const std::vector<std::string> lanes(names.begin(), names.end());

  std::string out = "{\"traceEvents\":[";
  std::string separator = "\n";
  for (int rank : ranks) {
    out += std::exchange(separator, ",\n") +
           NameEvent("process_name", rank, 0, "rank " + std::to_string(rank));
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      out += ",\n" + NameEvent("thread_name", rank, static_cast<int>(lane), lanes[lane]);
    }
  }
  for (const Span& span : timeline) {
    const auto lane = std::lower_bound(lanes.begin(), lanes.end(), span.lane) - lanes.begin();
    char numbers[128];
    std::snprintf(numbers, sizeof numbers, R"(,"pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f})", span.rank,
                  static_cast<int>(lane), span.start_s * 1e6, (span.end_s - span.start_s) * 1e6);
    out += ",\n{\"ph\":\"X\",\"name\":" + Quoted(span.name) + numbers;
  }
  return out + "\n]}\n";
}

}  // namespace equipoise
