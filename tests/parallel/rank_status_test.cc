#include "parallel/comm/rank_status.h"

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

using namespace std::chrono_literals;
using Phase = RankStatus::Phase;

const auto kNow = std::chrono::steady_clock::time_point(1000s);
const Liveness kLiveness{kNow, 1000ms};

RankViews Healthy(int ranks) { return RankViews(ranks, {RankStatus{}, kNow}); }

void Waits(RankViews& views, int rank, int peer) {
  views[rank].status.waiting_for = peer;
  SetText(views[rank].status.doing, "recv #1");
}

TEST_CASE("the way of waits leads to the rank that computes", "[comm]") {
  RankViews views = Healthy(4);
  Waits(views, 1, 3);
  Waits(views, 3, 2);
  SetText(views[2].status.doing, "all_reduce #7 in group data");
  const FailureReport verdict = ExplainWait(0, 1, views, kLiveness);
  CHECK(verdict.faulty_rank == 2);
  CHECK(verdict.text ==
        "rank 2 is running and has not entered it; the last it entered was all_reduce #7 in group "
        "data");
}

TEST_CASE("a rank that has entered nothing yet is named as such", "[comm]") {
  const FailureReport verdict = ExplainWait(0, 1, Healthy(2), kLiveness);
  CHECK(verdict.text ==
        "rank 1 is running and has not entered it; it has entered no operation yet");
}

TEST_CASE("a silent rank is blamed, also where the way to it is unknown", "[comm]") {
  RankViews views = Healthy(4);
  views[3].heard = kNow - 2300ms;
  const FailureReport verdict = ExplainWait(0, 1, views, kLiveness);
  CHECK(verdict.faulty_rank == 3);
  CHECK(verdict.text == "rank 3 has stopped: no sign of life for 2.3 s");
  SetText(views[3].status.computes, "3B5, model.layers.0 to .3");
  CHECK(ExplainWait(0, 1, views, kLiveness).text ==
        "rank 3 has stopped: no sign of life for 2.3 s; it was at 3B5, model.layers.0 to .3");
}

TEST_CASE("a rank does not blame itself for silence", "[comm]") {
  RankViews views = Healthy(2);
  views[0].heard = kNow - 60s;
  CHECK(ExplainWait(0, 1, views, kLiveness).faulty_rank == 1);
}

TEST_CASE("ranks that wait for each other are a wrong order of operations", "[comm]") {
  RankViews views = Healthy(3);
  Waits(views, 1, 2);
  Waits(views, 2, 0);
  const FailureReport verdict = ExplainWait(0, 1, views, kLiveness);
  CHECK(verdict.faulty_rank == 2);
  CHECK(verdict.text == "rank 2 waits for rank 0 in recv #1: their orders of operations differ");
}

TEST_CASE("a rank that has left, or has failed, says so", "[comm]") {
  RankViews views = Healthy(3);
  views[1].status.phase = Phase::kLeft;
  CHECK(ExplainWait(0, 1, views, kLiveness).text == "rank 1 has left");
  // The failure of any rank explains more.
  views[2].status.phase = Phase::kFailed;
  views[2].status.faulty_rank = 2;
  SetText(views[2].status.failure, "rank 2 failed: disk full");
  CHECK(ExplainWait(0, 1, views, kLiveness).text == "rank 2 failed: disk full");
}

TEST_CASE("collectives are counted by group, as far as there is room", "[comm]") {
  RankStatus status;
  CHECK(status.CollectivesOf(0) == 0);
  for (int group = 0; group < 20; ++group) status.Enter(-1 - group, 1);
  status.Enter(-3, 7);
  CHECK(status.CollectivesOf(-1) == 1);
  CHECK(status.CollectivesOf(-3) == 7);
  CHECK(status.CollectivesOf(-16) == 1);
  CHECK(status.CollectivesOf(-17) == 0);
}

TEST_CASE("long texts are cut to fit", "[comm]") {
  RankStatus status;
  SetText(status.doing, std::string(1000, 'x'));
  CHECK(std::string(status.doing) == std::string(sizeof status.doing - 1, 'x'));
}

}  // namespace
}  // namespace equipoise
