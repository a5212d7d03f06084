#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/groups/group_method.h"
#include "balance/search/plan_rules.h"
#include "configs/yaml/fields.h"
#include "parallel/recompute.h"

namespace equipoise {

// How samples form micro-batches, layers form stages, and what is computed again (OmniBal).
struct BalanceSection {
  GroupMethod group = GroupMethod::kIsfPlus;
  bool pad = false;
  int64_t tiles = 0, tokens = 0, min_tiles = 0, min_tokens = 0, rounds = 50, window = 0;
  std::string limits = "fit";
  PartitionRule partition = PartitionRule::kBalanced;
  RecomputeRule recompute = RecomputeRule::kAdaptive;
  std::vector<std::string> recompute_modules;
  std::vector<Recompute> recompute_layers;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit(
        "group", group,
        "how samples form micro-batches: isf+ (full and alike in tiles and tokens), isf (OmniBal), "
        "packed (filled with tokens), knapsack (even in tokens), random and length_grouped "
        "(train.micro_batch samples)");
    visit(
        "pad", pad,
        "pad each sample to the longest of its micro-batch, for comparison with trainers that do "
        "(random and length_grouped alone); pad_ratio, in metrics and tables, is the share of the "
        "computed token positions that are padding");
    visit(
        "tiles", tiles,
        "most tiles of a pack; 0 = the fewest that leave packs full (isf+), or what `tokens` bring "
        "on average",
        Between(0, 4095));
    visit("tokens", tokens, "most tokens of a pack; 0 = data.max_tokens", Between(0, 16777215));
    visit(
        "limits", limits,
        "where neither tiles nor tokens are given: fit = lower ones where nothing fits the memory; "
        "search = besides, packs of half, a quarter and twice the size, with train.global_batch "
        "changed so that a step keeps its samples, where that is clearly faster",
        OneOf({"fit", "search"}));
    visit("min_tiles", min_tiles, "isf accepts a pack from here on; 0 = tiles", Between(0, 4095));
    visit("min_tokens", min_tokens, "isf accepts a pack from here on; 0 = 31/32 of tokens",
          Between(0, 16777215));
    visit("rounds", rounds, "of sampling and filtering, isf", Between(1, 10000));
    visit("window", window,
          "samples that are grouped at a time, for data whose sizes do not fit in memory; 0 = all",
          Between(0, 1e12));
    visit("partition", partition,
          "how layers are cut into stages: bmp = by predicted seconds, ranked by the simulator; "
          "flops, parameters = so that the stage with most of these has as few as can be");
    visit(
        "recompute", recompute,
        "what of each layer is computed again in backward instead of kept, to save memory: bar = "
        "the least that fits, for each rank; or nothing, all, or a half of each transformer block; "
        "elementwise: results of its norms and activation function, which take no product; "
        "offload: nothing, but what blocks keep lies in host memory; full_offload: all, and their "
        "inputs lie there");
    visit("recompute_modules", recompute_modules,
          "modules whose layers `recompute` is for: vision, projector, llm; absent = all");
    visit("recompute_layers", recompute_layers,
          "one word a layer (vision, projector, LLM as one list), in place of the two above");
  }
};

}  // namespace equipoise
