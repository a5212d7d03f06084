#pragma once

#include <string>

#include "trainer/outputs/report.h"

namespace equipoise {

// Reads the files of a run folder for its report: config.yaml, metrics.jsonl, quarantine.jsonl. The
// content of a missing file is left empty, malformed lines are ignored. The caller adds the facts,
// the memory of ranks and the answers.
ReportInput ReadReportInput(const std::string& run_dir);

// Writes RUN/report.html. Throws RunError.
void WriteReport(const std::string& run_dir, const ReportInput& input);

}  // namespace equipoise
