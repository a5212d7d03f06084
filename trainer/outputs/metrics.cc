#include "trainer/outputs/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <type_traits>

#include "configs/base/error.h"
#include "configs/base/json.h"

namespace equipoise {
namespace {

std::string NumberText(int64_t value) { return std::to_string(value); }

std::string NumberText(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> text{};
  snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

void ReadField(const Json& json, std::optional<double>& field) {
  if (json.is_number()) field = json.get<double>();
  if (json.is_null()) field = std::numeric_limits<double>::quiet_NaN();
}

void ReadField(const Json& json, std::optional<int64_t>& field) {
  if (json.is_number_integer()) field = json.get<int64_t>();
}

}  // namespace

std::string MetricsLine(const StepMetrics& metrics) {
  std::string line = "{\"step\":" + std::to_string(metrics.step);
  StepMetrics::VisitFields(metrics, [&](const char* name, const auto& value) {
    if (value) line += std::string(",\"") + name + "\":" + NumberText(*value);
  });
  return line + "}";
}

MetricsWriter::MetricsWriter(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (fd_ < 0) throw RunError(path + ": cannot open: " + std::strerror(errno));
}

MetricsWriter::~MetricsWriter() { close(fd_); }

void MetricsWriter::Write(const StepMetrics& metrics) {
  const std::string line = MetricsLine(metrics) + "\n";
  ssize_t written = 0;
  do {
    written = write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(line.size())) {
    const int error = written < 0 ? errno : ENOSPC;
    throw RunError(path_ + ": cannot write: " + std::strerror(error) +
                   "; free some space and resume");
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
  }
  return steps;
}

}  // namespace equipoise
