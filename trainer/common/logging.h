#pragma once

#include <string>

namespace equipoise {

struct LogOptions {
  int rank = 0;
  int size = 1;
  std::string file;      // appended to; empty = none
  bool verbose = false;  // debug lines too
};

// Makes spdlog's default logger write to `file` (every rank) and to standard error (rank 0; the
// other ranks only what is an error). Lines carry time, level and, when there are several ranks,
// the rank. Never writes to standard output, which carries results. May be called again, for
// example when the run folder is known. Throws RunError when the file cannot be opened.
void SetUpLogging(const LogOptions& options);

// Whether standard error is a terminal.
bool StderrIsTerminal();

// Its columns; 0 where it is no terminal, or does not say.
int StderrColumns();

// Start of a line on standard error: at a terminal it takes the place of the live line.
std::string LineStart();

}  // namespace equipoise
