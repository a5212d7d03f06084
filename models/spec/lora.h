#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

// Low-rank adapters (LoRA, Hu et al. 2021): y = x W' + b + scale * (x A') B', where W is frozen and
// A [rank, in], B [out, rank] are trained. Names and values are those of PEFT. LibTorch-free.
struct LoraConfig {
  // Linear layers that get an adapter: regular expressions on the names of modules, each of which
  // a name matches as a whole or from one of its dots on ("q_proj"); or "all-linear". Empty: no
  // adapters.
  std::vector<std::string> targets;
  int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;   // share of an adapter's inputs that training sets to 0
  bool rslora = false;  // scale alpha / sqrt(rank) (Kalajdzievski 2023)
  bool dora = false;    // magnitudes of the outputs are trained too (DoRA, Liu et al. 2024)
  // Modules that are trained in full beside the adapters, as `targets` names them.
  std::vector<std::string> train;
  // Components without adapters (model.freeze).
  std::vector<std::string> without;
  std::string folder;  // of PEFT, where the first step's adapters are read; empty: drawn

  bool on() const { return !targets.empty(); }
  double scale() const {
    const auto r = static_cast<double>(rank);
    return alpha / (rslora ? std::sqrt(r) : r);
  }
};

// Forms of frozen weights in fewer bits: NF4 in blocks of 64 with double quantisation (QLoRA,
// Dettmers et al. 2023), 8-bit integers with a scale for each row, and GPTQ's 4-bit integers.
enum class Packing : uint8_t { kNone, kNf4, kInt8, kGptq };

inline constexpr int64_t kNf4Block = 64;    // weights that share a scale
inline constexpr int64_t kNf4Nested = 256;  // scales that share a scale

// GPTQ's form of a weight [out, in] (Frantar et al. 2023): inputs of a group share a scale and a
// zero for each output.
struct GptqForm {
  int64_t group_size = -1;  // most inputs of a group; -1: all inputs are one
  bool act_order = false;   // a group's inputs may be any (desc_act)
  int zero_offset = 1;      // added to the zeros of a file: 1, or 0 in version 2 of the format

  int64_t Groups(int64_t inputs) const {
    return group_size < 0 ? 1 : (inputs + group_size - 1) / group_size;
  }
};

struct QuantizeConfig {
  Packing packing = Packing::kNone;
  std::vector<std::string> components;  // whose linear layers are packed
  GptqForm gptq = {};                   // of kGptq, as the model's folder has it
};

}  // namespace equipoise
