#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/yaml_reader.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/planner/plan_run.h"

namespace equipoise::testing {

// Costs of 6,000 samples: packing the shipped histogram's 1.27 million takes longer than a search.
inline const std::string& FewSamples() {
  static const ScratchFolder kFolder;
  static const std::string kPath = kFolder.Path("costs.jsonl");
  if (std::filesystem::exists(kPath)) return kPath;
  std::ostringstream lines;
  for (int i = 0; i < 6000; ++i) {
    const int tiles = i * 7919 % 6, tokens = 100 + 256 * tiles + i * 6007 % 600;
    lines << R"({"vit_num":)" << tiles << R"(,"token_num":)" << tokens << "}\n";
  }
  WriteText(kPath, lines.str());
  return kPath;
}

// The shipped configuration of InternVL2-26B on 64 GPUs, with these settings.
inline RunConfig Config(const std::vector<std::string>& set, bool few_samples = true) {
  std::vector<Override> overrides;
  if (few_samples) {
    overrides = {ParseOverride("data.costs=" + FewSamples()),
                 ParseOverride("train.global_batch=128")};
  }
  for (const std::string& text : set) overrides.push_back(ParseOverride(text));
  RunConfig config;
  ReadConfig("configs/internvl2_26b_sft.yaml", overrides, config);
  return config;
}

// What a plan is refused with, by an error of this code.
inline std::string ErrorOf(const std::vector<std::string>& set, ExitCode code) {
  try {
    PlanRun(Config(set), {});
  } catch (const UserError& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

}  // namespace equipoise::testing
