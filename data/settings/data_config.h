#pragma once

#include <string>
#include <vector>

#include "configs/yaml/fields.h"
#include "data/settings/chat_templates.h"
#include "data/settings/record_keys.h"
#include "data/settings/taken_part.h"

namespace equipoise {

// One file of records and the folder its pictures lie in; in a configuration also several files:
// trainer/settings/source_lists.h.
struct SourceConfig {
  static constexpr int64_t kMostSamples = 1'000'000'000;  // of an epoch
  std::string annotations;
  std::string images = ".";
  double repeat = 1.0;
  int64_t max_tiles = 0;
  int64_t samples = 0;
  int64_t max_samples = 0;
  TakenPart take = TakenPart::kFirst;
  std::vector<std::string> datasets = {};
  RecordKeys keys = {};
  // No fields of their own, set where a source that stands for several files is taken apart:
  std::string listed_in = {};  // `meta.json: NAME` for a source of a list of data sets
  std::string range = {};      // for a file of a range, the range as it was given
  int64_t files = 1;           // of the range, in its first file; 0 in the others

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit(
        "annotations", annotations,
        "file of records: JSONL, a JSON array, a WebDataset shard (a.tar), Parquet (a.parquet), a "
        "range of files (a-{000..127}.tar), a folder of such files, or a list of data sets: "
        "InternVL's meta file, "
        "LLaMA-Factory's dataset_info.json, LLaVA-NeXT's YAML file");
    visit("datasets", datasets, "names of those to take from a list; of InternVL's all where none");
    visit("images", images,
          "folder that the records' image paths are relative to (not of shards and InternVL's "
          "meta files; with a dataset_info.json its own where not given)");
    visit("repeat", repeat,
          "times that the records are used in an epoch; a fraction below 1 takes the first part; "
          "held-out records are used once at most",
          Between(0, 1000));
    visit("samples", samples,
          "so many of the records are used in an epoch, some of them again where there are fewer "
          "(times `repeat`); 0 = all",
          Between(0, kMostSamples));
    visit("max_samples", max_samples,
          "at most so many of the records are used in an epoch (times `repeat`), of a list of data "
          "sets so many of each; 0 = all",
          Between(0, kMostSamples));
    visit("take", take,
          "which of the records they are, or a fraction of `repeat` below 1; random: the same in "
          "each epoch");
    visit("max_tiles", max_tiles, "data.tiles.max of this source's pictures; 0 = that of all",
          Between(0, 64));
    visit("columns", keys.columns,
          "keys of records that have others than docs/data.md's: prompt, query, response, history, "
          "messages, system, tools, images, videos");
    visit("tags", keys.tags,
          "likewise of their turns: role_tag, content_tag; and words for who speaks: user_tag, "
          "assistant_tag, system_tag, function_tag, observation_tag");
  }
};

struct TilesConfig {
  int64_t min = 1;
  int64_t max = 6;
  bool thumbnail = true;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("min", min, "fewest tiles of a picture", Between(1, 64));
    visit("max", max, "most tiles of a picture, the thumbnail not counted", Between(1, 64));
    visit("thumbnail", thumbnail,
          "add the whole picture as one more tile to a picture of several tiles");
  }
};

struct PixelsConfig {
  int64_t min = 0;
  int64_t max = 0;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("min", min, "smaller pictures are enlarged to so many; 0 = as the model's folder says",
          Between(0, 1e9));
    visit("max", max, "larger pictures are reduced to so many; 0 = as the model's folder says",
          Between(0, 1e9));
  }
};

struct LimitsConfig {
  int64_t image_pixels = 179'000'000;
  int64_t image_bytes = 256 << 20;
  int64_t record_bytes = 64 << 20;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("image_pixels", image_pixels, "pictures with more pixels are refused before decoding",
          Between(1, 1e10));
    visit("image_bytes", image_bytes, "larger picture files are refused", Between(1, 1e11));
    visit("record_bytes", record_bytes, "longer records are refused", Between(1, 1 << 30));
  }
};

