#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace equipoise {

class MpiEnvironment;

// Each function adds one subcommand, with its options and an example, to the program. Parsing the
// command line sets `run`, which does the work and returns the exit code; it throws UserError.
// `mpi` must outlive `run`.
void AddTrainCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);
void AddDataCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);
void AddCheckCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);
void AddExportCommand(CLI::App& app, std::function<int()>& run);
void AddGenerateCommand(CLI::App& app, std::function<int()>& run);

}  // namespace equipoise
