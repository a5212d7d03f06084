#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/timeline.h"
#include "trainer/doctor/idle_time.h"

namespace equipoise {

// Who waits for whom in one step of all ranks. Refers to the step; it must outlive it.
class StepWalk {
 public:
  StepWalk(const TracedStep& step, const Mesh& mesh);

  // One rank's seconds by cause, without imbalance: what a busier rank makes the others wait is
  // among warm-up, cool-down and PP other.
  RankIdle Of(int rank);

  // The rank that ends its last pass last, for which all others wait then.
  int last_rank() const { return last_rank_; }

 private:
  enum class Doing { kPass, kUpdate, kData };
  struct Interval {
    double start_s = 0, end_s = 0;
    double length() const { return end_s > start_s ? end_s - start_s : 0; }
  };
  struct Piece {
    Interval at;
    Doing doing = Doing::kPass;
    std::string name;
  };
  // A value on its way to an op: when it was sent, and when it was there.
  struct Arrival {
    int from_rank = -1;
    double sent_s = 0, there_s = 0;
  };
  struct Rank {
    std::vector<Piece> pieces;  // disjoint, ascending
    double last_pass_s = 0;     // end of the last pass
    double last_sum_s = 0;      // of the last reduction of gradients
  };

  static void SortPieces(Rank& rank);
  void AddBeside(const Span& span);
  void ReadPieces(const Timeline& spans);
  void ReadArrivals(const Timeline& spans);
  const Arrival* LateArrival(int rank, const Interval& gap) const;
  // Adds the seconds in which `rank` does nothing of its own, by cause.
  void Wait(int rank, const Interval& when, IdleCause label, int depth);
  // Adds an interval in which a rank waits for `rank`: by what that one does.
  void LookAt(int rank, const Interval& when, IdleCause label, int depth);
  void Tail(int rank, const Interval& when, IdleCause label, int depth);
  IdleCause LabelOf(int rank, double at_s) const;

  const TracedStep& step_;
  const Mesh& mesh_;
  std::vector<Rank> ranks_;
  std::vector<std::map<std::string, std::vector<Arrival>>> arrivals_;  // [rank], by the op's text
  double first_pass_s_ = 0, last_pass_s_ = 0;                          // of all ranks
  int last_rank_ = 0;
  RankIdle sum_;
};

}  // namespace equipoise
