#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "trainer/doctor/idle_time.h"
#include "trainer/doctor/subject.h"

namespace equipoise {

// Something that would shorten steps.
struct Remedy {
  std::string name;                // "another schedule"
  double gain = 0;                 // the share of a step that it saves
  bool at_most = false;            // the gain is all of the time that the cause takes
  std::string setting;             // YAML to paste into the configuration; else empty
  std::string advice;              // what to do, where no setting does it
  std::vector<IdleCause> against;  // causes that it shortens; empty: it shortens computing
};

// What `equipoise doctor` finds.
struct Diagnosis {
  std::string subject;  // "runs/x"
  std::string plan;     // in one line; empty: unknown
  std::string basis;    // "steps 2 and 3 measured (trace.json), 900 in metrics.jsonl"
  IdleTable table;
  std::vector<IdleCause> causes;   // the largest first, of at least 0.1 % of a step
  std::vector<Remedy> remedies;    // the largest gain first
  std::vector<std::string> notes;  // what could not be examined, and why
};

// Finds why ranks are idle, and what would change it. Measured times are used where there are some;
// plans are simulated with the configuration's own samples and cluster. LibTorch-free. Throws
// DataError for what is no subject.
Diagnosis Diagnose(const std::string& path);

// One line on a cause: what it is and whose fault, such as "a loader is behind: ...".
std::string Explain(IdleCause cause, const IdleTable& table);

// The diagnosis as a table for a terminal, as an HTML page that opens offline, and as JSON
// (docs/doctor.md): causes in descending order of seconds, each with its remedies.
void PrintDiagnosis(const Diagnosis& diagnosis, std::ostream& out);
std::string RenderDiagnosis(const Diagnosis& diagnosis);
Json DiagnosisToJson(const Diagnosis& diagnosis);

}  // namespace equipoise
