#include "trainer/checkpoint/model_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/base/regular_file.h"
#include "data/text/jinja_template.h"
#include "data/text/tokenizer.h"
#include "models/families/families.h"
#include "models/families/model_parts.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/common/durable_file.h"

// Three files may list a tokenizer's added tokens, and which one is read depends on the reader and
// on what else is in the folder. A token is added to each that is there, under the id that
// Tokenizer::Read() gives it; without a tokenizer.json, one of the other two is made.

namespace equipoise {
namespace {

constexpr char kTemplate[] = "chat_template.jinja";
constexpr char kPictures[] = "preprocessor_config.json", kProcessor[] = "processor_config.json";
constexpr char kVideos[] = "video_preprocessor_config.json";
constexpr size_t kLongestTemplate = size_t{1} << 24;

using TokenIds = std::vector<std::pair<std::string, int32_t>>;

Json TokenEntry(const std::string& content) {
  return {{"content", content}, {"lstrip", false},      {"normalized", false},
          {"rstrip", false},    {"single_word", false}, {"special", true}};
}

// A folder's small files, read and written whole.
class SmallFiles {
 public:
  explicit SmallFiles(std::string folder) : folder_(std::move(folder)) {}

  bool Has(const char* name) const { return std::filesystem::exists(Path(name)); }
  Json Read(const char* name) const {
    Json json = ReadJsonFile(Path(name));
    if (!json.is_object()) throw DataError(Path(name) + ": not an object");
    return json;
  }
  void Write(const char* name, const Json& json) const { WriteText(name, json.dump(2) + "\n"); }
  void WriteText(const char* name, const std::string& text) const {
    WriteFileDurably(Path(name), text);
  }
  void Remove(const char* name) const {
    std::error_code error;
    std::filesystem::remove(Path(name), error);
    if (error)
      throw RunError(fmt::format("{}: cannot be removed: {}", Path(name), error.message()));
  }

 private:
  std::string Path(const char* name) const { return folder_ + "/" + name; }

