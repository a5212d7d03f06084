#include "trainer/check/check_inputs.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/weights/safetensors.h"
#include "trainer/check/grid_inputs.h"
#include "trainer/check/sized_inputs.h"

namespace equipoise {
namespace {

std::string ShapeText(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

class InputReader {
 public:
  InputReader(const std::string& path, const ModelConfig& config, LossWeight weighting)
      : file_(path), config_(config), weighting_(weighting), image_token_(config.image_token_id) {}

  CheckInputs Read() {
    RefuseUnknown();
    ids_ = Integers("input_ids");
    if (ids_.dim() != 2)
      Refuse("input_ids", fmt::format("has the shape {}, not [B, T]", ShapeText(ids_)));
    CheckRange("input_ids", ids_, 0);
    labels_ = LikeIds("labels");
    if (labels_.defined()) CheckRange("labels", labels_, kNoTarget);
    mask_ = LikeIds("attention_mask");
    ReadSegments();
    if (TakesGrids()) {
      grids_.emplace(file_, config_);
    } else {
      positions_ = LikeIds("position_ids");
      if (TakesSizes()) {
        sized_.emplace(file_, config_);
      } else {
        ReadTiles();
      }
    }
    if (image_token_ < 0 && tiles() > 0) image_token_ = GuessImageToken();

    CheckInputs inputs;
    inputs.columns = ids_.size(1);
    inputs.has_labels = labels_.defined();
    for (int64_t row = 0; row < ids_.size(0); ++row) {
      inputs.rows.push_back(MakeRow(row, &inputs.total_weight));
    }
    if (grids_) grids_->Finish();
    if (sized_) sized_->Finish();
    if (next_tile_ != tiles()) {
      Refuse("pixel_values",
             fmt::format("holds {} tiles, input_ids have room for {}", tiles(), next_tile_));
    }
    RefuseMoreSamples();
    if (inputs.has_labels && inputs.total_weight == 0) Refuse("labels", "no position is trained");
    return inputs;
  }

 private:
  [[noreturn]] void Refuse(const std::string& tensor, const std::string& what) const {
    throw DataError(fmt::format("{}: {}: {}", file_.path(), tensor, what));
  }

  void RefuseUnknown() const {
    static const std::set<std::string> kKnown = {"input_ids",        "labels",     "attention_mask",
                                                 "position_ids",     "cu_seqlens", "pixel_values",
                                                 "images_per_sample"};
    for (const auto& [name, entry] : file_.entries()) {
      if (TakesGrids() && IsOfGrids(name)) continue;
      if (name == "image_sizes" && TakesSizes()) continue;
      if (name == "batch_num_images" && ImageSpecOf(config_).lone_tiles) continue;
      if (IsOfFrames(name) && TakesSizes() && ImageSpecOf(config_).takes_videos()) continue;
      if (IsOfGrids(name) || name == "image_sizes") {
        Refuse(name, fmt::format("a model of type {} takes no such tensor", config_.model_type));
      }
      if (kKnown.count(name) == 0) Refuse(name, "unknown tensor; remove it");
    }
    if (!file_.Has("input_ids")) Refuse("input_ids", "missing");
  }

  static bool IsOfGrids(const std::string& name) {
    return name == "image_grid_thw" || name == "pixel_values_videos" || name == "video_grid_thw" ||
           name == "second_per_grid_ts";
  }
  static bool IsOfFrames(const std::string& name) {
    return name == "pixel_values_videos" || name == "frames_per_video";
  }
  bool TakesGrids() const { return ImageSpecOf(config_).has_grids(); }
  bool TakesSizes() const { return ImageSpecOf(config_).kind == ImageSpec::Kind::kAnyRes; }

  at::Tensor Integers(const std::string& name) const {
    const at::Tensor tensor = file_.Read(name);
    if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) {
      Refuse(name, "must hold whole numbers");
    }
    return tensor.to(at::kLong);
  }

  // An optional tensor of the same shape as input_ids.
  at::Tensor LikeIds(const std::string& name) const {
    if (!file_.Has(name)) return {};
    at::Tensor tensor = Integers(name);
    if (tensor.sizes() != ids_.sizes()) {
      Refuse(name,
             fmt::format("has the shape {}, input_ids {}", ShapeText(tensor), ShapeText(ids_)));
    }
    return tensor;
  }

  void CheckRange(const std::string& name, const at::Tensor& ids, int64_t also) const {
    const int64_t* values = ids.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < ids.numel(); ++i) {
      if (values[i] == also || (values[i] >= 0 && values[i] < config_.text.vocab_size)) continue;
      Refuse(name,
             fmt::format("{} is outside the vocabulary of {}", values[i], config_.text.vocab_size));
    }
  }

