#include "balance/search/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "balance/search/plan_fit.h"
#include "balance/search/plan_rejection.h"
#include "balance/search/plan_shapes.h"
#include "configs/base/parallel_for.h"
#include "parallel/schedule/builders.h"

// Branch and bound over the shapes of a plan: mesh, chunks, schedule and ZeRO (PlanShapes()).
// Shapes are taken in the order of a lower bound of their step, the least communication first among
// equals, some at a time on all threads. Each is cut into stages and fitted to the memory
// (PlanFitter); only plans whose bound is below the slowest plan kept so far are simulated. The
// bound never exceeds the simulated step, so no better plan of these shapes and cuts is missed.
// Only shapes with the encoder in the bubbles are chosen by another rule (Guided()).

namespace equipoise {
namespace {

// Shapes that are looked at beside each other, none learning from another: the same on any number
// of threads.
constexpr size_t kTogether = 8;
constexpr size_t kGuides = 3;  // plans whose mesh and schedule an encoder in the bubbles takes
constexpr double kNever = std::numeric_limits<double>::infinity();

std::string Seconds(double seconds) { return fmt::format("{:.4g} s", seconds); }

class Search {
 public:
  explicit Search(const PlanRequest& request) : request_(request) {}

  PlanSearchResult Run() {
    std::vector<Plan> plain, filled;
    for (Plan& plan : PlanShapes(request_)) {
      (FillsBubbles(plan.encoder) ? filled : plain).push_back(std::move(plan));
    }
    ConsiderAll(std::move(plain));
    if (!filled.empty()) {
      const auto others = MoveGuided(filled);
      ConsiderAll(std::move(filled));
      if (request_.pins.encoder.placement && result_.plans.empty()) ConsiderAll(others);
    }
    ConsiderAll(WithSequence(BestAndMisfits()));
    if (!request_.pins.sharded) {
      ConsiderAll(SharedPasses());
      // They may have room for their activations with shared rows alone.
      if (result_.plans.empty()) ConsiderAll(Unseen(WithSequence(BestAndMisfits())));
    }
    ConsiderAll(Unseen(WithinNodes(Best())));
    // A number of ranks that share out state says that it is shared out.
    if (!request_.pins.sharded && !request_.pins.zero_ranks) ConsiderWholeState();
    RejectBeyondKept();
    return std::move(result_);
  }

  double LeastStep() {
    std::vector<Plan> plans = ShapesWithRoom();
    for (Plan& sequence : WithSequence(plans)) plans.push_back(std::move(sequence));
    std::vector<Shape> shapes;
    for (Plan& plan : plans) shapes.push_back({std::move(plan)});
    SetBounds(shapes);
    double least = kNever;
    for (const Shape& shape : shapes) least = std::min(least, shape.bound_s);
    return least;
  }

  // Whether Run() finds a plan.
  bool AnyFits() {
    std::vector<Plan> shapes = ShapesWithRoom();
    for (Plan& sequence : WithSequence(shapes)) shapes.push_back(std::move(sequence));
    // The least state first: it is the most likely to fit.
    std::stable_sort(shapes.begin(), shapes.end(), [this](const Plan& a, const Plan& b) {
      return StateBytes(a) < StateBytes(b);
    });
    return std::any_of(shapes.begin(), shapes.end(), [this](Plan& shape) {
      const PlanFitter& fitter = FitterOf(shape);
      const auto cuts = fitter.CutsToTry(shape);
      return std::any_of(cuts.begin(), cuts.end(), [&](const std::vector<int>& begins) {
        shape.stage_begins = begins;
        return fitter.FitsMemory(shape);
      });
    });
  }

 private:
  struct Shape {
    Plan plan;
    double bound_s = 0;
  };

  // The shapes whose state alone fits the memory, with ZeRO 3 too where that is open.
  std::vector<Plan> ShapesWithRoom() {
    std::vector<Plan> shapes = PlanShapes(request_);
    if (!request_.pins.sharded) {
      const size_t known = shapes.size();
      for (size_t i = 0; i < known; ++i) AddSharded(shapes[i], ShardedState::kParameters, shapes);
    }
    std::erase_if(shapes, [this](const Plan& plan) { return StateBytes(plan) > Room(); });
    return shapes;
  }

