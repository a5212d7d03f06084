#include "trainer/logging.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "configs/error.h"

namespace equipoise {

bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

std::string LineStart() { return StderrIsTerminal() ? "\r\033[K" : ""; }

void SetUpLogging(const LogOptions& options) {
  const std::string who = options.size > 1 ? "[rank " + std::to_string(options.rank) + "] " : "";
  auto terminal = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  terminal->set_pattern(LineStart() + "%H:%M:%S %L " + who + "%v");
  if (options.rank != 0) terminal->set_level(spdlog::level::err);
  std::vector<spdlog::sink_ptr> sinks = {terminal};
  if (!options.file.empty()) {
    try {
      auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
      file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l " + who + "%v");
      sinks.push_back(std::move(file));
    } catch (const spdlog::spdlog_ex& error) {
      throw RunError(options.file + ": " + error.what());
    }
  }
  auto logger = std::make_shared<spdlog::logger>("equipoise", sinks.begin(), sinks.end());
  logger->set_level(options.verbose ? spdlog::level::debug : spdlog::level::info);
  logger->flush_on(spdlog::level::debug);  // a killed rank has its lines on disk
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace equipoise
