#include "trainer/check/check_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"

namespace equipoise {
namespace {

std::vector<double> Numbers(const Json& json, const char* key, const std::string& path) {
  std::vector<double> numbers;
  if (!json[key].is_array()) throw DataError(fmt::format("{}: {}: not a list", path, key));
  for (const Json& value : json[key]) {
    if (!value.is_number())
      throw DataError(fmt::format("{}: {}: holds something that is no number", path, key));
    numbers.push_back(value.get<double>());
  }
  return numbers;
}

// Throws DataError unless the value lies within the bounds.
void Require(bool within, const std::string& path, const char* key, const char* bounds) {
  if (!within) throw DataError(fmt::format("{}: {}: must be {}", path, key, bounds));
}

// AdamW's variants, under the names of torch.optim.AdamW: a recipe that asks for one is of other
// steps than those that would be taken.
void RefuseVariants(const Json& json, const std::string& path) {
  for (const char* key : {"amsgrad", "maximize"}) {
    if (!GetBool(json, key, path, false)) continue;
    throw DataError(fmt::format(
        "{}: {}: is not supported; take the reference's steps without it, and leave it out", path,
        key));
  }
}

std::vector<double> LearningRates(const Json& json, const std::string& path) {
  if (json.contains("lrs")) return Numbers(json, "lrs", path);
  if (GetString(json, "schedule", path, "constant") != "constant") {
    throw DataError(path + ": lrs: missing; a schedule that is not constant needs one lr a step");
  }
  const auto steps = json.contains("losses")
                         ? static_cast<int64_t>(Numbers(json, "losses", path).size())
                         : GetInt(json, "steps", path, 10);
  if (steps < 1 || steps > 100000) throw DataError(path + ": steps: not between 1 and 100000");
  return std::vector<double>(static_cast<size_t>(steps), GetNumber(json, "lr", path));
}

// Value of --steps: a file, and the name of a recipe in it if given. The file's own name may
// contain a colon.
struct Choice {
  std::string path, name;
};

Choice ParseChoice(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || std::filesystem::exists(text)) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

struct LocatedRecipe {  // NOLINT(bugprone-exception-escape): Json asserts when it moves
  std::string where;    // prefix of error messages
  Json recipe;
};

LocatedRecipe ChooseRecipe(const Choice& choice, Json file) {
  const std::string& path = choice.path;
  if (!file.is_object()) throw DataError(path + ": not a JSON object");
  if (file.contains("optimizer")) {
    if (choice.name.empty()) return {path, std::move(file)};
    throw ConfigError(
        fmt::format("--steps {}:{}: the file holds one recipe without a name; leave ':{}' out",
                    path, choice.name, choice.name));
  }
  std::vector<std::string> names;
  for (const auto& [name, value] : file.items()) {
    if (value.is_object()) names.push_back(name);
  }
  if (names.empty()) throw DataError(path + ": optimizer: missing; this is no recipe of steps");
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  std::string chosen = choice.name;
  if (chosen.empty() && names.size() == 1) chosen = names[0];
  if (chosen.empty()) {
    throw ConfigError(
        fmt::format("--steps {}: holds the recipes {}; choose one, such as --steps {}:{}", path,
                    list, path, names[0]));
  }
  if (std::find(names.begin(), names.end(), chosen) == names.end()) {
    throw ConfigError(
        fmt::format("--steps {}:{}: no such recipe; the file holds {}", path, chosen, list));
  }
  return {fmt::format("{}: {}", path, chosen), file[chosen]};
}

}  // namespace

std::string RecipeFile(const std::string& choice) { return ParseChoice(choice).path; }

CheckRecipe ReadCheckRecipe(const std::string& text) {
  const Choice choice = ParseChoice(text);
  const auto [path, json] = ChooseRecipe(choice, ReadJsonFile(choice.path));
  if (GetString(json, "optimizer", path) != "AdamW") {
    throw DataError(path + ": optimizer: only AdamW is supported");
  }
  CheckRecipe recipe;
  RefuseVariants(json, path);
  recipe.lrs = LearningRates(json, path);
  const char* rates = json.contains("lrs") ? "lrs" : "lr";
  Require(!recipe.lrs.empty(), path, rates, "one learning rate a step, and is empty");
  for (const double lr : recipe.lrs) Require(lr >= 0, path, rates, "0 or above, such as 0.001");
  if (json.contains("betas")) {
    const std::vector<double> betas = Numbers(json, "betas", path);
    if (betas.size() != 2) throw DataError(path + ": betas: not two numbers");
    recipe.adamw.beta1 = betas[0];
    recipe.adamw.beta2 = betas[1];
    for (const double beta : betas) {
      Require(beta >= 0 && beta < 1, path, "betas",
              "two numbers of at least 0 and below 1, such as [0.9, 0.999]");
    }
  }
  recipe.adamw.eps = GetNumber(json, "eps", path, recipe.adamw.eps);
  Require(recipe.adamw.eps >= 0, path, "eps", "0 or above, such as 1e-8");
  recipe.weight_decay = GetNumber(json, "weight_decay", path, 0.0);
  Require(recipe.weight_decay >= 0, path, "weight_decay", "0 or above, such as 0.01");
  recipe.clip = GetNumber(json, "clip", path, 0.0);
  Require(recipe.clip >= 0, path, "clip", "the largest norm of the gradients, or 0 for none");
  const std::string decayed = GetString(json, "weight_decay_on", path, "all");
  recipe.decay_all = decayed == "all";
  if (!recipe.decay_all && decayed != "parameters with two or more dimensions") {
    throw DataError(
        fmt::format("{}: weight_decay_on: '{}' is neither 'all' nor 'parameters with two or more "
                    "dimensions'",
                    path, decayed));
  }
  return recipe;
}

std::vector<ParameterGroup> RecipeGroups(const CheckRecipe& recipe,
                                         const std::vector<Parameter*>& parameters) {
  if (!recipe.decay_all) {
    return DecayGroups(parameters, std::vector<double>(parameters.size(), 1.0),
                       recipe.weight_decay);
  }
  ParameterGroup all;
  all.weight_decay = recipe.weight_decay;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i]->trainable) all.indices.push_back(i);
  }
  return {all};
}

}  // namespace equipoise
