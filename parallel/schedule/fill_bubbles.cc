// Every placement is a set of owners (which encoder pipeline takes which micro-batch) and an order
// of each rank's list. Those without a search put forwards in front and backwards at the end, in
// ascending order; those with one merge the passes into the list by their planned start. All stand
// for election by simulated time, together with the plainer ones: the search counts on links that
// are free, which can be wrong.

#include "parallel/schedule/fill_bubbles.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "parallel/schedule/bubble_search.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/timetable.h"

namespace equipoise {
namespace {

class BubbleFiller {
 public:
  BubbleFiller(const Schedule& llm, const EncoderPipelines& encoder, const SimulationCosts& costs)
      : encoder_(encoder),
        costs_(costs),
        llm_(AddEncoderStages(llm, encoder)),
        times_(llm_, encoder, costs),
        timetable_(MakeTimetable(llm_, costs, times_.num_stages())),
        pipelines_(encoder.count(llm_.graph.num_ranks())),
        slack_s_(1e-9 * timetable_.step_s) {}

  // The compute ops.
  Schedule Fill(EncoderPlacement placement) {
    if (placement == EncoderPlacement::kDep) Try(InFrontAndBehind(DepOwners()));
    if (placement >= EncoderPlacement::kOptimusCoarse) TrySearches(placement);
    TryPlainest();
    const StepWork work = best_.work;
    return DropIdleOps(std::move(best_), work);
  }

 private:
  // Keeps a schedule that takes less than those before it.
  void Try(Schedule schedule) {
    const double step_s = SimulateTimes(AddReductions(schedule), costs_).step_s;
    if (step_s >= best_s_) return;
    best_s_ = step_s;
    best_ = std::move(schedule);
  }

  // The plainest of all wins a tie. It is often so much longer than the best that it need not be
  // simulated: the language model cannot begin before the rank of its first stage has done all its
  // forwards of the encoder, and then takes as long as alone.
  void TryPlainest() {
    const std::vector<int> owners =
        RoundRobinOwners(encoder_, llm_.graph.num_ranks(), llm_.micro_batches);
    const int rank = llm_.graph.stages[times_.num_stages()].rank;
    double front_s = 0;
    for (int stage = 0; stage < times_.num_stages(); ++stage) {
      if (llm_.graph.stages[stage].rank != rank || llm_.graph.stages[stage].lane > 0) continue;
      for (int i = 0; i < llm_.micro_batches; ++i) {
        if (owners[i] == stage / encoder_.depth()) front_s += times_.Forward(stage, i);
      }
    }
    if (front_s + timetable_.step_s - slack_s_ > best_s_) return;
    Schedule plainest = InFrontAndBehind(owners);
    const double step_s = SimulateTimes(AddReductions(plainest), costs_).step_s;
    if (step_s > best_s_) return;
    best_s_ = step_s;
    best_ = std::move(plainest);
  }

  void TrySearches(EncoderPlacement placement) {
    BubbleSearch coarse(llm_, encoder_, times_, timetable_, /*ends_alone=*/true);
    TryPlans(coarse);
    if (placement != EncoderPlacement::kOptimus) return;
    BubbleSearch fine(llm_, encoder_, times_, timetable_, /*ends_alone=*/false);
    if (!fine.SameBubbles(coarse)) TryPlans(fine);
  }

  void TryPlans(BubbleSearch& search) {
    BubblePlan earliest = search.Run(OwnerRule::kEarliest);
    // One pipeline takes all, whatever the rule; and both rules may end at the same plan.
    std::optional<BubblePlan> balanced;
    if (pipelines_ > 1) balanced = search.Run(OwnerRule::kBalanced);
    if (balanced == earliest) balanced.reset();
    Try(Merged(std::move(earliest)));
    if (balanced) Try(Merged(std::move(*balanced)));
  }

  double ForwardSeconds(int pipeline, int micro_batch) const {
    double seconds = 0;
    for (int place = 0; place < encoder_.depth(); ++place) {
      seconds += times_.Forward(encoder_.StageOf(pipeline, place), micro_batch) / encoder_.ranks;
    }
    return seconds;
  }

  // The bubble before the first op of a pipeline's ranks.
  double HeadSeconds(int pipeline) const {
    double head = std::numeric_limits<double>::infinity();
    for (int place = 0; place < encoder_.depth(); place += encoder_.pieces) {
      const int rank = llm_.graph.stages[encoder_.StageOf(pipeline, place)].rank;
      if (!timetable_.start_s[rank].empty()) {
        head = std::min(head, timetable_.start_s[rank].front());
      }
    }
    return head;
  }

