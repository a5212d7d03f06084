#include "tests/fuzz/fuzz_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "configs/base/base64.h"
#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/yaml_reader.h"
#include "data/images/image_codec.h"
#include "data/images/image_size.h"
#include "data/records/json_array.h"
#include "data/records/parquet_file.h"
#include "data/records/record.h"
#include "data/records/record_objects.h"
#include "data/records/refusal.h"
#include "data/records/shard.h"
#include "data/records/tar_reader.h"
#include "data/text/decoder.h"
#include "data/text/normalizer.h"
#include "data/text/pretokenizer.h"
#include "data/text/sentencepiece_model.h"
#include "data/text/text_error.h"
#include "data/text/tokenizer_json.h"
#include "data/text/unigram.h"
#include "data/text/word_piece.h"
#include "models/families/families.h"
#include "models/spec/model_config.h"
#include "models/weights/safetensors_file.h"
#include "models/weights/torch_pickle.h"
#include "parallel/schedule/schedule_text.h"
#include "tests/data/image_samples.h"
#include "tests/data/png_rows.h"
#include "tests/data/tiny_tokenizer.h"
#include "tests/models/torch_pickles.h"
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
    DecodeRgb(bytes, header, rgb.data());
    // Sizes that take both orders of the passes.
    const ImageSize smaller{width / 2 + 1, std::min<int64_t>(height / 3 + 1, 50)};
    std::vector<uint8_t> resized(static_cast<size_t>(3 * smaller.width * smaller.height));
    ResizeBicubicRgb(rgb.data(), header.size, resized.data(), smaller);
  } catch (const ImageError&) {
  }
}

// A PNG with right checksums, of any rows: colour type, width, then the rows.
void RunPngRows(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const int type = kPngColourTypes[byte(0) % std::size(kPngColourTypes)];
  const int64_t width = byte(1) + 1;
  const auto row_bytes = static_cast<size_t>(1 + width * PngChannels(type));
  const size_t height = (bytes.size() - 2) / row_bytes;
  if (height > 0) RunImage(MakePngOfRows(type, width, bytes.substr(2, height * row_bytes)));
}

void RunJson(std::string_view bytes) {
  try {
    ParseJson(bytes, "fuzz").dump();
  } catch (const DataError&) {
  }
}

void RunRecord(std::string_view bytes) {
  RecordKeys turns, pairs;  // of the sources' own, by the names that the seeds have
  turns.columns = RecordColumns{
      .messages = "conversations", .tools = "tools", .images = "image", .videos = "video"};
  turns.tags = RecordTags{.user_tag = "human", .assistant_tag = "gpt"};
  pairs.columns = RecordColumns{.prompt = "query", .response = "response", .history = "history"};
  for (const RecordKeys& keys : {RecordKeys(), turns, pairs}) {
    const ParsedRecord parsed = ParseRecord(bytes, keys);
    EQUIPOISE_CHECK(parsed.reason.empty() == (parsed.defect == Defect::kNone));
    if (parsed.defect != Defect::kNone) continue;
    const ParsedRecord written = Guarded([&](Record& record) {
      record = parsed.record;
      WriteObjects({ImageSpec(), TilesConfig()}, {{640, 480}, {1, 1}}, record);
    });
    EQUIPOISE_CHECK(written.record.objects.empty() == (written.defect == Defect::kNone));
  }
}

void RunBase64(std::string_view bytes) {
  const auto read = FromBase64(bytes);
  if (read) EQUIPOISE_CHECK(FromBase64(Base64(*read)) == read);
}

void RunParquetRow(std::string_view bytes) {
  const ParsedRecord parsed = ParseParquetRecord(bytes);
  EQUIPOISE_CHECK(parsed.reason.empty() == (parsed.defect == Defect::kNone));
}

void RunArray(std::string_view bytes) {
  try {
    ArrayScanner scanner("fuzz");
    scanner.Feed(bytes.substr(0, bytes.size() / 2));
    scanner.Feed(bytes.substr(bytes.size() / 2));
    for (const RecordExtent& record : scanner.Finish()) {
      EQUIPOISE_CHECK(record.bytes >= 2 && record.offset + record.bytes <= bytes.size());
    }
  } catch (const DataError&) {
  }
}

