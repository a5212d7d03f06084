#include <string>
#include <vector>

#include "configs/error.h"
#include "trainer/checkpoint.h"

namespace equipoise {
namespace {

constexpr size_t kMostNamed = 8;

struct Difference {
  std::string key;    // dotted path
  std::string saved;  // JSON text; "absent"
  std::string current;
};

std::string Text(const Json* value) {
  return value == nullptr ? "absent" : value->dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Compare(const std::string& key, const Json* saved, const Json* current,
             std::vector<Difference>& out) {
  if (saved != nullptr && current != nullptr) {
    if (*saved == *current) return;
    if (saved->is_object() && current->is_object()) {
      const std::string lead = key.empty() ? "" : key + ".";
      for (const auto& [name, value] : saved->items()) {
        const auto other = current->find(name);
        Compare(lead + name, &value, other == current->end() ? nullptr : &*other, out);
      }
      for (const auto& [name, value] : current->items()) {
        if (!saved->contains(name)) Compare(lead + name, nullptr, &value, out);
      }
      return;
    }
    if (saved->is_array() && current->is_array() && saved->size() == current->size()) {
      for (size_t i = 0; i < saved->size(); ++i) {
        Compare(key + "[" + std::to_string(i) + "]", &(*saved)[i], &(*current)[i], out);
      }
      return;
    }
  }
  out.push_back({key, Text(saved), Text(current)});
}

std::vector<Difference> Differences(const Json& saved, const Json& current) {
  std::vector<Difference> out;
  Compare("", &saved, &current, out);
  return out;
}

}  // namespace

void CheckSections(const std::string& checkpoint_dir, const Json& saved, const Json& current) {
  const std::vector<Difference> differences = Differences(saved, current);
  if (differences.empty()) return;
  std::string text;
  for (size_t i = 0; i < differences.size() && i < kMostNamed; ++i) {
    const Difference& d = differences[i];
    text += (i == 0 ? "" : ", ") + d.key + " was " + d.saved + " and is " + d.current;
  }
  if (differences.size() > kMostNamed) {
    text += " and " + std::to_string(differences.size() - kMostNamed) + " more";
  }
  throw ConfigError(checkpoint_dir + ": made with another configuration: " + text +
                    "; change back, or start anew in another run.dir");
}

std::string EnvironmentDifference(const Json& saved, const Json& current) {
  std::string text;
  for (const Difference& d : Differences(saved, current)) {
    text += (text.empty() ? "" : ", ") + d.key + " " + d.saved + " -> " + d.current;
  }
  return text;
}

}  // namespace equipoise