  // The shapes whose state fits, the most promising first; among equals those with the least
  // communication.
  std::vector<Shape> Ordered(std::vector<Plan> plans) {
    std::vector<Shape> shapes;
    for (Plan& plan : plans) {
      if (!RejectByState(plan)) shapes.push_back({std::move(plan)});
    }
    SetBounds(shapes);
    std::stable_sort(shapes.begin(), shapes.end(), [](const Shape& a, const Shape& b) {
      return std::tuple(a.bound_s, a.plan.tensor(), a.plan.pipeline()) <
             std::tuple(b.bound_s, b.plan.tensor(), b.plan.pipeline());
    });
    return shapes;
  }

  // On all threads: those of one fitter, which learns the packs of each data degree, on one.
  void SetBounds(std::vector<Shape>& shapes) {
    std::map<const PlanFitter*, std::vector<Shape*>> by_fitter;
    for (Shape& shape : shapes) by_fitter[&FitterOf(shape.plan)].push_back(&shape);
    const std::vector<std::pair<const PlanFitter*, std::vector<Shape*>>> all(by_fitter.begin(),
                                                                             by_fitter.end());
    ParallelFor(static_cast<int64_t>(all.size()), request_.threads, [&](int64_t at) {
      const auto& [fitter, own] = all[static_cast<size_t>(at)];
      for (Shape* shape : own) shape->bound_s = fitter->LowerBound(shape->plan);
    });
  }

  void ConsiderAll(std::vector<Plan> plans) {
    std::vector<const Shape*> together;
    const std::vector<Shape> shapes = Ordered(std::move(plans));
    for (const Shape& shape : shapes) {
      if (!RejectByBound(shape)) together.push_back(&shape);
      if (together.size() < kTogether) continue;
      ConsiderTogether(together);
      together.clear();
    }
    ConsiderTogether(together);
  }

  // The fitters know the packs of each data degree since Ordered().
  void ConsiderTogether(const std::vector<const Shape*>& shapes) {
    const double slowest = SlowestKept();
    std::vector<Outcome> outcomes(shapes.size());
    std::vector<const PlanFitter*> fitters;
    for (const Shape* shape : shapes) fitters.push_back(&FitterOf(shape->plan));
    ParallelFor(static_cast<int64_t>(shapes.size()), request_.threads, [&](int64_t at) {
      const auto i = static_cast<size_t>(at);
      outcomes[i] = Simulate(shapes[i]->plan, *fitters[i], slowest);
    });
    for (Outcome& outcome : outcomes) Add(std::move(outcome));
  }

  // Leaves of shapes with the encoder in the bubbles those whose mesh, schedule and chunks are
  // among the best for an encoder that is not, or all where none of those fits; returns the others.
  // There are many, no bound tells them apart, and each is filled anew: Optimus (arXiv 2408.03505,
  // section 4.1) fixes the plan of the language model first, too.
  std::vector<Plan> MoveGuided(std::vector<Plan>& filled) const {
    std::vector<Plan> guides;
    if (request_.pins.encoder.placement) {
      // Inline, the encoder may lack heads for the tensor ranks that pins leave.
      if (std::none_of(filled.begin(), filled.end(), [&](const Plan& plan) {
            return MayShareEncoder(request_, EncoderPlacement::kInline, plan.tensor());
          }))
        return {};
      PlanRequest without = request_;
      without.pins.encoder = {};
      without.pins.stage_begins.clear();
      without.keep = kGuides;
      for (ScoredPlan& each : Search(without).Run().plans) guides.push_back(std::move(each.plan));
    } else {
      for (const ScoredPlan& each : result_.plans) guides.push_back(each.plan);
    }
    if (guides.size() > kGuides) guides.resize(kGuides);
    if (guides.empty()) return {};
    const auto rest = std::stable_partition(filled.begin(), filled.end(), [&](const Plan& plan) {
      return std::any_of(guides.begin(), guides.end(), [&](const Plan& guide) {
        return guide.mesh == plan.mesh && guide.schedule == plan.schedule &&
               guide.chunks() == plan.chunks();
      });
    });
    std::vector<Plan> others(std::make_move_iterator(rest), std::make_move_iterator(filled.end()));
    filled.erase(rest, filled.end());
    return others;
  }

