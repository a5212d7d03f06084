#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/metrics.h"

namespace equipoise {

// A picture with what the model says about it. `picture` is a data URI (PictureDataUri); empty
// shows none.
struct ReportCaption {
  std::string picture;
  std::string question, reference;
  std::string before, after;  // generated before the first and after the last step; may be empty
  bool held_out = false;
};

// A record whose sample was not learnt.
struct QuarantineRow {
  std::string file;
  int64_t line = 0;
  std::string id, reason;
};

struct ReportInput {
  std::string title;                                       // of the run
  std::vector<std::pair<std::string, std::string>> facts;  // name and value, shown in order
  std::string config;                                      // the resolved YAML
  std::vector<StepMetrics> steps;                          // ReadMetrics
  std::vector<ReportCaption> captions;
  std::vector<QuarantineRow> quarantine;
};

// The run as one HTML page that needs nothing else: curves, pictures with captions, facts,
// configuration, quarantine. All text is escaped. Pure.
std::string RenderReport(const ReportInput& input);

}  // namespace equipoise