struct DataConfig {
  std::vector<SourceConfig> train;
  std::vector<SourceConfig> eval;
  std::string tokenizer;
  std::string chat_template = std::string(kAutoTemplate);
  std::string system;
  bool image_first = false;
  std::string train_turns = "all";
  bool pad_pictures = false;
  int64_t max_tokens = 4096;
  std::string too_long = "cut";
  TilesConfig tiles;
  PixelsConfig pixels;
  PixelsConfig video_pixels;
  int64_t max_frames = 0;
  LimitsConfig limits;
  int64_t threads = 0;
  int64_t prefetch = 4;
  double max_bad_share = 0.05;
  std::string cache;
  std::string costs;
  bool allow_outside = false;

  // `threads`, where it leaves the number open: `automatic`.
  int64_t LoaderThreads(int64_t automatic) const { return threads > 0 ? threads : automatic; }

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("train", train, "sources to train on");
    visit("eval", eval, "held-out sources");
    visit(
        "tokenizer", tokenizer,
        "tokenizer.json, tokenizer.model or vocab.json (beside merges.txt), or its folder; empty = "
        "the model's (model.hf)");
    visit("template", chat_template,
          "how a conversation becomes tokens; auto: as the folder model.hf or model.llm says, and "
          "chatml where it does not",
          OneOf(TemplateSettings()));
    visit("system", system, "system text where a record has none; empty = the template's own");
    visit(
        "image_first", image_first,
        "the one picture of a question stands before its text, wherever the text shows it, as "
        "LLaVA's own trainer does; false: where the text shows it, as LLaMA-Factory, ms-swift and "
        "InternVL do");
    visit("train_turns", train_turns,
          "answers of a conversation that are trained on; last: the last alone (mask_history of "
          "LLaMA-Factory)",
          OneOf({"all", "last"}));
    visit("pad_pictures", pad_pictures,
          "pictures are padded to a square with the mean colour, as image_aspect_ratio `pad` of "
          "LLaVA-1.5, whatever the model's folder says; of models that take one square a picture");
    visit("max_tokens", max_tokens,
          "tokens of a packed row; longer samples are cut, never inside a picture",
          Between(16, 16777215));
    visit("too_long", too_long,
          "samples of more than max_tokens: cut at their end, or dropped (truncation_strategy "
          "delete of ms-swift)",
          OneOf({"cut", "drop"}));
    visit("tiles", tiles, "how a picture is cut into tiles");
    visit("pixels", pixels, "of a picture that the model takes at about its own size (Qwen2-VL)");
    visit("video_pixels", video_pixels,
          "likewise of a frame of a video (Qwen2-VL), or of all its frames together (Qwen3-VL)");
    visit("max_frames", max_frames,
          "most frames of a video: so many, evenly over all with the first and the last; 0 = all, "
          "of a file as many as the record's fps asks for, at most 768",
          Between(0, 100'000));
    visit("limits", limits, "limits on untrusted files");
    visit("allow_outside", allow_outside,
          "pictures may lie outside their source's folder: links, absolute paths and `..` may lead "
          "there");
    visit(
        "threads", threads,
        "loader threads of a rank; 0 = 1, and where ranks compute on GPUs their share of the cores",
        Between(0, 256));
    visit("prefetch", prefetch, "micro-batches that a rank loads ahead", Between(1, 1024));
    visit("max_bad_share", max_bad_share,
          "the run stops with exit 4 when more than this share of the records is bad",
          Between(0, 1));
    visit(
        "costs", costs,
        "for planning while there is no cost index: a JSONL file of {\"vit_num\", \"token_num\"}, "
        "or the name of a histogram in configs/histograms");
    visit("cache", cache, "folder of the cost index; empty = .equipoise beside the annotations");
  }
};

}  // namespace equipoise