  const PlanFitter& FitterOf(const Plan& plan) {
    const int encoder = plan.encoder_lanes() > 1 ? plan.encoder_tensor() : plan.tensor();
    std::unique_ptr<PlanFitter>& fitter = fitters_[{plan.tensor(), encoder, plan.sequence}];
    if (!fitter) fitter = std::make_unique<PlanFitter>(request_, plan);
    return *fitter;
  }

  int64_t Room() const { return request_.cluster.memory_bytes; }
  int64_t StateBytes(const Plan& plan) { return FitterOf(plan).StateBytesBound(plan); }

  void Reject(const Plan& plan, std::string reason, int64_t missing_bytes = 0) {
    result_.rejected.push_back({plan, std::move(reason), missing_bytes});
  }

  // Rejects a plan whose state alone does not fit; whether it did.
  bool RejectByState(const Plan& plan) {
    ++result_.considered;
    const int64_t states = StateBytes(plan);
    if (states <= Room()) return false;
    Reject(plan,
           fmt::format("weights, gradients and optimizer state alone need {} of {}", GiB(states),
                       GiB(Room())),
           states - Room());
    return true;
  }

  // Rejects a shape whose bound is enough for that; whether it did.
  bool RejectByBound(const Shape& shape) {
    if (shape.bound_s < SlowestKept()) return false;
    Reject(shape.plan, fmt::format("{} a step or more", Seconds(shape.bound_s)));
    return true;
  }

  std::vector<Plan> Best() const {
    std::vector<Plan> best;
    for (const ScoredPlan& each : result_.plans) {
      if (best.size() < static_cast<size_t>(request_.keep)) best.push_back(each.plan);
    }
    return best;
  }

  // Those, and the shapes whose state would fit.
  std::vector<Plan> BestAndMisfits() {
    std::vector<Plan> plans = Best();
    for (const RejectedPlan& each : result_.rejected) {
      if (each.missing_bytes > 0 && StateBytes(each.plan) <= Room()) plans.push_back(each.plan);
    }
    return plans;
  }

  // The shapes with tensor ranks that share out rows too (sequence parallelism), where that is
  // open: they keep less, and compute less between split products.
  std::vector<Plan> WithSequence(const std::vector<Plan>& plans) const {
    std::vector<Plan> shapes;
    if (request_.pins.sequence) return shapes;
    for (Plan shape : plans) {
      if (shape.tensor() == 1 || shape.sequence) continue;
      shape.sequence = true;
      shape.stage_begins.clear();
      shape.recompute.clear();
      shapes.push_back(std::move(shape));
    }
    return shapes;
  }

  // The shapes with a copy in each node of what is shared out, where that is open and several nodes
  // hold the same weights: gathers and sums in each pass (ZeRO 2 and 3) then stay on fast links.
  std::vector<Plan> WithinNodes(const std::vector<Plan>& plans) const {
    std::vector<Plan> shapes;
    if (request_.pins.zero_ranks) return shapes;
    for (Plan shape : plans) {
      const int holders = shape.same_weights();
      int shards = request_.cluster.devices_per_node / (shape.num_ranks() / holders);
      while (shards > 1 && holders % shards != 0) --shards;
      if (shape.zero_ranks > 0 || shape.shards() == 1 || shards < 2 || shards >= holders) continue;
      shape.zero_ranks = shards;
      shape.stage_begins.clear();
      shape.recompute.clear();
      shapes.push_back(std::move(shape));
    }
    return shapes;
  }

  static bool SameShape(const Plan& a, const Plan& b) {
    return a.mesh == b.mesh && a.components == b.components && a.encoder == b.encoder &&
           a.schedule == b.schedule && a.sharded == b.sharded && a.zero_ranks == b.zero_ranks &&
           a.sequence == b.sequence;
  }

  // The shapes that have neither been kept nor rejected.
  std::vector<Plan> Unseen(std::vector<Plan> shapes) const {
    std::erase_if(shapes, [this](const Plan& shape) {
      const auto same = [&](const auto& each) { return SameShape(each.plan, shape); };
      return std::any_of(result_.plans.begin(), result_.plans.end(), same) ||
             std::any_of(result_.rejected.begin(), result_.rejected.end(), same);
    });
    return shapes;
  }

