#pragma once

#include <string>
#include <vector>

#include "parallel/parameter.h"
#include "parallel/zero/adamw.h"

namespace equipoise {

// AdamW steps on the same batch, as `check --steps` runs them to be compared with another program.
struct CheckRecipe {
  AdamWOptions adamw;
  double weight_decay = 0;
  bool decay_all = false;   // else parameters with two or more dimensions alone
  double clip = 0;          // 0 = no clipping
  std::vector<double> lrs;  // of each step
};

// `choice` is FILE or FILE:NAME. A file holds one recipe, or an object of recipes by name (members
// that are no objects are passed over); with several of them NAME chooses one. A recipe is
// {"optimizer": "AdamW", "lr", "betas", "eps", "weight_decay", "weight_decay_on": "all" |
// "parameters with two or more dimensions", "clip": number | null, "schedule", "lrs"}. `lrs` gives
// one learning rate a step and is needed unless the schedule is "constant"; the number of steps is
// its length, else that of `losses`, else `steps`, else 10. Throws ConfigError for a choice that is
// missing or not in the file, DataError for a recipe that cannot be followed.
CheckRecipe ReadCheckRecipe(const std::string& choice);

// The optimizer's groups for a recipe.
std::vector<ParameterGroup> RecipeGroups(const CheckRecipe& recipe,
                                         const std::vector<Parameter*>& parameters);

}  // namespace equipoise
