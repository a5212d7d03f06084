#include "trainer/check_recipe.h"

#include "configs/error.h"
#include "configs/json.h"

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

}  // namespace

CheckRecipe ReadCheckRecipe(const std::string& path) {
  const Json json = ReadJsonFile(path);
  if (!json.is_object()) throw DataError(path + ": not a JSON object");
  if (!json.contains("optimizer")) {
    throw DataError(path +
                    ": optimizer: missing; give a file with one recipe, such as the value of " +
                    "\"a\" in a file that holds several");
  }
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
