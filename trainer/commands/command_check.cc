#include <ATen/ops/scalar_tensor.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/overrides.h"
#include "configs/yaml/yaml_reader.h"
#include "models/families/families.h"
#include "models/spec/model_config.h"
#include "models/weights/safetensors.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/check/check_inputs.h"
#include "trainer/check/check_recipe.h"
#include "trainer/check/check_run.h"
#include "trainer/checkpoint/base_weights.h"
#include "trainer/common/agreement.h"
#include "trainer/common/commands.h"
#include "trainer/planner/make_plan.h"
#include "trainer/run/parallel_model.h"
#include "trainer/run/set_up_run.h"
#include "trainer/settings/hub_cache.h"
#include "trainer/settings/loss_scaler.h"
#include "trainer/settings/model_section.h"
#include "trainer/settings/run_config.h"

namespace equipoise {
namespace {

struct Arguments {
  std::string model;
  std::string inputs;
  std::string out;
  std::string steps;
  bool gradients = false;
  std::vector<std::string> set;
};

RunConfig ReadSettings(const std::vector<std::string>& set) {
  const std::vector<Override> overrides = ParseOverrides(set);
  RunConfig config;
  config.train.precision = "fp32";
  ReadConfigText("--set", "{}", overrides, config);
  return config;
}

int RunCheck(const Arguments& arguments, MpiEnvironment& mpi) {
  RequireOtherFile("--out", arguments.out, {arguments.inputs, RecipeFile(arguments.steps)});
  RunConfig config = ReadSettings(arguments.set);
  std::optional<CheckRecipe> recipe;
  if (!arguments.steps.empty()) recipe = ReadCheckRecipe(arguments.steps);
  const RunSetup setup = SetUpRun(config, mpi);
  Communicator& world = *setup.world;
  config.model.hf = OrOnHub(arguments.model, HubKind::kModel);
  const ModelConfig model_config = ModelConfigOf(config.model);
  if (arguments.gradients || recipe) RequireTrained(model_config);
  const Plan plan = MakePlan(config, model_config, mpi.size());
  TimelineRecorder recorder(mpi.rank());
  ParallelModel model(model_config, plan, ModelOptionsOf(config, setup), world, recorder);
  model.parameters().SetWeights([&](const std::vector<Parameter*>& some) {
    SetFirstWeights(some, model_config, config.model, static_cast<uint64_t>(config.train.seed));
  });
  CheckInputs inputs = ReadCheckInputs(arguments.inputs, model_config, config.train.loss);
  const bool has_labels = inputs.has_labels;
  if (!has_labels && (arguments.gradients || !arguments.steps.empty())) {
    throw DataError(arguments.inputs + ": labels: missing; gradients and steps need them");
  }
  CheckRun check(config.model.hf, std::move(inputs), model, world, recipe);
  check.ScaleLoss(LossScaler(config.train));

  CheckRun::Tensors out;
  out["logits"] = check.Logits();
  if (has_labels) {
    const double loss = arguments.gradients ? check.LossAndGradients() : check.Loss();
    out["loss"] = at::scalar_tensor(loss, at::kFloat);
  }
  if (arguments.gradients) check.CollectGradients(out);
  if (recipe) {
    // The steps overwrite the gradients, which the tensors may alias.
    for (auto& [name, tensor] : out) tensor = tensor.clone();
    check.RunSteps(out);
  }
  AgreeOrThrowRunError(world, [&] {
    if (mpi.rank() == 0) WriteSafetensors(arguments.out, {out.begin(), out.end()});
  });
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddCheckCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand(
      "check", "Runs a Hugging Face folder on given tensors, to compare with another program");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("MODEL_DIR", arguments->model, "folder with config.json and safetensors")
      ->required();
  command
      ->add_option("INPUTS", arguments->inputs,
                   "safetensors file: input_ids [B, T], and labels, attention_mask, position_ids, "
                   "cu_seqlens, pixel_values, images_per_sample")
      ->required();
  command->add_option("--out", arguments->out, "safetensors file: logits, loss, grad.*, after.*")
      ->required();
  command->add_flag("--gradients", arguments->gradients, "writes the gradient of each weight");
  command->add_option(
      "--steps", arguments->steps,
      "FILE or FILE:NAME: JSON recipe of AdamW steps on this batch, NAME chooses one of several in "
      "the file: writes losses, grad_norms, after.*");
  command->add_option("--set", arguments->set, "a.b=c: one setting, such as train.precision=bf16")
      ->allow_extra_args(false);
  command->footer(
      "Examples:\n  equipoise check model inputs.safetensors --out out.safetensors --gradients\n"
      "  equipoise check model inputs.safetensors --out out.safetensors --steps steps.json:b");
  command->callback(
      [arguments, &mpi, &run] { run = [arguments, &mpi] { return RunCheck(*arguments, mpi); }; });
}

}  // namespace equipoise
