#include "trainer/common/logging.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"

namespace equipoise {

namespace {

// The flag %*: the message without control characters, as it may contain text from files.
class ShownMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string text = TerminalText({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<ShownMessage>();
  }
};

std::unique_ptr<spdlog::pattern_formatter> FormatterOf(const std::string& pattern) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<ShownMessage>('*').set_pattern(pattern);
  return formatter;
}

}  // namespace

bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

int StderrColumns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string LineStart() { return StderrIsTerminal() ? "\r\033[K" : ""; }

void SetUpLogging(const LogOptions& options) {
  const std::string prefix = options.size > 1 ? fmt::format("[rank {}] ", options.rank) : "";
  auto terminal = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  terminal->set_formatter(FormatterOf(fmt::format("{}%H:%M:%S %L {}%*", LineStart(), prefix)));
  if (options.rank != 0) terminal->set_level(spdlog::level::err);
  std::vector<spdlog::sink_ptr> sinks = {terminal};
  if (!options.file.empty()) {
    try {
      auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
      file->set_formatter(FormatterOf(fmt::format("%Y-%m-%d %H:%M:%S.%e %l {}%*", prefix)));
      sinks.push_back(std::move(file));
    } catch (const spdlog::spdlog_ex& error) {
      throw RunError(fmt::format("{}: {}", options.file, error.what()));
    }
  }
  auto logger = std::make_shared<spdlog::logger>("equipoise", sinks.begin(), sinks.end());
  logger->set_level(options.verbose ? spdlog::level::debug : spdlog::level::info);
  logger->flush_on(spdlog::level::debug);  // so that a killed rank loses no message
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace equipoise
