#pragma once

#include <string>

namespace equipoise {

// Options of SetUpLogging().
struct LogOptions {
  int rank = 0;
  int size = 1;
  std::string file;      // log file to append to; empty: none
  bool verbose = false;  // whether debug messages are logged
};

// Sets spdlog's default logger, which writes to `file` and to standard error (rank 0 all messages,
// other ranks only errors). Lines have time, level and, if there are several ranks, the rank.
// Nothing is written to standard output, which is for results. May be called again, for example
// when the run folder is known. Throws RunError when the file cannot be opened.
void SetUpLogging(const LogOptions& options);

// Whether standard error is a terminal.
bool StderrIsTerminal();

// The terminal's number of columns; 0 if standard error is not a terminal, or its width is unknown.
int StderrColumns();

// Prefix of a line on standard error: on a terminal it erases the progress line.
std::string LineStart();

}  // namespace equipoise
