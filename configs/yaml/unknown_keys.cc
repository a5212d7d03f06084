#include "configs/yaml/unknown_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "configs/base/nearest.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/familiar_names.h"

namespace equipoise::internal {
namespace {

constexpr size_t kMostNamed = 40;  // in one message

// `'train.y' (line 7: write train.lr)`
std::string BesideOthers(const YamlNode& node, const std::string& parent,
                         const std::vector<std::string>& known) {
  std::string about = node.line > 0 ? fmt::format("line {}", node.line) : "";
  std::string way = FamiliarName(node.text).brief;
  const std::string near = way.empty() ? NearestName(node.text, known) : "";
  if (!near.empty()) way = fmt::format("write {}", JoinKey(parent, near));
  if (!way.empty()) about += (about.empty() ? "" : ": ") + way;
  const std::string name = fmt::format("'{}'", ShownText(JoinKey(parent, node.text), 60));
  return about.empty() ? name : fmt::format("{} ({})", name, about);
}

std::string WhatIsUnknown(const std::string& parent, const std::string& name,
                          const std::vector<std::string>& known) {
  const std::string familiar = FamiliarName(name).whole;
  if (!familiar.empty()) return "unknown key; " + familiar;
  const std::string near = NearestName(name, known);
  return near.empty() ? fmt::format("unknown key; known here: {}", fmt::join(known, ", "))
                      : fmt::format("unknown key; did you mean '{}'?", JoinKey(parent, near));
}

}  // namespace

std::string JoinKey(const std::string& parent, const std::string& name) {
  return parent.empty() ? name : parent + "." + name;
}

void UnknownKeys::Add(const YamlNode& map, const std::string& parent,
                      const std::vector<std::string>& known) {
  for (const YamlNode& key : map.keys) {
    if (std::find(known.begin(), known.end(), key.text) != known.end()) continue;
    if (++count_ <= kMostNamed) first_.push_back({&key, parent, known});
  }
}

void UnknownKeys::Throw() {
  if (first_.empty()) return;
  std::stable_sort(first_.begin(), first_.end(), [](const Key& a, const Key& b) {
    return std::tie(a.node->line, a.node->column) < std::tie(b.node->line, b.node->column);
  });
  const Key& key = first_.front();
  std::string what = WhatIsUnknown(key.parent, key.node->text, key.known);
  for (size_t i = 1; i < first_.size(); ++i) {
    what += i == 1 ? "; also unknown: " : ", ";
    what += BesideOthers(*first_[i].node, first_[i].parent, first_[i].known);
  }
  if (count_ > first_.size()) what += fmt::format(" and {} more", count_ - first_.size());
  FailAt(*key.node, JoinKey(key.parent, key.node->text), what);
}

void FailUnknownKey(const YamlNode& node, const std::string& parent, const std::string& name,
                    const std::vector<std::string>& known) {
  FailAt(node, JoinKey(parent, name), WhatIsUnknown(parent, name, known));
}

}  // namespace equipoise::internal
