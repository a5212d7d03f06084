#include "trainer/check/check_recipe.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"

namespace equipoise {
namespace {

std::vector<double> Numbers(const Json& json, const char* key, const std::string& path) {
  std::vector<double> numbers;
  if (!json[key].is_array()) throw DataError(path + ": " + key + ": not a list");
  for (const Json& value : json[key]) {
    if (!value.is_number())
      throw DataError(path + ": " + key + ": holds something that is no number");
    numbers.push_back(value.get<double>());
  }
  return numbers;
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

// What --steps names: a file, and the recipe in it where one was chosen. The file's own name may
// hold a colon.
struct Choice {
  std::string path, name;
};

Choice ParseChoice(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || std::filesystem::exists(text)) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

struct Named {  // NOLINT(bugprone-exception-escape): Json asserts when it moves
  std::string where;
  Json recipe;
};

Named ChooseRecipe(const Choice& choice, Json file) {
  const std::string& path = choice.path;
  if (!file.is_object()) throw DataError(path + ": not a JSON object");
  if (file.contains("optimizer")) {
    if (choice.name.empty()) return {path, std::move(file)};
    throw ConfigError("--steps " + path + ":" + choice.name +
                      ": the file holds one recipe without a name; leave ':" + choice.name +
                      "' out");
  }
  std::vector<std::string> names;
  for (const auto& [name, value] : file.items()) {
    if (value.is_object()) names.push_back(name);
  }
  if (names.empty()) throw DataError(path + ": optimizer: missing; this is no recipe of steps");
  std::string list = names[0];
  for (size_t i = 1; i < names.size(); ++i) list += ", " + names[i];
  std::string chosen = choice.name;
  if (chosen.empty() && names.size() == 1) chosen = names[0];
  if (chosen.empty()) {
    throw ConfigError("--steps " + path + ": holds the recipes " + list +
                      "; choose one, such as --steps " + path + ":" + names[0]);
  }
  if (std::find(names.begin(), names.end(), chosen) == names.end()) {
    throw ConfigError("--steps " + path + ":" + chosen + ": no such recipe; the file holds " +
                      list);
  }
  return {path + ": " + chosen, file[chosen]};
}

}  // namespace

CheckRecipe ReadCheckRecipe(const std::string& text) {
  const Choice choice = ParseChoice(text);
  const auto [path, json] = ChooseRecipe(choice, ReadJsonFile(choice.path));
  if (GetString(json, "optimizer", path) != "AdamW") {
    throw DataError(path + ": optimizer: only AdamW is supported");
  }
  CheckRecipe recipe;
  recipe.lrs = LearningRates(json, path);
  if (json.contains("betas")) {
    const std::vector<double> betas = Numbers(json, "betas", path);
    if (betas.size() != 2) throw DataError(path + ": betas: not two numbers");
    recipe.adamw.beta1 = betas[0];
    recipe.adamw.beta2 = betas[1];
  }
  recipe.adamw.eps = GetNumber(json, "eps", path, recipe.adamw.eps);
  recipe.weight_decay = GetNumber(json, "weight_decay", path, 0.0);
  recipe.clip = GetNumber(json, "clip", path, 0.0);
  const std::string decayed = GetString(json, "weight_decay_on", path, "all");
  recipe.decay_all = decayed == "all";
  if (!recipe.decay_all && decayed != "parameters with two or more dimensions") {
    throw DataError(path + ": weight_decay_on: '" + decayed +
                    "' is neither 'all' nor 'parameters with two or more dimensions'");
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
