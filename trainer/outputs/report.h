#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/outputs/metrics.h"
#include "trainer/outputs/report_facts.h"

namespace equipoise {

// A picture with what the model says about it. `picture` is a data URI (PictureDataUri); empty
// shows none.
struct ReportCaption {
  std::string picture;
  std::string question, reference;
  std::string before, after;  // generated before the first and after the last step; may be empty
};

// Relation of a source of answered questions to the training data.
enum class AnswerRole {
  kTrained,  // one of data.train
  kHeldOut,  // one of data.eval
  kControl,  // questions of the training data with other answers, which were not trained
  kOther,
};

// A source of answered questions, some of them shown.
struct ReportAnswers {
  std::string source;  // its annotations
  AnswerRole role = AnswerRole::kOther;
  int64_t exact = 0, total = 0;
  std::vector<ReportCaption> shown;
};

// A record whose sample was not trained on.
struct QuarantineRow {
  std::string file;
  int64_t line = 0;
  std::string id, reason;
};

struct ReportInput {
  std::string title, lead;                                 // of the run; a line below the title
  std::vector<std::pair<std::string, std::string>> facts;  // name and value, shown in order
  std::string config;                                      // the resolved YAML
  std::vector<StepMetrics> steps;                          // ReadMetrics
  std::vector<RankMemory> ranks;
  std::vector<ReportAnswers> answers;
  std::vector<QuarantineRow> quarantine;
};

// The run as one HTML page that needs nothing else: figures, curves, pictures with answers by
// source, facts, memory by rank, quarantine, configuration. All text is escaped. Pure.
std::string RenderReport(const ReportInput& input);

}  // namespace equipoise
