#include "trainer/outputs/report_files.h"

#include <fstream>
#include <limits>

#include "configs/base/json.h"
#include "configs/base/regular_file.h"
#include "trainer/common/durable_file.h"

namespace equipoise {
namespace {

std::string TextMember(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<QuarantineRow> ReadQuarantine(const std::string& path) {
  std::vector<QuarantineRow> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;
    QuarantineRow& row = rows.emplace_back();
    row.file = TextMember(json, "file");
    row.id = TextMember(json, "id");
    row.reason = TextMember(json, "reason");
    const auto number = json.find("line");
    if (number != json.end() && number->is_number_integer()) row.line = number->get<int64_t>();
  }
  return rows;
}

}  // namespace

ReportInput ReadReportInput(const std::string& run_dir) {
  ReportInput input;
  input.title = run_dir;
  input.config = ReadRegularFile(run_dir + "/config.yaml", std::numeric_limits<size_t>::max()).text;
  input.steps = ReadMetrics(run_dir + "/metrics.jsonl");
  input.quarantine = ReadQuarantine(run_dir + "/quarantine.jsonl");
  return input;
}

void WriteReport(const std::string& run_dir, const ReportInput& input) {
  WriteFileDurably(run_dir + "/report.html", RenderReport(input));
}

}  // namespace equipoise
