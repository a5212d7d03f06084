#pragma once

#include <string>

#include "trainer/outputs/report.h"

namespace equipoise {

// Contents of a run folder for its report: config.yaml, metrics.jsonl, quarantine.jsonl (absent
// ones are left empty, lines that are no records passed over). Facts and captions are the caller's.
ReportInput ReadReportInput(const std::string& run_dir);

// Writes RUN/report.html. Throws RunError.
void WriteReport(const std::string& run_dir, const ReportInput& input);

}  // namespace equipoise