  void ReadSegments() {
    if (!file_.Has("cu_seqlens")) return;
    if (ids_.size(0) != 1) Refuse("cu_seqlens", "needs a single row of input_ids");
    if (mask_.defined() && !mask_.ne(0).all().item<bool>()) {
      Refuse("attention_mask", "a packed row has no masked positions");
    }
    const at::Tensor ends = Integers("cu_seqlens").reshape({-1});
    segments_.assign(ends.const_data_ptr<int64_t>(), ends.const_data_ptr<int64_t>() + ends.numel());
    bool ascending = segments_.size() >= 2 && segments_.front() == 0;
    for (size_t i = 1; i < segments_.size(); ++i) ascending &= segments_[i - 1] < segments_[i];
    if (!ascending || segments_.back() != ids_.size(1)) {
      Refuse("cu_seqlens", fmt::format("must ascend from 0 to {}", ids_.size(1)));
    }
  }

  int64_t tiles() const { return pixels_.defined() ? pixels_.size(0) : 0; }

  void ReadTiles() {
    if (!file_.Has("pixel_values")) return;
    if (!config_.has_vision) Refuse("pixel_values", "this model takes no pictures");
    pixels_ = file_.Read("pixel_values").to(at::kFloat);
    const VisionConfig& vision = config_.vision;
    const std::vector<int64_t> tile = {vision.num_channels, vision.image_size, vision.image_size};
    if (pixels_.dim() != 4 || pixels_.sizes().slice(1) != at::IntArrayRef(tile)) {
      Refuse("pixel_values", fmt::format("has the shape {}, not [tiles, {}, {}, {}]",
                                         ShapeText(pixels_), tile[0], tile[1], tile[2]));
    }
  }

  // The columns [first, last) of a row that are not masked.
  std::pair<int64_t, int64_t> UnmaskedColumns(int64_t row) const {
    int64_t first = 0, last = ids_.size(1);
    if (!mask_.defined()) return {first, last};
    const int64_t* mask = mask_.const_data_ptr<int64_t>() + row * ids_.size(1);
    while (first < last && mask[first] == 0) ++first;
    while (last > first && mask[last - 1] == 0) --last;
    for (int64_t i = first; i < last; ++i) {
      if (mask[i] == 0) {
        Refuse("attention_mask",
               fmt::format("row {} is masked in its middle; only its ends may be", row));
      }
    }
    return {first, last};
  }

  // The image token, where the model's folder does not specify it: the one token whose runs all
  // have the length of whole tiles, with as many tiles as pixel_values.
  int64_t GuessImageToken() const {
    const int64_t per_tile = config_.tokens_per_tile();
    std::map<int64_t, int64_t> found;  // token -> tiles; -1: has runs of other lengths
    for (int64_t row = 0; row < ids_.size(0); ++row) {
      const auto [first, last] = UnmaskedColumns(row);
      const int64_t* ids = ids_.const_data_ptr<int64_t>() + row * ids_.size(1);
      for (int64_t i = first, next; i < last; i = next) {
        for (next = i + 1; next < last && ids[next] == ids[i];) ++next;
        int64_t& count = found[ids[i]];
        count = count < 0 || (next - i) % per_tile != 0 ? -1 : count + (next - i) / per_tile;
      }
    }
    std::vector<int64_t> candidates;
    for (const auto& [token, count] : found) {
      if (count == tiles()) candidates.push_back(token);
    }
    if (candidates.size() == 1) return candidates[0];
    Refuse("pixel_values",
           "which token stands for pictures is not known; give config.json an "
           "image_token_id, or put the tokenizer beside it");
  }