  // Adds a shape with more of its state shared out, where that is possible.
  static void AddSharded(Plan shape, ShardedState sharded, std::vector<Plan>& shapes) {
    if (shape.same_weights() == 1 || FillsBubbles(shape.encoder)) return;
    if (DelaysUpdates(shape.schedule)) return;  // of two versions of the weights
    shape.sharded = sharded;
    shape.stage_begins.clear();
    shape.recompute.clear();
    shapes.push_back(std::move(shape));
  }

  // ZeRO 2 and 3 save memory and cost time in each pass: they are for shapes that do not fit with
  // ZeRO 1, and for the best plans where these compute again what there is no room for.
  std::vector<Plan> SharedPasses() const {
    std::vector<Plan> shapes;
    const auto add = [&shapes](const Plan& shape) {
      AddSharded(shape, ShardedState::kGradients, shapes);
      AddSharded(shape, ShardedState::kParameters, shapes);
    };
    for (const RejectedPlan& each : result_.rejected) {
      if (each.missing_bytes > 0) add(each.plan);
    }
    for (size_t i = 0; i < std::min(result_.plans.size(), static_cast<size_t>(request_.keep));
         ++i) {
      if (Recomputes(result_.plans[i].plan)) add(result_.plans[i].plan);
    }
    for (Plan& within : WithinNodes(shapes)) shapes.push_back(std::move(within));
    return shapes;
  }

  static bool Recomputes(const Plan& plan) {
    return std::any_of(plan.recompute.begin(), plan.recompute.end(),
                       [](Recompute kind) { return kind != Recompute::kNone; });
  }

  // Considers the best plans without ZeRO as well: ZeRO costs little or no time and saves memory,
  // so it is searched first.
  void ConsiderWholeState() {
    const std::vector<ScoredPlan>& best = result_.plans;
    std::vector<Plan> shapes;
    for (size_t i = 0; i < std::min(best.size(), static_cast<size_t>(request_.keep)); ++i) {
      if (best[i].plan.same_weights() == 1) continue;
      Plan& shape = shapes.emplace_back(best[i].plan);
      shape.sharded = ShardedState::kNone;
      shape.zero_ranks = 0;
      shape.stage_begins.clear();
      shape.recompute.clear();
      // Plans that differ in what they share out are the same without.
      const bool known = std::any_of(shapes.begin(), shapes.end() - 1,
                                     [&](const Plan& other) { return SameShape(other, shape); });
      if (known) shapes.pop_back();
    }
    ConsiderAll(Unseen(std::move(shapes)));
  }

  // What simulating a shape's cuts has found: the best, or why there is none.
  struct Outcome {
    std::optional<ScoredPlan> best;
    RejectedPlan rejected;
    int simulated = 0;
  };

  void Add(Outcome outcome) {
    result_.simulated += outcome.simulated;
    if (outcome.best) return Keep(std::move(*outcome.best));
    result_.rejected.push_back(std::move(outcome.rejected));
  }

