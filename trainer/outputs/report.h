#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/outputs/metrics.h"
#include "trainer/outputs/report_facts.h"

namespace equipoise {

// A picture with a question about it and the model's answers. `picture` is a data URI
// (PictureDataUri()); empty: none is shown.
struct ReportCaption {
  std::string picture;
  std::string question, reference;
  std::string before, after;  // answers before the first and after the last step; may be empty
};

// Relation of a source of answered questions to the training data.
enum class AnswerRole {
  kTrained,  // in data.train
  kHeldOut,  // in data.eval
  kControl,  // questions of the training data with other answers, which were not trained on
  kOther,
};

// A source of answered questions, some of which are shown.
struct ReportAnswers {
  std::string source;  // path of its annotations
  AnswerRole role = AnswerRole::kOther;
  int64_t exact = 0, total = 0;
  std::vector<ReportCaption> shown;
  std::vector<std::pair<std::string, double>> scores = {};  // means by measure; may be empty
};

// A record that was not trained on.
struct QuarantineRow {
  std::string file;
  int64_t line = 0;
  std::string id, reason;
};

// The content of a report.
struct ReportInput {
  std::string title, lead;                                 // `lead` is a line below the title
  std::vector<std::pair<std::string, std::string>> facts;  // name and value, in order
  std::string config;                                      // the resolved YAML
  std::vector<StepMetrics> steps;                          // from ReadMetrics()
  std::vector<RankMemory> ranks;
  std::vector<ReportAnswers> answers;
  std::vector<QuarantineRow> quarantine;
};

// Renders a run as one self-contained HTML page: figures, curves, pictures with answers by source,
// facts, memory by rank, quarantine, configuration. All text is escaped. Pure.
std::string RenderReport(const ReportInput& input);

}  // namespace equipoise
