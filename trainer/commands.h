#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace equipoise {

class MpiEnvironment;
struct Launch;

// Each function adds one subcommand, with its options and an example, to the program. Parsing the
// command line sets `run`, which does the work and returns the exit code; it throws UserError.
// `launch` and `mpi` must outlive `run`.
void AddDataCommand(CLI::App& app, const Launch& launch, std::function<int()>& run);
void AddCheckCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);
}  // namespace equipoise
