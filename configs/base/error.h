#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace equipoise {

// Exit codes of the program (docs/design.md, command line).
enum class ExitCode : int {
  kDone = 0,
  kBadUsage = 2,   // usage, configuration, mismatched configurations or binaries
  kNoPlan = 3,     // no plan fits
  kBadData = 4,    // unusable data or checkpoint
  kRunFailed = 5,  // failure while running: rank, operation, peer
  kStopped = 75,   // stopped on request, after saving
};

// A failure that the user can correct. Its text is one line: where, what is wrong, what to do. Only
// main() catches it: rank 0 prints the line and every rank exits with `code`.
class UserError : public std::runtime_error {
 public:
  UserError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Bad usage or configuration. `message` begins with `file:line:col: key:` where there is a file.
class ConfigError : public UserError {
 public:
  explicit ConfigError(const std::string& message) : UserError(ExitCode::kBadUsage, message) {}
};

// Unusable data or checkpoint. `message` begins with `file:line:` or `file:`.
class DataError : public UserError {
 public:
  explicit DataError(const std::string& message) : UserError(ExitCode::kBadData, message) {}
};

// A failure of a run on this rank (a peer that hangs, a full disk): every rank prints its own line.
class RunError : public UserError {
 public:
  explicit RunError(const std::string& message) : UserError(ExitCode::kRunFailed, message) {}
};

namespace internal {
[[noreturn]] inline void FailCheck(const char* file, int line, const char* condition,
                                   const std::string& detail) {
  std::ostringstream out;
  out << file << ":" << line << ": internal error: " << condition << " is false" << detail;
  throw std::logic_error(out.str());
}
}  // namespace internal

}  // namespace equipoise

// Checks a contract between parts of the program; a failure is a bug, never the user's fault.
// Throws std::logic_error with the place, the condition and the values that follow it:
//   EQUIPOISE_CHECK(a == b, "a ", a, " b ", b);
#define EQUIPOISE_CHECK(condition, ...)                                                   \
  do {                                                                                    \
    if (!(condition)) [[unlikely]] {                                                      \
      ::equipoise::internal::FailCheck(__FILE__, __LINE__, #condition,                    \
                                       ::equipoise::internal::Join(": ", ##__VA_ARGS__)); \
    }                                                                                     \
  } while (false)

namespace equipoise::internal {
template <class... Parts>
std::string Join(const char* lead, const Parts&... parts) {
  if constexpr (sizeof...(parts) == 0) {
    return "";
  } else {
    std::ostringstream out;
    out << lead;
    (out << ... << parts);
    return out.str();
  }
}
}  // namespace equipoise::internal