  // Only plans below `limit_s` seconds a step are of use. Touches nothing but the outcome.
  Outcome Simulate(const Plan& shape, const PlanFitter& fitter, double limit_s) const {
    Outcome outcome;
    std::optional<ScoredPlan>& best = outcome.best;
    std::optional<OutOfMemoryRank> misfit;
    std::optional<RejectedPlan> no_host;
    Plan missed, bounded;
    std::vector<std::vector<int>> tried;
    const auto consider = [&](const std::vector<std::vector<int>>& cuts) {
      for (const std::vector<int>& begins : cuts) {
        // A cut that has been considered is no better a second time.
        if (std::find(tried.begin(), tried.end(), begins) != tried.end()) continue;
        tried.push_back(begins);
        Plan plan = shape;
        plan.stage_begins = begins;
        plan.recompute = fitter.GivenRecompute();
        const double slowest = std::min(best ? best->step_s : kNever, limit_s);
        // What memory makes a plan compute again only adds to its bound.
        if (fitter.StepSecondsBound(plan) >= slowest) {
          bounded = plan;
          continue;
        }
        PlanFitter::Fit fit = fitter.FitMemory(plan);
        if (fit.misfit) {
          if (misfit && fit.misfit->memory.total() >= misfit->memory.total()) continue;
          misfit = fit.misfit;
          missed = plan;
          continue;
        }
        if (fit.host_bytes) {
          no_host = TooLargeForHost(request_, plan, *fit.host_bytes);
          continue;
        }
        if (fitter.StepSecondsBound(plan) >= slowest) {
          bounded = plan;
          continue;
        }
        ++outcome.simulated;
        const double step_s = fitter.StepSeconds(plan);
        if (!best || step_s < best->step_s) best = {plan, step_s, std::move(fit.memory)};
      }
    };
    consider(fitter.CutsToTry(shape));
    if (best && Recuts(best->plan)) consider(fitter.CutsWithRecompute(best->plan, 1));
    if (best) return outcome;
    if (!bounded.stage_begins.empty()) {
      const double bound_s = fitter.StepSecondsBound(bounded);
      outcome.rejected = {std::move(bounded), Seconds(bound_s) + " a step or more", 0};
    } else {
      outcome.rejected =
          no_host ? std::move(*no_host) : TooLarge(request_, std::move(missed), *misfit);
    }
    return outcome;
  }

  // Whether stages should be cut again, since recomputation makes layers cost more than in the cut.
  bool Recuts(const Plan& plan) const {
    return request_.partition == PartitionRule::kBalanced && request_.pins.stage_begins.empty() &&
           request_.recompute == RecomputeRule::kAdaptive && plan.num_stages() > 1 &&
           Recomputes(plan);
  }

  // Seconds of a step from which on a plan is not kept.
  double SlowestKept() const {
    const auto keep = static_cast<size_t>(request_.keep);
    const double limit = request_.within_s > 0 ? request_.within_s : kNever;
    return result_.plans.size() < keep ? limit : std::min(limit, result_.plans[keep - 1].step_s);
  }

  void Keep(ScoredPlan plan) {
    const auto later = std::upper_bound(
        result_.plans.begin(), result_.plans.end(), plan,
        [](const ScoredPlan& a, const ScoredPlan& b) { return a.step_s < b.step_s; });
    result_.plans.insert(later, std::move(plan));
  }

  void RejectBeyondKept() {
    std::vector<ScoredPlan>& plans = result_.plans;
    const auto too_slow = [this](const ScoredPlan& each) {
      return request_.within_s > 0 && each.step_s >= request_.within_s;
    };
    const auto slow = std::find_if(plans.begin(), plans.end(), too_slow) - plans.begin();
    const auto keep = std::min(static_cast<size_t>(request_.keep), static_cast<size_t>(slow));
    for (size_t i = keep; i < plans.size(); ++i) {
      Reject(plans[i].plan, Seconds(plans[i].step_s) + " a step");
    }
    if (plans.size() > keep) plans.resize(keep);
  }

  const PlanRequest& request_;
  // By tensor degree, that of the encoder, and sequence parallelism.
  std::map<std::tuple<int, int, bool>, std::unique_ptr<PlanFitter>> fitters_;
  PlanSearchResult result_;
};

}  // namespace

int64_t ScoredPlan::peak_bytes() const {
  int64_t most = 0;
  for (const MemoryForecast& each : memory) most = std::max(most, each.total());
  return most;
}

PlanSearchResult SearchPlans(const PlanRequest& request) { return Search(request).Run(); }

ScoredPlan ScorePlan(const PlanRequest& request, Plan plan) {
  PlanRequest given = request;
  given.pins.recompute = plan.recompute;
  const PlanFitter fitter(given, plan);
  std::vector<MemoryForecast> memory = fitter.FitMemory(plan).memory;
  const double step_s = fitter.StepSeconds(plan);
  return {std::move(plan), step_s, std::move(memory)};
}

bool SomePlanFits(const PlanRequest& request) { return Search(request).AnyFits(); }

double LeastStepSeconds(const PlanRequest& request) { return Search(request).LeastStep(); }

}  // namespace equipoise