  std::string folder_;
};

void AddToTokenizerJson(const TokenIds& tokens, const SmallFiles& folder) {
  Json json = folder.Read("tokenizer.json");
  Json& list = json["added_tokens"];
  if (!list.is_array()) list = Json::array();
  for (const auto& [content, id] : tokens) {
    bool listed = false;
    for (const Json& entry : list) listed = listed || entry.value("content", "") == content;
    if (listed) continue;
    Json entry = TokenEntry(content);
    entry["id"] = id;
    list.push_back(std::move(entry));
  }
  folder.Write("tokenizer.json", json);
}

// added_tokens_decoder: {"151646": {"content": ...}}
void AddToTokenizerConfig(const TokenIds& tokens, const SmallFiles& folder) {
  Json json =
      folder.Has("tokenizer_config.json") ? folder.Read("tokenizer_config.json") : Json::object();
  Json& decoder = json["added_tokens_decoder"];
  for (const auto& [content, id] : tokens) {
    const std::string key = std::to_string(id);
    if (!decoder.contains(key)) decoder[key] = TokenEntry(content);
  }
  folder.Write("tokenizer_config.json", json);
}

// {"<image>": 32000}
void AddToTokenList(const TokenIds& tokens, const SmallFiles& folder) {
  Json json = folder.Read("added_tokens.json");
  for (const auto& [content, id] : tokens) json[content] = id;
  folder.Write("added_tokens.json", json);
}

void AddTokens(const TokenIds& tokens, const SmallFiles& folder) {
  const bool whole = folder.Has("tokenizer.json"), list = folder.Has("added_tokens.json");
  if (whole) AddToTokenizerJson(tokens, folder);
  if (list) AddToTokenList(tokens, folder);
  const bool decoder = folder.Has("tokenizer_config.json") &&
                       folder.Read("tokenizer_config.json").contains("added_tokens_decoder");
  if (decoder || (!whole && !list)) AddToTokenizerConfig(tokens, folder);
}

void WriteLlavaProcessor(const ModelConfig& config, const SmallFiles& folder) {
  const bool clip = config.vision.class_token;
  if (config.preprocessor.is_object()) {
    Json images = config.preprocessor;
    images["processor_class"] = "LlavaProcessor";
    folder.Write("preprocessor_config.json", images);
  }
  folder.Write("processor_config.json",
               {{"processor_class", "LlavaProcessor"},
                {"image_token", "<image>"},
                {"patch_size", config.vision.patch_size},
                {"num_additional_image_tokens", clip ? 1 : 0},
                {"vision_feature_select_strategy", clip ? "default" : "full"}});
}

// Transformers' processor of InternVL asks its tokenizer for these tokens by name. Frames of a
// video are pictures to the model; <quad> is what is left for the mark that a processor replaces by
// them.
void NameImageTokens(const SmallFiles& folder) {
  Json json =
      folder.Has("tokenizer_config.json") ? folder.Read("tokenizer_config.json") : Json::object();
  Json& named = json["extra_special_tokens"];
  // A list, as version 5 writes it, has another key in version 4; both read it from there.
  if (named.is_array() && !json.contains("additional_special_tokens"))
    json["additional_special_tokens"] = named;
  if (!named.is_object()) named = Json::object();
  named["start_image_token"] = "<img>";
  named["end_image_token"] = "</img>";
  named["context_image_token"] = "<IMG_CONTEXT>";
  named["video_token"] = "<quad>";
  folder.Write("tokenizer_config.json", json);
}

// In the digits in which they were read.
Json Written(const std::array<float, 3>& numbers) {
  Json list = Json::array();
  for (const float number : numbers) list.push_back(std::stod(fmt::format("{}", number)));
  return list;
}

// The settings that every published InternVL has; InternViT's own folder describes one square.
Json InternVlPictures(const ModelConfig& config) {
  const int64_t side = config.vision.image_size;
  const ImageSpec images = ImageSpecOf(config);
  return {{"processor_class", "InternVLProcessor"},
          {"image_processor_type", "GotOcr2ImageProcessorFast"},
          {"crop_to_patches", true},
          {"min_patches", 1},
          {"max_patches", 12},
          {"size", {{"height", side}, {"width", side}}},
          {"do_resize", true},
          {"do_rescale", true},
          {"do_normalize", true},
          {"do_convert_rgb", true},
          {"resample", 3},
          {"rescale_factor", 1.0 / 255},
          {"image_mean", Written(images.mean)},
          {"image_std", Written(images.deviation)}};
}

void WriteInternVlProcessor(const ModelConfig& config, const SmallFiles& folder) {
  folder.Write(kPictures, InternVlPictures(config));
  folder.Write("processor_config.json", {{"processor_class", "InternVLProcessor"},
                                         {"image_seq_length", config.tokens_per_tile()}});
}

// Changes what a folder's files say of pictures or videos: the file `name` of Transformers 4, and
// `part` of version 5's of all processors, which that version reads first. Makes the former from
// `base` where neither is there.
void ChangeProcessor(const SmallFiles& folder, const char* name, const char* part, const Json& base,
                     const std::function<void(Json&)>& change) {
  bool found = false;
  for (const char* file : {name, kProcessor}) {
    if (!folder.Has(file)) continue;
    Json json = folder.Read(file);
    const bool inner = json.contains(part) && json[part].is_object();
    if (!inner && std::string_view(file) == kProcessor) continue;
    change(inner ? json[part] : json);
    folder.Write(file, json);
    found = true;
  }
  if (found || !base.is_object()) return;
  Json json = base;
  change(json);
  folder.Write(name, json);
}

// Limits that are given, under the names that are there; Transformers 5 knows those in `size`.
void SetPixels(const PixelsConfig& pixels, Json& json) {
  for (const auto& [value, key, edge] : {std::tuple(pixels.min, "min_pixels", "shortest_edge"),
                                         std::tuple(pixels.max, "max_pixels", "longest_edge")}) {
    if (value == 0) continue;
    const bool in_size = json.contains("size") && json["size"].is_object();
    if (in_size) json["size"][edge] = value;
    if (!in_size || json.contains(key)) json[key] = value;
  }
}

}  // namespace

void WritePartsDescription(const ModelSection& model, const ModelConfig& config,
                           const std::string& to) {
  CopyModelDescription(model.llm, to);
  const EncoderPart encoder = ReadEncoderPart(model.vision);
  const std::vector<std::string> texts = ImageTokensOf(encoder);
  const Tokenizer tokenizer = Tokenizer::Read(model.llm, texts);
  TokenIds tokens;
  for (const std::string& text : texts) tokens.emplace_back(text, tokenizer.TokenId(text).value());
  const SmallFiles folder(to);
  AddTokens(tokens, folder);
  if (encoder.internvit) {
    NameImageTokens(folder);
    WriteInternVlProcessor(config, folder);
  } else {
    WriteLlavaProcessor(config, folder);
  }
}

void WriteImageProcessor(const ModelConfig& config, const DataConfig& data,
                         const std::string& folder) {
  const SmallFiles files(folder);
  const auto given = [](const PixelsConfig& pixels) { return pixels.min > 0 || pixels.max > 0; };
  const auto change = [&](const Json& base, const std::function<void(Json&)>& change) {
    ChangeProcessor(files, kPictures, "image_processor", base, change);
  };
  if (data.pad_pictures) {
    change(config.preprocessor, [&](Json& json) {
      for (const char* key : {"do_pad", "image_processor_type"})  // as PadPictures() has set them
        json[key] = config.preprocessor.at(key);
    });
  }
  const bool tiles = ImageSpecOf(config).kind == ImageSpec::Kind::kTiles;
  if (tiles && config.naming == WeightNaming::kTransformers) {
    change(InternVlPictures(config), [&](Json& json) {
      json["crop_to_patches"] = data.tiles.max > 1;
      json["min_patches"] = data.tiles.min;
      json["max_patches"] = data.tiles.max;
    });
  }
  if (given(data.pixels))
    change(config.preprocessor, [&](Json& json) { SetPixels(data.pixels, json); });
  if (given(data.video_pixels)) {
    ChangeProcessor(files, kVideos, "video_processor", config.video_preprocessor,
                    [&](Json& json) { SetPixels(data.video_pixels, json); });
  }
}

void SetTileSettings(const ModelConfig& config, const DataConfig& data, Json* json) {
  const bool tiles = ImageSpecOf(config).kind == ImageSpec::Kind::kTiles;
  if (!tiles || config.naming != WeightNaming::kOriginal) return;
  (*json)["dynamic_image_size"] = data.tiles.max > 1;
  (*json)["min_dynamic_patch"] = data.tiles.min;
  (*json)["max_dynamic_patch"] = data.tiles.max;
  (*json)["use_thumbnail"] = data.tiles.thumbnail;
  // Of conversation.py of OpenGVLab's code, which knows no others.
  constexpr std::array<std::string_view, 4> kTheirs = {"internvl2_5", "internlm2-chat", "Hermes-2",
                                                       "phi3-chat"};
  if (std::find(kTheirs.begin(), kTheirs.end(), data.chat_template) == kTheirs.end()) return;
  (*json)["template"] = data.chat_template;
  if (data.system.empty()) {
    json->erase("system_message");
  } else {
    (*json)["system_message"] = data.system;
  }
}

void WriteChatTemplate(const ChatTemplate& chat, const std::string& folder) {
  const SmallFiles files(folder);
  // Transformers would read another template from these too, or before it.
  files.Remove("chat_template.json");
  for (const char* name : {"tokenizer_config.json", "processor_config.json"}) {
    if (!files.Has(name)) continue;
    Json json = files.Read(name);
    if (json.erase("chat_template") > 0) files.Write(name, json);
  }
  files.WriteText(kTemplate, chat.Jinja());
}

bool HasWrittenChatTemplate(const std::string& folder) {
  const FileText jinja = ReadRegularFile(folder + "/" + kTemplate, kLongestTemplate);
  return jinja.problem.empty() && FormOfJinjaTemplate(jinja.text) != nullptr;
}

}  // namespace equipoise