  // Labels shifted by one: labels[i + 1] at position i; kNoTarget at the end of a segment.
  at::Tensor Targets(const at::Tensor& labels, const std::vector<int64_t>& segments) const {
    at::Tensor targets = at::full({labels.size(0)}, kNoTarget, at::kLong);
    for (size_t s = 0; s + 1 < segments.size(); ++s) {
      const int64_t begin = segments[s], count = segments[s + 1] - begin - 1;
      if (count > 0) targets.narrow(0, begin, count).copy_(labels.narrow(0, begin + 1, count));
    }
    return targets;
  }

  // The weight of each target, which depends on the number of targets in its segment.
  at::Tensor Weights(const at::Tensor& targets, const std::vector<int64_t>& segments) const {
    at::Tensor weights = at::ones({targets.size(0)}, at::kFloat);
    for (size_t s = 0; s + 1 < segments.size(); ++s) {
      const int64_t begin = segments[s], count = segments[s + 1] - begin;
      const auto x = targets.narrow(0, begin, count).ne(kNoTarget).sum().item<int64_t>();
      weights.narrow(0, begin, count).fill_(TargetWeight(weighting_, x));
    }
    return weights;
  }

  void AddLabels(int64_t row, const CheckInputs::Row& place, MicroBatch* batch,
                 double* total) const {
    const int64_t first = place.first_column, count = batch->tokens();
    const at::Tensor labels = labels_.select(0, row);
    const int64_t kept = labels.narrow(0, first, count).ne(kNoTarget).sum().item<int64_t>();
    if (kept != labels.ne(kNoTarget).sum().item<int64_t>()) {
      Refuse("labels", fmt::format("row {} trains a masked position; set it to -100", row));
    }
    batch->targets = Targets(labels.narrow(0, first, count), batch->cu_seqlens);
    const at::Tensor weights = Weights(batch->targets, batch->cu_seqlens);
    const at::Tensor trained = batch->targets.ne(kNoTarget);
    batch->planned_targets = trained.sum().item<int64_t>();
    *total += weights.to(at::kDouble).mul(trained).sum().item<double>();
    if (weighting_ != LossWeight::kToken) batch->target_weights = weights;
  }

  // Assigns the next tiles to the row's image tokens, in order.
  void AddTiles(int64_t row, MicroBatch* batch) {
    if (!config_.has_vision) {
      CheckTilesOfSamples(batch->cu_seqlens, [](int64_t, int64_t) { return 0; });
      return;
    }
    const at::Tensor at = batch->input_ids.eq(image_token_).nonzero().squeeze(1);
    const int64_t per_tile = config_.tokens_per_tile(), count = at.size(0) / per_tile;
    if (at.size(0) % per_tile != 0) {
      Refuse("input_ids", fmt::format("row {} has {} image tokens, no multiple of the {} of a tile",
                                      row, at.size(0), per_tile));
    }
    if (next_tile_ + count > tiles()) {
      Refuse("pixel_values",
             fmt::format("holds {} tiles, too few for the image tokens of row {}", tiles(), row));
    }
    CheckTilesOfSamples(batch->cu_seqlens, [&](int64_t begin, int64_t end) {
      const at::Tensor inside = at.ge(begin).logical_and(at.lt(end));
      return inside.sum().item<int64_t>() / per_tile;
    });
    if (count == 0) return;
    batch->image_positions = at.contiguous();
    batch->pixel_values = pixels_.narrow(0, next_tile_, count);
    next_tile_ += count;
  }

