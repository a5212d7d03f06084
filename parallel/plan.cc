#include "parallel/plan.h"

#include <array>

#include "configs/error.h"

namespace equipoise {
namespace {

constexpr std::array<const char*, 4> kRecomputeNames = {"none", "attention", "mlp", "full"};

}  // namespace

std::string ToString(Recompute recompute) {
  return kRecomputeNames[static_cast<size_t>(recompute)];
}

Recompute ParseRecompute(const std::string& word) {
  for (size_t i = 0; i < kRecomputeNames.size(); ++i) {
    if (word == kRecomputeNames[i]) return static_cast<Recompute>(i);
  }
  EQUIPOISE_CHECK(false, "no recompute '", word, "'");
  return Recompute::kNone;
}

}  // namespace equipoise