// Writes the sum of a tar header's bytes into it.
void SumHeader(std::string& archive, size_t at) {
  std::fill_n(archive.begin() + static_cast<std::ptrdiff_t>(at) + 148, 8, ' ');
  unsigned sum = 0;
  for (size_t i = at; i < at + 512; ++i) sum += static_cast<uint8_t>(archive[i]);
  for (size_t i = 6; i-- > 0; sum /= 8) archive[at + 148 + i] = static_cast<char>('0' + sum % 8);
  archive[at + 154] = '\0';
}

// An archive of two samples, the first with a GNU long name, the second with pax headers.
std::string MakeTar() {
  const std::string record = R"({"query": "<image>Q", "response": "A", "image": "0.jpg"})";
  const std::vector<std::pair<char, std::pair<std::string, std::string>>> members = {
      {'L', {"long", "a/0.jpg"}},
      {'0', {"short", "picture"}},
      {'0', {"a/0.json", record}},
      {'x', {"pax", "14 path=1.txt\n11 size=20\n"}},
      {'0', {"other", "0123456789012345"}}};
  std::string archive;
  for (const auto& [type, member] : members) {
    const auto& [name, text] = member;
    const size_t at = archive.size();
    archive.resize(at + 512, '\0');
    archive.replace(at, name.size(), name);
    size_t size = text.size();
    for (size_t i = 11; i-- > 0; size /= 8)
      archive[at + 124 + i] = static_cast<char>('0' + size % 8);
    archive[at + 156] = type;
    archive.replace(at + 257, 8, std::string("ustar\00000", 8));
    SumHeader(archive, at);
    archive += text;
    archive.resize((archive.size() + 511) / 512 * 512, '\0');
  }
  return archive + std::string(1024, '\0');
}