  // `found_in`: tiles, or pictures, whose tokens are in a range of the row. A row that is all
  // padding is a sample too.
  void CheckTilesOfSamples(const std::vector<int64_t>& segments,
                           const std::function<int64_t(int64_t begin, int64_t end)>& found_in) {
    if (!file_.Has("images_per_sample")) return;
    const at::Tensor expected = Integers("images_per_sample").reshape({-1});
    const size_t samples = std::max<size_t>(segments.size() - 1, 1);
    for (size_t s = 0; s < samples; ++s, ++next_sample_) {
      const int64_t found =
          s + 1 < segments.size() ? found_in(segments[s], segments[s + 1]) : int64_t{0};
      if (next_sample_ >= expected.size(0) || expected[next_sample_].item<int64_t>() != found) {
        Refuse("images_per_sample",
               fmt::format("sample {} has image tokens for {} {}", next_sample_, found,
                           grids_ || sized_ ? "pictures" : "tiles"));
      }
    }
  }

  void RefuseMoreSamples() const {
    if (!file_.Has("images_per_sample")) return;
    const int64_t listed = Integers("images_per_sample").numel();
    if (listed != next_sample_) {
      Refuse("images_per_sample",
             fmt::format("lists {} samples, input_ids have {}; give one number "
                         "a sample",
                         listed, next_sample_));
    }
  }

  CheckInputs::Row MakeRow(int64_t row, double* total_weight) {
    const auto [first, last] = UnmaskedColumns(row);
    CheckInputs::Row result;
    result.first_column = first;
    MicroBatch& batch = result.batch;
    batch.input_ids = ids_.select(0, row).slice(0, first, last).contiguous();
    batch.samples = {row};
    batch.cu_seqlens = segments_;
    if (segments_.empty()) {
      batch.cu_seqlens = {0};
      if (last > first) batch.cu_seqlens.push_back(last - first);
    }
    if (grids_) {
      grids_->AddTo(row, first, &batch);
      CheckTilesOfSamples(batch.cu_seqlens, [&](int64_t begin, int64_t end) {
        return grids_->PicturesIn(begin, end);
      });
    } else if (positions_.defined()) {
      batch.position_ids = positions_.select(0, row).slice(0, first, last).contiguous();
    } else if (segments_.empty()) {
      batch.position_ids = at::arange(first, last, at::kLong);
    } else {
      std::vector<at::Tensor> parts;
      for (size_t s = 0; s + 1 < segments_.size(); ++s) {
        parts.push_back(at::arange(segments_[s + 1] - segments_[s], at::kLong));
      }
      batch.position_ids = at::cat(parts);
    }
    if (labels_.defined()) AddLabels(row, result, &batch, total_weight);
    if (sized_) {
      sized_->AddTo(row, &batch);
      CheckTilesOfSamples(batch.cu_seqlens, [&](int64_t begin, int64_t end) {
        return sized_->PicturesIn(begin, end);
      });
    } else if (!grids_) {
      AddTiles(row, &batch);
    }
    return result;
  }

  const SafetensorsReader file_;
  const ModelConfig& config_;
  const LossWeight weighting_;
  at::Tensor ids_, labels_, mask_, positions_, pixels_;
  std::optional<GridInputs> grids_;   // where the model takes pictures so
  std::optional<SizedInputs> sized_;  // likewise
  std::vector<int64_t> segments_;  // cu_seqlens of the packed row; empty when rows are not packed
  int64_t image_token_;            // -1: unknown, and not needed
  int64_t next_tile_ = 0, next_sample_ = 0;
};

}  // namespace

CheckInputs ReadCheckInputs(const std::string& path, const ModelConfig& config,
                            LossWeight weighting) {
  return InputReader(path, config, weighting).Read();
}

}  // namespace equipoise
