#include "tests/fuzz/fuzz_targets.h"

#include <algorithm>
#include <cstdint>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/yaml_reader.h"
#include "data/images/image_codec.h"
#include "data/images/image_size.h"
#include "data/records/record.h"
#include "data/text/pretokenizer.h"
#include "data/text/text_error.h"
#include "data/text/text_normalizer.h"
#include "data/text/tokenizer_json.h"
#include "models/families/families.h"
#include "models/spec/model_config.h"
#include "models/weights/safetensors_file.h"
#include "parallel/schedule/schedule_text.h"
#include "tests/data/image_samples.h"
#include "tests/data/tiny_tokenizer.h"
#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/checkpoint/checkpoint_integrity.h"
#include "trainer/checkpoint/checkpoint_json.h"
#include "trainer/settings/run_config.h"

namespace equipoise {
namespace {

void RunImage(std::string_view bytes) {
  try {
    const ImageLimits limits{1 << 16, 1 << 20};
    const ImageHeader header = ParseImageHeader(bytes, limits);
    const auto [width, height] = header.size;
    std::vector<uint8_t> rgb(static_cast<size_t>(3 * width * height));
    (header.kind == ImageKind::kJpeg ? DecodeJpeg : DecodePng)(bytes, header.size, rgb.data());
    // Sizes that take both orders of the passes.
    const ImageSize smaller{width / 2 + 1, std::min<int64_t>(height / 3 + 1, 50)};
    std::vector<uint8_t> resized(static_cast<size_t>(3 * smaller.width * smaller.height));
    ResizeBicubicRgb(rgb.data(), header.size, resized.data(), smaller);
  } catch (const ImageError&) {
  }
}

void RunJson(std::string_view bytes) {
  try {
    ParseJson(bytes, "fuzz").dump();
  } catch (const DataError&) {
  }
}

void RunRecord(std::string_view bytes) {
  const ParsedRecord parsed = ParseRecord(bytes);
  EQUIPOISE_CHECK(parsed.reason.empty() == (parsed.defect == Defect::kNone));
}

void RunModelConfig(std::string_view bytes) {
  try {
    const ModelConfig config = ParseModelConfig(ParseJson(bytes, "fuzz"), "fuzz");
    ParseModelConfig(ToHuggingFace(config), "written");
  } catch (const DataError&) {
  }
}

void RunSafetensors(std::string_view bytes) {
  try {
    ParseSafetensorsHeader(bytes, 64, "fuzz");
  } catch (const DataError&) {
  }
}

void RunTokenizer(std::string_view bytes) {
  constexpr std::string_view kText =
      "It's 12 caf\xC3\xA9s, e\xCC\x81 \xE4\xBD\xA0\xE5\xA5\xBD!\n\n  x";
  try {
    const TokenizerSpec spec = ReadTokenizerSpec(std::string(bytes), "fuzz");
    const TextNormalizer normalizer(spec.normal_form, "fuzz");
    const PreTokenizer pre_tokenizer(spec.pre_tokenizer, "fuzz");
    const BpeModel bpe(&spec.vocabulary, spec.merges, spec.options);
    std::vector<int32_t> ids;
    pre_tokenizer.Split(normalizer.Run(kText),
                        [&](std::string_view word) { bpe.Encode(word, ids); });
  } catch (const DataError&) {
  }
}

void RunConfiguration(std::string_view bytes) {
  try {
    RunConfig config;
    ReadConfigText("fuzz", std::string(bytes), {}, config);
  } catch (const ConfigError&) {
  }
}

void RunSchedule(std::string_view bytes) {
  try {
    ToText(ParseSchedule(std::string(bytes), "fuzz"));
  } catch (const ConfigError&) {
  }
}

void RunCheckpointIndex(std::string_view bytes) {
  try {
    const CheckpointIndex index = ParseCheckpointIndex(bytes, "fuzz");
    for (const auto& [name, pieces] : index.tensors) {
      for (const StoredPiece& stored : pieces) {
        EQUIPOISE_CHECK(stored.whole || PieceSize(stored.piece) >= 0, name);
      }
    }
    const Json written = TensorsToJson(index.tensors);
    EQUIPOISE_CHECK(TensorsToJson(TensorsFromJson(written, "written")) == written);
  } catch (const DataError&) {
  }
}

void RunShownText(std::string_view bytes) {
  for (const char c : ShownText(bytes)) {
    EQUIPOISE_CHECK(static_cast<uint8_t>(c) >= 0x20 && c != 0x7f);
  }
}

constexpr char kModel[] = R"({"model_type": "internvl", "downsample_ratio": 0.5,
  "image_token_id": 310, "tie_word_embeddings": false,
  "vision_config": {"model_type": "internvl_vision", "hidden_size": 48, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": [56, 56],
    "patch_size": [14, 14], "norm_type": "rms_norm"},
  "text_config": {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}}})";
constexpr char kHeader[] =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},)"
    R"("b":{"dtype":"BF16","shape":[16],"data_offsets":[32,64]}})";