  std::vector<int> DepOwners() const {
    std::vector<int> owners(llm_.micro_batches, -1);
    std::vector<double> heads, used(pipelines_, 0), all(pipelines_, 0);
    for (int pipeline = 0; pipeline < pipelines_; ++pipeline)
      heads.push_back(HeadSeconds(pipeline));
    int running = 0;
    for (int i = 0; i < llm_.micro_batches; ++i) {
      if (!encoder_.Runs(i)) continue;
      owners[i] = running < pipelines_ ? running : DepOwner(i, heads, used, all);
      all[owners[i]] += ForwardSeconds(owners[i], i);
      ++running;
    }
    return owners;
  }

  // The pipeline whose bubble has room for a micro-batch and is used least; where none has, the one
  // with the least to do.
  int DepOwner(int micro_batch, const std::vector<double>& heads, std::vector<double>& used,
               const std::vector<double>& all) const {
    using Key = std::tuple<bool, double, int>;
    Key best{true, std::numeric_limits<double>::infinity(), 0};
    for (int pipeline = 0; pipeline < pipelines_; ++pipeline) {
      const double filled = used[pipeline] + ForwardSeconds(pipeline, micro_batch);
      const double limit = std::min(heads[pipeline], timetable_.forward_s[micro_batch]) + slack_s_;
      const bool fits = heads[pipeline] > 0 && filled <= limit;
      best = std::min(
          best, Key{!fits, fits ? used[pipeline] / heads[pipeline] : all[pipeline], pipeline});
    }
    const int owner = std::get<2>(best);
    if (!std::get<0>(best)) used[owner] += ForwardSeconds(owner, micro_batch);
    return owner;
  }

  Schedule InFrontAndBehind(const std::vector<int>& owners) const {
    Schedule schedule = llm_;
    SetOwners(schedule, encoder_, owners);
    std::vector<std::vector<Op>> front(llm_.ranks.size()), behind(llm_.ranks.size());
    for (int i = 0; i < llm_.micro_batches; ++i) {
      if (owners[i] < 0) continue;
      for (int place = 0; place < encoder_.depth(); ++place) {
        const int stage = encoder_.StageOf(owners[i], place);
        const int last = encoder_.StageOf(owners[i], encoder_.depth() - 1 - place);
        front[llm_.graph.stages[stage].rank].push_back({OpKind::kEncoderForward, stage, i});
        if (!encoder_.HasBackward(encoder_.depth() - 1 - place)) continue;
        behind[llm_.graph.stages[last].rank].push_back({OpKind::kEncoderBackward, last, i});
      }
    }
    for (size_t r = 0; r < schedule.ranks.size(); ++r) {
      std::vector<Op>& list = schedule.ranks[r];
      list.insert(list.begin(), front[r].begin(), front[r].end());
      list.insert(list.end(), behind[r].begin(), behind[r].end());
    }
    return schedule;
  }

  // At equal times a forward of the encoder comes before an op of the language model, which may
  // take its output, and a backward after it.
  Schedule Merged(BubblePlan plan) const {
    Schedule schedule = llm_;
    SetOwners(schedule, encoder_, plan.owners);
    for (size_t r = 0; r < schedule.ranks.size(); ++r) {
      std::vector<BubblePlan::Pass>& passes = plan.ranks[r];
      std::stable_sort(passes.begin(), passes.end(),
                       [](const auto& a, const auto& b) { return a.start_s < b.start_s; });
      std::vector<Op> list;
      size_t next = 0;
      for (size_t p = 0; p < llm_.ranks[r].size(); ++p) {
        const double start = timetable_.start_s[r][p] + plan.lead_s;
        for (; next < passes.size(); ++next) {
          const double at = passes[next].start_s;
          if (at > start || (at == start && !IsForward(passes[next].op.kind))) break;
          list.push_back(passes[next].op);
        }
        list.push_back(llm_.ranks[r][p]);
      }
      for (; next < passes.size(); ++next) list.push_back(passes[next].op);
      schedule.ranks[r] = std::move(list);
    }
    return schedule;
  }

  const EncoderPipelines& encoder_;
  const SimulationCosts& costs_;
  const Schedule llm_;  // with the encoder's stages, which run nothing
  const EncoderTimes times_;
  const Timetable timetable_;
  const int pipelines_;
  const double slack_s_;  // of rounding
  Schedule best_;
  double best_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

Schedule FillBubbles(const Schedule& llm, const EncoderPipelines& encoder,
                     const SimulationCosts& costs, EncoderPlacement placement) {
  const Schedule filled = BubbleFiller(llm, encoder, costs).Fill(placement);
  return AddReductions(AddTransfers(filled, costs));
}

Schedule FillBubblesToSimulate(const Schedule& llm, const EncoderPipelines& encoder,
                               const SimulationCosts& costs, EncoderPlacement placement) {
  return AddReductions(BubbleFiller(llm, encoder, costs).Fill(placement));
}

}  // namespace equipoise
