#pragma once

#include <functional>
#include <string>
#include <vector>

#include "balance/search/plan_request.h"
#include "trainer/doctor/diagnosis.h"
#include "trainer/doctor/subject.h"
#include "trainer/planner/plan_workload.h"
#include "trainer/planner/sample_costs.h"

namespace equipoise {

// Simulates a plan, and others in its place.
class RemedySearch {
 public:
  // Gathers the samples of the configuration. Throws UserError where that cannot be done.
  explicit RemedySearch(const PlannedConfig& planned);

  const PlanRequest& request() const { return request_; }
  const Plan& plan() const { return planned_.plan; }
  // Remedies that save at least half a percent of the simulated step: stages cut anew,
  // recomputation, another schedule, another place of the encoder, ZeRO, another mesh, even packs.
  // Each changes one choice, and what follows from it.
  std::vector<Remedy> Search() const;

 private:
  struct Choice {
    const char* name;
    std::vector<IdleCause> against;
    std::function<void(RunConfig&)> free;  // leaves the choice to the planner
  };
  static std::vector<Choice> Choices(const PlannedConfig& planned);
  Remedy Try(const Choice& choice) const;
  Remedy TryPacks() const;

  PlannedConfig planned_;
  SampleCosts costs_;
  PlannedRun workload_;
  PlanRequest request_;
  double step_s_ = 0;
};

// Remedies for what was measured: more loader threads, fewer checkpoints, another machine. Each
// gain is all of the time that the cause takes.
std::vector<Remedy> RemediesOfMeasured(const Subject& subject, const IdleTable& table);

}  // namespace equipoise
