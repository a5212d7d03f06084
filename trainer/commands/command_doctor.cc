#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "configs/base/error.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/common/commands.h"
#include "trainer/common/logging.h"
#include "trainer/doctor/diagnosis.h"

namespace equipoise {
namespace {

struct Arguments {
  std::string subject, html, json;
};

int RunDoctor(const Arguments& arguments) {
  RequireOtherFile("--html", arguments.html, {arguments.subject});
  RequireOtherFile("--json", arguments.json, {arguments.subject, arguments.html});
  const Diagnosis diagnosis = Diagnose(arguments.subject);
  PrintDiagnosis(diagnosis, std::cout);
  if (!arguments.html.empty()) WriteResult(arguments.html, RenderDiagnosis(diagnosis));
  if (!arguments.json.empty())
    WriteResult(
        arguments.json,
        DiagnosisToJson(diagnosis).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddDoctorCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("doctor", "Says why ranks are idle, and what would change it");
  auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("SUBJECT", arguments->subject,
                   "a run folder, the JSON of `plan --json`, or a trace.json")
      ->required();
  command->add_option("--html", arguments->html, "file for the diagnosis as an HTML page");
  command->add_option("--json", arguments->json, "file for the diagnosis as JSON");
  command->footer(
      "Times of a run are measured (its trace.json and metrics.jsonl); remedies are simulated.\n\n"
      "Examples:\n  equipoise doctor runs/quickstart --html doctor.html\n"
      "  equipoise plan configs/internvl2_26b_sft.yaml --json plan.json; equipoise doctor "
      "plan.json");
  command->callback([arguments, &mpi, &run] {
    run = [arguments, &mpi] {
      RequireOneProcess(mpi, "doctor");
      SetUpLogging({mpi.rank(), mpi.size(), "", false});
      return RunDoctor(*arguments);
    };
  });
}

}  // namespace equipoise
