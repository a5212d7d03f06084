#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "trainer/planner/plan_report.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// A configuration with its plan.
struct ComparedPlan {
  std::string path;  // of the file, as it was given
  RunConfig config;
  PlanReport report;
};

// Keys of the sections that a plan depends on in which two configurations differ, such as
// "cluster.nodes"; in the order of their names.
std::vector<std::string> DifferingKeys(const RunConfig& a, const RunConfig& b);

// Prints a row for each configuration, the best of each column marked, and in which keys the others
// differ from the first. REQUIRES: there is one.
void PrintComparison(const std::vector<ComparedPlan>& planned, std::ostream& out);

// The comparison as JSON, with the keys of docs/planner.md.
Json ComparisonJson(const std::vector<ComparedPlan>& planned);

}  // namespace equipoise