void RunShard(std::string_view bytes) {
  std::string archive(bytes);
  // Else the sums would refuse nearly all that is damaged.
  for (size_t at = 0; at + 512 <= archive.size(); at += 512) {
    if (archive.compare(at + 257, 5, "ustar") == 0) SumHeader(archive, at);
  }
  try {
    TarReader members("fuzz", archive.size(), [&](uint64_t offset, uint64_t count) {
      return offset > archive.size() ? std::string() : archive.substr(offset, count);
    });
    for (const RecordExtent& sample : FindSamples(members)) {
      EQUIPOISE_CHECK(sample.offset + sample.bytes <= archive.size());
      const ParsedRecord parsed =
          ParseShardRecord(std::string_view(archive).substr(sample.offset, sample.bytes));
      EQUIPOISE_CHECK(parsed.reason.empty() == (parsed.defect == Defect::kNone));
    }
  } catch (const DataError&) {
  }
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

void RunTorchPickle(std::string_view bytes) {
  try {
    ReadTensorPickle(bytes, "fuzz");
  } catch (const DataError&) {
  }
}

void RunTokenizer(std::string_view bytes) {
  constexpr std::string_view kText =
      "It's 12 caf\xC3\xA9s, e\xCC\x81 \xE4\xBD\xA0\xE5\xA5\xBD!\n\n  x";
  try {
    const TokenizerSpec spec = ReadTokenizerSpec(std::string(bytes), "fuzz");
    const Normalizer normalizer(spec.normalizer, "fuzz");
    const PreTokenizer pre_tokenizer(spec.pre_tokenizer, "fuzz");
    const BpeModel bpe(&spec.vocabulary, spec.merges, spec.options);
    std::optional<WordPieceModel> pieces;
    if (spec.word_piece) pieces.emplace(spec.vocabulary, *spec.word_piece);
    std::optional<UnigramModel> unigram;
    if (!spec.pieces.empty()) {
      unigram.emplace(&spec.pieces, &spec.vocabulary,
                      UnigramModel::Options{spec.options.unknown, spec.options.byte_fallback});
    }
    std::vector<int32_t> ids;
    const auto encode = [&](std::string_view word) {
      unigram  ? unigram->Encode(word, ids)
      : pieces ? pieces->Encode(word, ids)
               : bpe.Encode(word, ids);
    };
    if (spec.metaspace) {
      spec.metaspace->Split(normalizer.Run(kText), /*first=*/true, encode);
    } else {
      pre_tokenizer.Split(normalizer.Run(kText), encode);
    }
    for (const int32_t id : ids) EQUIPOISE_CHECK(!pieces || (0 <= id && id <= spec.largest_id));
    DecodeTokens({"<0xC3>", "\xE2\x96\x81x", "<0xA9>", "##x .", "##"}, spec.decoder);
  } catch (const DataError&) {
  }
}

// A tokenizer.model.
void RunSentencePiece(std::string_view bytes) {
  try {
    const SentencePieceModel model(std::string(bytes), "fuzz");
    std::vector<int32_t> ids;
    model.Encode("It's 12 caf\xC3\xA9s, e\xCC\x81 \xE4\xBD\xA0!\n  x", ids);
    for (const int32_t id : ids) EQUIPOISE_CHECK(0 <= id && id < model.size());
    model.Decode({0, 1, -1, model.size()});
    model.Decode(ids);
    for (int32_t id = 0; id < std::min(model.size(), 40); ++id) model.Find(model.Piece(id));
    SentencePieceModel::WithoutPrefix(std::string(bytes));
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

// A field of protocol buffers that is a text or a message of up to 127 bytes.
std::string Field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

// A SentencePiece model of a few pieces: unknown (type 2), control (3), bytes (6), words.
std::string SentencePieceFile(bool bpe) {
  std::string file;
  const auto add = [&file](const std::string& text, int type) {
    const std::string score("\x15\0\0\x80\xbf", 5);  // -1, field 2
    file += Field(1, Field(1, text) + score + std::string{0x18, static_cast<char>(type)});
  };
  add("<unk>", 2);
  add("<s>", 3);
  add("</s>", 3);
  if (bpe) {
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 6);
  }
  for (const char* text : {"\xE2\x96\x81", "x", "'", "s", "It", "\xE2\x96\x81x", "ca", "f"})
    add(text, 1);
  const char kind = bpe ? 2 : 1;  // model_type, field 3; byte_fallback, field 35
  file += Field(2, std::string{0x18, kind} + (bpe ? "\x98\x02\x01" : ""));
  if (bpe) return file + Field(3, Field(1, "identity"));
  // A trie of 256 nodes, of which none follows the root, and no replacement.
  const std::string charsmap = std::string("\0\4\0\0", 4) + std::string(1024 + 1, '\0');
  const std::string spec = std::string("\x12\x85\x08", 3) + charsmap;  // field 2 of 1,029 bytes
  return file + std::string("\x1a\x88\x08", 3) + spec;                 // field 3 of 1,032
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
constexpr char kMessages[] =
    R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type":)"
    R"( "image_url", "image_url": {"url": "data:image/png;base64,Zm9v"}}, {"type": "text",)"
    R"( "text": "Q"}]}, {"role": "assistant", "content": null, "tool_calls": [{"function":)"
    R"( {"name": "f", "arguments": {"b": 1, "a": [2.5, "x"]}}}]}, {"role": "tool", "content":)"
    R"( "1"}, {"role": "tool", "content": "2"}, {"role": "assistant", "content": "A"}]})";
constexpr char kCalls[] =
    R"({"system": "S", "conversations": [{"from": "human", "value": "Q"}, {"from":)"
    R"( "function_call", "value": "[{\"name\": \"f\", \"arguments\": \"{}\"}]"}, {"from":)"
    R"( "observation", "value": "1"}, {"from": "gpt", "value": "A"}]})";
constexpr char kAlpaca[] =
    R"({"instruction": "I", "input": "Q", "output": "A", "history": [["q", "a"]], "image":)"
    R"( {"bytes": "Zm9v", "path": null}})";

constexpr char kPairs[] =
    R"({"images": ["/9j/", {"bytes": "Zm9v"}], "texts": [{"user": "Q", "assistant": "A"},)"
    R"( {"human": "R", "gpt": "B", "loss": 0}], "label": true})";
constexpr char kCompletion[] =
    R"({"prompt": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"},)"
    R"( {"role": "tool_call", "content": {"name": "f", "arguments": {"b": 1}}},)"
    R"( {"role": "tool", "content": {"r": [1]}}],)"
    R"( "completion": [{"role": "tool_call", "content": "<think>T</think>\n)"
    R"({\"name\": \"f\"}"}, {"role": "bot", "content": "B"}]})";

constexpr char kVideo[] =
    R"({"tools": [{"name": "f", "parameters": {"b": 1, "a": [2.5]}}],)"
    R"( "videos": [["0.png", "1.png"]],)"
    R"( "conversations": {"from": ["human", "gpt"], "value": ["<video>Q", "A"]}})";

