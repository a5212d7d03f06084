#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace equipoise {

class MpiEnvironment;

// Each of these functions adds one subcommand, with its options and an example, to the program.
// Parsing the command line sets `run`, which executes the command and returns the exit code; it
// throws UserError. `mpi` must outlive `run`.
void AddTrainCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);
void AddPlanCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);
// `colours`: standard output shows them.
void AddDataCommand(CLI::App& app, MpiEnvironment& mpi, bool colours, std::function<int()>& run);
void AddCheckCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);
void AddExportCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);
void AddGenerateCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);
void AddProfileCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);
void AddDoctorCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run);

// Throws ConfigError under mpirun with several ranks, all of which would do the same work.
void RequireOneProcess(const MpiEnvironment& mpi, const std::string& command);

// Throws ConfigError where the file that `option` is to write is one that the command reads.
void RequireOtherFile(const std::string& option, const std::string& path,
                      const std::vector<std::string>& inputs);

// Writes a result that an option has asked for to a file. Throws RunError where it cannot.
void WriteResult(const std::string& path, const std::string& text);

}  // namespace equipoise
