#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "models/spec/weight_names.h"
#include "models/weights/safetensors_file.h"

namespace equipoise {

// Linear layers of ours that are one in PEFT's model, such as q, k and v, have one adapter in its
// files. Ours are written to it one beneath the other: A has their rows in turn, and B is block
// diagonal, so that each uses its own ranks alone; the file's metadata says which they are. Where
// PEFT has trained the adapter, each of ours begins with all of A and its own rows of B, which is
// the same function. LibTorch-free.

// The place of one of our tensors in PEFT's file.
struct PeftTensor {
  std::string key;
  FusedRows outputs;  // of B and of magnitudes: the rows that are ours
  FusedRows ranks;    // the ranks that are ours: rows of A, columns of B
};

// Our name of a head's weight that is trained in full as the embedding that it is tied to; empty
// for other models. PEFT's file has it under both names, and PEFT ties them again only where the
// configuration says `ensure_weight_tying`: else its head stays the base's.
std::string TrainedTiedHead(const ModelConfig& config);

// All of a file's tensors by our names, a tied head beside its embedding left out. Throws DataError
// that begins with `path`.
std::map<std::string, PeftTensor> TensorsFromPeft(const ModelConfig& model,
                                                  const SafetensorsHeader& header,
                                                  const std::string& path);

// Our layers with adapters, by the name of the layer of PEFT's model that they are a part of, each
// in the order of its rows.
using FusedAdapters = std::map<std::string, std::vector<WeightNames::Held>>;
FusedAdapters FusedAdaptersOf(const ModelConfig& config);

// What is written of them to a file's metadata.
std::map<std::string, std::string> PeftMetadata(const FusedAdapters& fused);
// Reads that: our layers by PEFT's, empty for a file that is not ours. Throws DataError that begins
// with `path`.
std::map<std::string, std::vector<std::string>> FusedInFile(const SafetensorsHeader& header,
                                                            const std::string& path);

}  // namespace equipoise
