#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace equipoise {

// Lanes of a rank's spans: what it computes, and on a GPU the encoder's passes on a stream of their
// own beside that; transfers and sums; waits for data; what compute is blocked on; whole steps.
constexpr char kComputeLane[] = "compute", kEncoderLane[] = "compute, encoder",
               kCommunicationLane[] = "communication", kDataLane[] = "data", kWaitLane[] = "wait",
               kStepLane[] = "step";

// One activity of a rank, with its start and end. Measured and simulated runs produce the same
// type.
struct Span {
  int rank = 0;
  std::string lane;    // one of these; a simulation adds ", lane N" for tensor ranks beside others
  std::string name;    // "F0", "B0", "all_reduce gradients 3", ...
  double start_s = 0;  // seconds since the timeline's origin
  double end_s = 0;
};
using Timeline = std::vector<Span>;

// A span's lane without the number of the tensor ranks.
inline std::string LaneOfAllRanks(const Span& span) {
  return span.lane.substr(0, span.lane.find(", lane"));
}

// A trace for chrome://tracing and Perfetto: one process a rank, one thread a lane.
std::string ToChromeTrace(const Timeline& timeline);
// A trace of two timelines: for each rank a process "rank R measured" and below it "rank R
// predicted".
// Traces of different ranks can be merged by joining their events.
std::string ToChromeTrace(const Timeline& measured, const Timeline& predicted);

// The timeline shifted so that its first span starts at `start_s`.
Timeline StartingAt(Timeline timeline, double start_s);

// A recorder of one rank's spans; records between Start() and Stop() only. Not thread-safe.
class TimelineRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  explicit TimelineRecorder(int rank) : rank_(rank), origin_(Clock::now()) {}

  void Start() { enabled_ = true; }
  void Stop() { enabled_ = false; }
  bool enabled() const { return enabled_; }
  void Add(const std::string& lane, const std::string& name, Clock::time_point start,
           Clock::time_point end);
  const Timeline& timeline() const { return timeline_; }
  // Seconds since the timeline's origin.
  double NowSeconds() const;

  // Records its own lifetime as a span.
  class Scope {
   public:
    Scope(TimelineRecorder& recorder, const char* lane, std::string name)
        : recorder_(recorder), lane_(lane), name_(std::move(name)), start_(Clock::now()) {}
    ~Scope() { recorder_.Add(lane_, name_, start_, Clock::now()); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    TimelineRecorder& recorder_;
    const char* lane_;
    std::string name_;
    Clock::time_point start_;
  };

 private:
  int rank_;
  Clock::time_point origin_;
  bool enabled_ = false;
  Timeline timeline_;
};

}  // namespace equipoise
