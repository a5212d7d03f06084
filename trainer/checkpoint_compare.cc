#include <string>
#include <vector>

#include "configs/error.h"
#include "trainer/checkpoint.h"
#include "trainer/json_difference.h"

namespace equipoise {

void CheckSections(const std::string& checkpoint_dir, const Json& saved, const Json& current) {
  const std::vector<JsonDifference> differences = JsonDifferences(saved, current);
  if (differences.empty()) return;
  throw ConfigError(checkpoint_dir + ": made with another configuration: " +
                    ListDifferences(differences, " was ", " and is ") +
                    "; change back, or start anew in another run.dir");
}

std::string EnvironmentDifference(const Json& saved, const Json& current) {
  return ListDifferences(JsonDifferences(saved, current), " ", " -> ");
}

}  // namespace equipoise
