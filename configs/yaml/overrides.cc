#include "configs/yaml/overrides.h"

namespace equipoise {

std::vector<Override> ParseOverrides(const std::vector<std::string>& settings) {
  std::vector<Override> overrides;
  overrides.reserve(settings.size());
  for (const std::string& text : settings) overrides.push_back(ParseOverride(text));
  return overrides;
}

}  // namespace equipoise