constexpr char kConfiguration[] =
    "run: {dir: runs/a}\nmodel: {hf: \"models/b\", freeze: [vision, llm]}\ndata:\n  train:\n"
    "    - {annotations: a.jsonl, images: &i img, repeat: 2}\n    - {annotations: b.jsonl, "
    "images: *i}\n  max_tokens: 4096\ntrain: {steps: 10, lr: 1e-4}\nparallel: auto\n";
constexpr char kSchedule[] =
    "# one\nmicro_batches 2\nstage 0 rank 0 next 1 encoder\nstage 1 rank 1\nidle 0F1\n"
    "rank 0: 0F0 0S0>1 0F1 (0S1>1 0R0<1) 0B0 0B1 0REDUCE OPT\nrank 1: 1F0 1B0 OPT\n";
constexpr char kRecord[] =
    R"({"id": "a", "image": ["a.png", "b.png"], "width": 5, "conversations": [{"from": "human",)"
    R"( "value": "<image> and <image>"}, {"from": "gpt", "value": "A", "weight": 1}]})";

// Of version 2, which has no checksum that would refuse whatever is damaged.
constexpr char kCheckpoint[] = R"({"format": "equipoise-checkpoint", "version": 2,
  "state": {"step": 9, "epoch": 1, "pack": 3, "optimizer_step": 8, "tokens": 90, "samples": 30,
    "images": 20, "skipped_samples": 1, "non_finite_in_a_row": 1},
  "environment": {"threads": 1}, "sections": {"model": {"hf": "a"}, "data": {"max_tokens": 64}},
  "files": {"rank-00000.safetensors": {"bytes": 640, "xxh3_64": "0123456789abcdef"},
    "rank-00001.safetensors": {"bytes": 320, "xxh3_64": "fedcba9876543210"}},
  "tensors": {"a": "rank-00000.safetensors", "b": {"shape": [4, 6], "pieces": [
    {"file": "rank-00000.safetensors", "dim": 1, "begin": 0, "end": 3},
    {"file": "rank-00001.safetensors", "dim": 1, "begin": 3, "end": 6, "runs": [[0, 8], [8, 12]]}]}}
})";

std::vector<std::string> CheckpointIndexes() {
  std::string with_checksum = kCheckpoint;
  with_checksum.replace(with_checksum.find("2,"), 1, "3");
  return {kCheckpoint, WithChecksum(with_checksum)};
}

const std::vector<std::string>& JsonWords() {
  static const std::vector<std::string> kWords = {"{",        "}",       "[",
                                                  "]",        ",",       ":",
                                                  "\"",       "null",    "true",
                                                  "-1",       "1e400",   "18446744073709551616",
                                                  "\\ud800",  "\\u0000", "{\"a\":1,\"a\":2}",
                                                  "[[[[[[[[", "0",       "\"a\""};
  return kWords;
}

std::vector<FuzzTarget> MakeTargets() {
  const std::string schedule = kSchedule, configuration = kConfiguration;
  std::vector<FuzzTarget> targets = {
      {"image",
       RunImage,
       {MakePng({20, 10}), MakeJpeg({16, 16}), MakeJpeg({24, 8}, {1, true, 0}),
        MakeJpeg({9, 9}, {4, false, 40})},
       {"IDAT", "IEND", "PLTE", "tRNS", "\xff\xd8", "\xff\xda", "\xff\xc4", "\xff\xdd"}},
      {"json", RunJson, {kModel, kHeader, kRecord}, JsonWords()},
      {"record", RunRecord, {kRecord}, JsonWords()},
      {"model_config", RunModelConfig, {kModel}, JsonWords()},
      {"safetensors", RunSafetensors, {kHeader}, JsonWords()},
      {"tokenizer", RunTokenizer, {TinyTokenizerJson().dump()}, JsonWords()},
      {"configuration",
       RunConfiguration,
       {configuration},
       {"&a ", "*a", "<<: ", "!!int ", "|\n", "- ", "? ", "#", "{", "}", "[", "\t", "---\n", "~",
        "0x10", "1e999", "%YAML 9\n"}},
      {"schedule",
       RunSchedule,
       {schedule},
       {"(", ")", ">", "<", "rank 4: ", "stage 2147483648 ", "OPT", "-1", "999999999", "next "}},
      {"shown_text", RunShownText, {"caf\xC3\xA9\x1b[2J\n\xE2\x80\xAE\xff"}, {"\xC2\x9B"}},
      {"checkpoint_index", RunCheckpointIndex, CheckpointIndexes(), JsonWords()}};
  for (const char* pattern :
       {"(?=", "(?<!", "(?i:", "\\\\p{L}", "[^", "{1,3}", "++", "\\\\x{110000}"})
    targets[5].words.push_back(pattern);
  return targets;
}

}  // namespace

const std::vector<FuzzTarget>& FuzzTargets() {
  static const std::vector<FuzzTarget> kTargets = MakeTargets();
  return kTargets;
}

}  // namespace equipoise
