#include "trainer/common/json_difference.h"

#include <fmt/format.h>

namespace equipoise {
namespace {

constexpr size_t kMostNamed = 8;

std::string Text(const Json* value) {
  return value == nullptr ? "absent" : value->dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Compare(const std::string& key, const Json* first, const Json* second,
             std::vector<JsonDifference>& out) {
  if (first != nullptr && second != nullptr) {
    if (*first == *second) return;
    if (first->is_object() && second->is_object()) {
      const std::string prefix = key.empty() ? "" : key + ".";
      for (const auto& [name, value] : first->items()) {
        const auto other = second->find(name);
        Compare(prefix + name, &value, other == second->end() ? nullptr : &*other, out);
      }
      for (const auto& [name, value] : second->items()) {
        if (!first->contains(name)) Compare(prefix + name, nullptr, &value, out);
      }
      return;
    }
    if (first->is_array() && second->is_array() && first->size() == second->size()) {
      for (size_t i = 0; i < first->size(); ++i) {
        Compare(fmt::format("{}[{}]", key, i), &(*first)[i], &(*second)[i], out);
      }
      return;
    }
  }
  out.push_back({key, Text(first), Text(second)});
}

}  // namespace

std::vector<JsonDifference> JsonDifferences(const Json& first, const Json& second) {
  std::vector<JsonDifference> out;
  Compare("", &first, &second, out);
  return out;
}

std::string ListDifferences(const std::vector<JsonDifference>& differences, const std::string& verb,
                            const std::string& join) {
  std::string text;
  for (size_t i = 0; i < differences.size() && i < kMostNamed; ++i) {
    const JsonDifference& d = differences[i];
    text += i == 0 ? "" : ", ";
    text.append(d.key).append(verb).append(d.first).append(join).append(d.second);
  }
  if (differences.size() > kMostNamed) {
    text += fmt::format(" and {} more", differences.size() - kMostNamed);
  }
  return text;
}

}  // namespace equipoise
