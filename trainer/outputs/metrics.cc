#include "trainer/outputs/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <type_traits>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/base/write_advice.h"

namespace equipoise {
namespace {

std::string NumberText(int64_t value) { return std::to_string(value); }

std::string NumberText(double value) {
  if (!std::isfinite(value)) return "null";
  return fmt::format("{:.9g}", value);
}

void ReadField(const Json& json, std::optional<double>& field) {
  if (json.is_number()) field = json.get<double>();
  if (json.is_null()) field = std::numeric_limits<double>::quiet_NaN();
}

void ReadField(const Json& json, std::optional<int64_t>& field) {
  if (json.is_number_integer()) field = json.get<int64_t>();
}

using SetScores = std::map<std::string, std::map<std::string, double>>;

std::string AnswersText(const SetScores& sets) {
  std::string text;
  for (const auto& [set, scores] : sets) {
    std::string values;
    for (const auto& [measure, value] : scores)
      values += fmt::format("{}\"{}\":{}", values.empty() ? "" : ",", measure, NumberText(value));
    text += fmt::format("{}{}:{{{}}}", text.empty() ? "" : ",", Json(set).dump(), values);
  }
  return "{" + text + "}";
}

void ReadAnswers(const Json& json, SetScores& sets) {
  if (!json.is_object()) return;
  for (const auto& [set, scores] : json.items()) {
    if (!scores.is_object()) continue;
    for (const auto& [measure, value] : scores.items()) {
      if (value.is_number()) sets[set][measure] = value.get<double>();
    }
  }
}

}  // namespace

std::string MetricsLine(const StepMetrics& metrics) {
  std::string line = fmt::format("{{\"step\":{}", metrics.step);
  StepMetrics::VisitFields(metrics, [&](const char* name, const auto& value) {
    if (value) line += fmt::format(",\"{}\":{}", name, NumberText(*value));
  });
  if (!metrics.answers.empty()) line += ",\"answers\":" + AnswersText(metrics.answers);
  return line + "}";
}

MetricsWriter::MetricsWriter(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (!file_.valid())
    throw RunError(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
}

void MetricsWriter::Write(const StepMetrics& metrics) {
  if (!WriteFully(file_, MetricsLine(metrics) + "\n")) {
    const int error = errno;
    throw RunError(
        fmt::format("{}: cannot write: {}{}", path_, std::strerror(error), WriteAdvice(error)));
  }
}

std::vector<StepMetrics> ReadMetrics(const std::string& path) {
  std::vector<StepMetrics> steps;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    StepMetrics& metrics = steps.emplace_back();
    metrics.step = json["step"].get<int64_t>();
    StepMetrics::VisitFields(metrics, [&](const char* name, auto& field) {
      if (json.contains(name)) ReadField(json[name], field);
    });
    if (json.contains("answers")) ReadAnswers(json["answers"], metrics.answers);
  }
  return steps;
}

}  // namespace equipoise
