#pragma once

#include <string>
#include <vector>

#include "parallel/parameter.h"
#include "parallel/zero/adamw.h"

namespace equipoise {

// The optimizer steps of `check --steps`: AdamW on the same batch, to compare with another program.
struct CheckRecipe {
  AdamWOptions adamw;
  double weight_decay = 0;
  bool decay_all = false;   // else only parameters with two or more dimensions
  double clip = 0;          // gradient norm; 0: no clipping
  std::vector<double> lrs;  // learning rate of each step
};

// Reads the recipe `choice`, FILE or FILE:NAME. A file holds one recipe, or an object of recipes by
// name (members that are not objects are ignored); of several, NAME selects one. A recipe is
// {"optimizer": "AdamW", "lr", "betas", "eps", "weight_decay", "weight_decay_on": "all" |
// "parameters with two or more dimensions", "clip": number | null, "schedule", "lrs"}. `lrs` gives
// one learning rate per step and is required unless the schedule is "constant"; the number of steps
// is its length, else that of `losses`, else `steps`, else 10. Throws ConfigError for a choice that
// is missing or not in the file, DataError for a recipe that is invalid or not supported.
CheckRecipe ReadCheckRecipe(const std::string& choice);

// The file of such a choice.
std::string RecipeFile(const std::string& choice);

// The optimizer's parameter groups for a recipe.
std::vector<ParameterGroup> RecipeGroups(const CheckRecipe& recipe,
                                         const std::vector<Parameter*>& parameters);

}  // namespace equipoise
