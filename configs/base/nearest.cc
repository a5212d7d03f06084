#include "configs/base/nearest.h"

#include <algorithm>

namespace equipoise {
namespace {

// The optimal string alignment distance: Levenshtein's with swaps of neighbours, each substring
// edited once. O(|a| |b|).
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] =
          std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

// The one candidate that holds a part's name, as "pipedream_2bw" does "2bw"; "" where several do.
std::string OnlyOneWith(const std::string& part, const std::vector<std::string>& candidates) {
  constexpr size_t kShortest = 3;  // shorter parts are in names by chance
  std::string only;
  if (part.size() < kShortest) return only;
  for (const std::string& candidate : candidates) {
    if (candidate.find(part) == std::string::npos) continue;
    if (!only.empty()) return "";
    only = candidate;
  }
  return only;
}

}  // namespace

std::string NearestName(const std::string& name, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // longer names are not misspelt keys
  if (name.size() > kLongest) return "";
  std::string best;
  size_t least = std::string::npos;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(name, candidate);
    const size_t allowed = (std::max(name.size(), candidate.size()) + 2) / 3;
    if (distance <= allowed && distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best.empty() ? OnlyOneWith(name, candidates) : best;
}

}  // namespace equipoise