// ms-swift's grounding.
constexpr char kObjects[] =
    R"({"query": "<image>Find <ref-object>", "response": "<bbox><bbox>", "images": ["a", "b"],)"
    R"( "objects": {"ref": ["cat"], "bbox": [[1, 2.5], [3, 4, 5, 6]], "bbox_type": "norm1",)"
    R"( "image_id": [1]}})";

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
      {"png_rows",
       RunPngRows,
       {{"\1\1\0abcdef\1abcdef\2abcdef\3abcdef\4abcdef", 37}, {"\2\3\4abcd\3abcd", 12}},
       {{"\4\4\4\4", 4}, "\xff\xff\xff", {"\0\0\0", 3}}},
      {"webp",
       RunImage,
       {MakeWebp({20, 10}, true), MakeWebp({33, 17}, false)},
       {"RIFF", "VP8X", "VP8L", "VP8 ", "ALPH", "ANMF", "ANIM"}},
      {"gif",
       RunImage,
       {MakeGif({20, 10}, false), MakeGif({9, 21}, true)},
       {",", "!", ";", {"\x21\xf9\x04\x01\0\0\x05\0", 8}, "\xff\xff"}},
      {"bmp",
       RunImage,
       {MakeBmp({7, 5}), MakeBmpRuns({12, 6})},
       {{"\0\2\xff\xff", 4}, {"\0\xff", 2}, {"\0\0", 2}, {"\0\1", 2}, "\xff\xff\xff\xff"}},
      {"tiff",
       RunImage,
       {MakeTiff({20, 10}, 1, 6), MakeTiff({20, 10}, 5), MakeTiff({16, 16}, 7),
        MakeTiff({20, 10}, 8, 3)},
       {"II*", "MM", {"\0\1\3\0", 4}, {"\x44\1", 2}, {"\5\0", 2}, "\xff\xff\xff\xff"}},
      {"json", RunJson, {kModel, kHeader, kRecord}, JsonWords()},
      {"record",
       RunRecord,
       {kRecord, kMessages, kCalls, kAlpaca, kPairs, kCompletion, kVideo, kObjects},
       JsonWords()},
      {"base64", RunBase64, {"Zm9v", "Zm8=", "Zg==", "Zm9v\nZm9v"}, {"=", "\n", "-_", "+/"}},
      {"parquet_row",
       RunParquetRow,
       {R"({"images":[{"bytes":0,"path":"a"}],"query":"Q","response":"A"})" +
            std::string("\0\3\0\0\0\0\0\0\0foo", 12),
        kRecord},
       JsonWords()},
      {"model_config", RunModelConfig, {kModel}, JsonWords()},
      {"safetensors", RunSafetensors, {kHeader}, JsonWords()},
      {"torch_pickle",
       RunTorchPickle,
       {kStateDict, kDictionary},
       {"ctorch\n", "ccollections\nOrderedDict\n", "\x8c\4", "\x93", "\x94", ")R", "}(", "u."}},
      {"tokenizer",
       RunTokenizer,
       {TinyTokenizerJson().dump(), TinyWordPieceJson().dump(), TinyUnigramJson().dump()},
       JsonWords()},
      {"sentencepiece",
       RunSentencePiece,
       {SentencePieceFile(/*bpe=*/true), SentencePieceFile(/*bpe=*/false)},
       {Field(1, Field(1, "<0x00>") + "\x18\6"), Field(3, Field(2, "\4\0\0\0")), "\x18\1",
        "\x15\0\0\x80\x7f"}},
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
      {"checkpoint_index", RunCheckpointIndex, CheckpointIndexes(), JsonWords()},
      {"json_array", RunArray, {"[" + std::string(kRecord) + ",\n" + kAlpaca + "]"}, JsonWords()},
      {"shard",
       RunShard,
       {MakeTar()},
       {"77777777777", "999 path=", "30 GNU.sparse.map=", "size=-1\n", ".json"}}};
  const auto tokenizer = std::find_if(targets.begin(), targets.end(),
                                      [](const FuzzTarget& t) { return t.name == "tokenizer"; });
  for (const char* pattern :
       {"(?=", "(?<!", "(?i:", "\\\\p{L}", "[^", "{1,3}", "++", "\\\\x{110000}"})
    tokenizer->words.push_back(pattern);
  return targets;
}

}  // namespace

const std::vector<FuzzTarget>& FuzzTargets() {
  static const std::vector<FuzzTarget> kTargets = MakeTargets();
  return kTargets;
}

}  // namespace equipoise
