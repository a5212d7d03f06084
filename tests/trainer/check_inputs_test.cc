#include "trainer/check/check_inputs.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "configs/base/error.h"
#include "models/weights/safetensors.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using Tensors = std::map<std::string, at::Tensor>;

constexpr int64_t kImage = 9;

// Tiles of 4 x 4 pixels in patches of 2, shuffled to one token a tile.
ModelConfig Config(bool has_vision) {
  ModelConfig config;
  config.has_vision = has_vision;
  config.model_type = has_vision ? "internvl" : "qwen2";
  config.text.vocab_size = 10;
  config.vision.image_size = 4;
  config.vision.patch_size = 2;
  config.image_token_id = kImage;
  return config;
}

CheckInputs ReadFor(const ModelConfig& config, const Tensors& tensors, const std::string& loss) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("check_inputs_" + std::to_string(getpid()) + ".safetensors");
  WriteSafetensors(path.string(), {tensors.begin(), tensors.end()});
  CheckInputs inputs = ReadCheckInputs(path.string(), config, ParseEnum<LossWeight>(loss).value());
  std::filesystem::remove(path);
  return inputs;
}

CheckInputs Read(const Tensors& tensors, bool has_vision = true,
                 const std::string& loss = "token") {
  return ReadFor(Config(has_vision), tensors, loss);
}

at::Tensor Row(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong).view({1, -1});
}

std::vector<int64_t> List(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST_CASE("each row becomes a micro-batch without its padding", "[trainer][cpu]") {
  const at::Tensor ids = at::tensor({1, 9, 3, 4, 0, 0, 1, 2, 3, 9, 9, 6}, at::kLong).view({2, 6});
  const at::Tensor mask = at::tensor({1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1}, at::kLong).view({2, 6});
  const at::Tensor labels =
      at::tensor({-100, -100, 3, 4, -100, -100, 1, 2, -100, -100, -100, 6}, at::kLong).view({2, 6});
  const at::Tensor pixels = at::randn({3, 3, 4, 4});
  const CheckInputs inputs = Read(
      {{"input_ids", ids}, {"attention_mask", mask}, {"labels", labels}, {"pixel_values", pixels}});
  REQUIRE(inputs.rows.size() == 2);
  CHECK(inputs.columns == 6);
  const MicroBatch& first = inputs.rows[0].batch;
  CHECK(List(first.input_ids) == std::vector<int64_t>{1, 9, 3, 4});
  CHECK(List(first.targets) == std::vector<int64_t>{-100, 3, 4, -100});
  CHECK(List(first.position_ids) == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(first.cu_seqlens == std::vector<int64_t>{0, 4});
  CHECK(List(first.image_positions) == std::vector<int64_t>{1});
  CHECK(first.pixel_values.equal(pixels.slice(0, 0, 1)));
  const MicroBatch& second = inputs.rows[1].batch;
  CHECK(List(second.targets) == std::vector<int64_t>{2, -100, -100, -100, 6, -100});
  CHECK(List(second.image_positions) == std::vector<int64_t>{3, 4});
  CHECK(second.pixel_values.equal(pixels.slice(0, 1, 3)));
  CHECK(inputs.total_weight == 4);
}

TEST_CASE("a picture token that the folder does not name is found", "[trainer][cpu]") {
  ModelConfig config = Config(true);
  config.image_token_id = -1;
  config.vision.image_size = 8;  // four tokens a tile
  const at::Tensor pixels = at::randn({3, 3, 8, 8});
  const at::Tensor mask = Row({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0});
  const auto read = [&](const std::vector<int64_t>& ids) {
    return ReadFor(config,
                   {{"input_ids", Row(ids)}, {"attention_mask", mask}, {"pixel_values", pixels}},
                   "token");
  };
  const CheckInputs inputs = read({1, 5, 5, 5, 5, 2, 5, 5, 5, 5, 5, 5, 5, 5, 3, 0, 7, 7, 7, 7});
  CHECK(List(inputs.rows[0].batch.image_positions) ==
        std::vector<int64_t>{1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13});
  // None occurs as often as there are tiles, or one does that stands in other runs too.
  CHECK_THROWS_WITH(read({1, 5, 5, 5, 5, 2, 5, 5, 5, 5, 4, 4, 4, 4, 3, 0, 7, 7, 7, 7}),
                    Contains("image_token_id"));
  CHECK_THROWS_WITH(read({1, 5, 5, 5, 5, 5, 2, 5, 5, 5, 5, 5, 5, 5, 3, 0, 7, 7, 7, 7}),
                    Contains("image_token_id"));
}

TEST_CASE("padding on the left keeps its columns and positions", "[trainer][cpu]") {
  const CheckInputs inputs =
      Read({{"input_ids", Row({0, 0, 5, 6})}, {"attention_mask", Row({0, 0, 1, 1})}}, false);
  CHECK(inputs.rows[0].first_column == 2);
  CHECK(List(inputs.rows[0].batch.position_ids) == std::vector<int64_t>{2, 3});
  CHECK_FALSE(inputs.has_labels);
}

TEST_CASE("a row that is all padding is an empty micro-batch of one sample", "[trainer][cpu]") {
  const CheckInputs inputs = Read({{"input_ids", Row({0, 0})},
                                   {"attention_mask", Row({0, 0})},
                                   {"images_per_sample", at::zeros({1}, at::kInt)}});
  CHECK(inputs.rows[0].batch.tokens() == 0);
  CHECK(inputs.rows[0].batch.cu_seqlens == std::vector<int64_t>{0});
}

TEST_CASE("a packed row keeps its segments apart", "[trainer][cpu]") {
  const Tensors packed = {{"input_ids", Row({1, 2, 3, 4, 9, 6})},
                          {"labels", Row({1, 2, 3, 4, -100, 6})},
                          {"cu_seqlens", at::tensor({0, 3, 6}, at::kInt)},
                          {"images_per_sample", at::tensor({0, 1}, at::kInt)},
                          {"pixel_values", at::randn({1, 3, 4, 4})}};
  const CheckInputs inputs = Read(packed);
  const MicroBatch& batch = inputs.rows[0].batch;
  // Label 4 begins a segment: nothing predicts it.
  CHECK(List(batch.targets) == std::vector<int64_t>{2, 3, -100, -100, 6, -100});
  CHECK(List(batch.position_ids) == std::vector<int64_t>{0, 1, 2, 0, 1, 2});
  CHECK(inputs.total_weight == 3);
  CHECK_FALSE(batch.target_weights.defined());
  CHECK(Read(packed, true, "sample").total_weight == Approx(2));
  const CheckInputs square = Read(packed, true, "square");
  CHECK(square.total_weight == Approx(std::sqrt(2.0) + 1));
  CHECK(square.rows[0].batch.target_weights[0].item<double>() == Approx(1 / std::sqrt(2.0)));
}

// Pictures of any resolution: tiles of 4 x 4 pixels of four tokens, one row of three or two rows of
// one.
ModelConfig AnyResolution() {
  ModelConfig config = Config(/*has_vision=*/true);
  config.model_type = "llava_next";
  config.downsample_ratio = 1;
  config.image_grid_pinpoints = {{4, 12}, {8, 4}};
  return config;
}

TEST_CASE("several pictures of a sample are one square each", "[trainer][cpu]") {
  // As above; of one square four tokens and one more.
  ModelConfig config = AnyResolution();
  config.model_type = "llava_onevision";
  config.vision.model_type = "siglip_vision_model";
  config.vision.class_token = false;
  config.anyres_max_tiles = 9;
  config.video_token_id = 4;
  at::Tensor ids = at::full({2, 20}, 3, at::kLong);
  ids.narrow(0, 0, 1).narrow(1, 2, 14).fill_(kImage);
  ids.narrow(0, 1, 1).narrow(1, 1, 10).fill_(kImage);
  Tensors tensors = {{"input_ids", ids},
                     {"pixel_values", at::randn({6, 3, 4, 4})},
                     {"image_sizes", at::tensor({4, 7, 8, 4, 9, 9}, at::kLong).view({3, 2})},
                     {"batch_num_images", at::tensor({1, 2}, at::kLong)}};
  const CheckInputs inputs = ReadFor(config, tensors, "token");
  CHECK(List(inputs.rows[0].batch.image_grids) == std::vector<int64_t>{4, 7});
  CHECK(List(inputs.rows[1].batch.image_grids) == std::vector<int64_t>{-1, -5, -1, -5});
  CHECK(inputs.rows[1].batch.tiles() == 2);
  const auto refusal = [&](const std::string& name, const at::Tensor& tensor) {
    Tensors changed = tensors;
    changed[name] = tensor;
    try {
      ReadFor(config, changed, "token");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const at::Tensor& counts : {at::tensor({1, 1}, at::kLong), at::tensor({1, 3}, at::kLong),
                                   at::tensor({4, -1}, at::kLong)}) {
    CHECK_THAT(refusal("batch_num_images", counts),
               Contains("batch_num_images: does not sum to the 3 pictures of image_sizes"));
  }
  CHECK_THAT(refusal("input_ids", ids.clone().index_fill_(1, at::tensor({0}, at::kLong), 4)),
             Contains("pixel_values_videos: has 0 videos, too few for the video tokens of row 0"));
  CHECK_THROWS_WITH(ReadFor(AnyResolution(), tensors, "token"),
                    Contains("batch_num_images: unknown tensor"));
}

TEST_CASE("videos of frames go to the rows that have their tokens", "[trainer][cpu]") {
  // Of two patches a side: a token a frame, and one more; of a square four and one more.
  ModelConfig config = AnyResolution();
  config.model_type = "llava_onevision";
  config.vision.model_type = "siglip_vision_model";
  config.vision.class_token = false;
  config.anyres_max_tiles = 9;
  config.video_token_id = 8;
  const at::Tensor frames = at::randn({2, 2, 3, 4, 4}), pixels = at::randn({2, 3, 4, 4});
  Tensors tensors = {{"input_ids", Row({1, 8, 8, 8, 9, 9, 9, 9, 9, 2, 9, 9, 9, 9, 9, 8, 8, 8, 3})},
                     {"images_per_sample", at::tensor({2}, at::kLong)},
                     {"pixel_values", pixels},
                     {"image_sizes", at::tensor({4, 7, 8, 4}, at::kLong).view({2, 2})},
                     {"batch_num_images", at::tensor({2}, at::kLong)},
                     {"pixel_values_videos", frames}};
  const MicroBatch batch = ReadFor(config, tensors, "token").rows[0].batch;
  CHECK(List(batch.image_grids) == std::vector<int64_t>{0, 2, -1, -5, -1, -5, 0, 2});
  CHECK(batch.pixel_values.equal(at::cat({frames[0], pixels, frames[1]})));
  CHECK(batch.image_positions.size(0) == 16);
  const auto read = [&](const Tensors& changes) {
    Tensors changed = tensors;
    for (const auto& [name, tensor] : changes) changed[name] = tensor;
    return ReadFor(config, changed, "token").rows[0].batch;
  };
  // Three frames and one.
  const MicroBatch unlike =
      read({{"input_ids", Row({8, 8, 8, 8, 9, 9, 9, 9, 9, 2, 9, 9, 9, 9, 9, 8, 8, 1, 3})},
            {"pixel_values_videos", frames.flatten(0, 1)},
            {"frames_per_video", at::tensor({3, 1}, at::kLong)}});
  CHECK(List(unlike.image_grids) == std::vector<int64_t>{0, 3, -1, -5, -1, -5, 0, 1});
  CHECK(unlike.pixel_values.equal(
      at::cat({frames[0], frames[1].narrow(0, 0, 1), pixels, frames[1].narrow(0, 1, 1)})));
  struct Case {
    const char* what;
    Tensors changes;
  };
  for (const auto& [what, changes] : std::vector<Case>{
           {"pixel_values_videos: 1 videos have no tokens in input_ids",
            {{"pixel_values_videos", at::cat({frames, frames.narrow(0, 0, 1)})}}},
           {"pixel_values_videos: has 1 videos, too few for the video tokens of row 0",
            {{"pixel_values_videos", frames.narrow(0, 0, 1).contiguous()}}},
           {"row 0 has 3 video tokens for a video that has 4",
            {{"pixel_values_videos", at::randn({2, 3, 3, 4, 4})}}},
           {"pixel_values_videos: has the shape [2, 2, 3, 4, 5], not",
            {{"pixel_values_videos", at::randn({2, 2, 3, 4, 5})}}},
           {"pixel_values_videos: has the shape [4, 3, 4, 4], not",
            {{"pixel_values_videos", frames.flatten(0, 1)}}},
           {"pixel_values_videos: has the shape [4, 3, 4, 4], not",
            {{"pixel_values_videos", frames.flatten(0, 1)},
             {"frames_per_video", at::tensor({2, 1}, at::kLong)}}},
           {"frames_per_video: 0 is no number of frames",
            {{"pixel_values_videos", frames.flatten(0, 1)},
             {"frames_per_video", at::tensor({4, 0}, at::kLong)}}}}) {
    INFO(what);
    CHECK_THROWS_WITH(read(changes), Contains(what));
  }
  tensors.erase("pixel_values_videos");
  CHECK_THROWS_WITH(read({{"frames_per_video", at::tensor({2}, at::kLong)}}),
                    Contains("pixel_values_videos: missing beside frames_per_video"));
  CHECK_THROWS_WITH(
      ReadFor(AnyResolution(), {{"input_ids", Row({1})}, {"pixel_values_videos", frames}}, "token"),
      Contains("pixel_values_videos: a model of type"));
}

TEST_CASE("pictures of any resolution go to the rows that have their tokens", "[trainer][cpu]") {
  // 4 x 7 pixels: 4 tokens and two rows of four patches without padding, 14 in 4 tiles. 8 x 4: 4
  // and four rows of two, 16 in 3 tiles.
  at::Tensor ids = at::full({2, 20}, 3, at::kLong);
  ids.narrow(0, 0, 1).narrow(1, 2, 14).fill_(kImage);
  ids.narrow(0, 1, 1).narrow(1, 1, 16).fill_(kImage);
  const at::Tensor sizes = at::tensor({4, 7, 8, 4}, at::kLong).view({2, 2});
  const at::Tensor pixels = at::randn({7, 3, 4, 4});
  const CheckInputs inputs = ReadFor(AnyResolution(),
                                     {{"input_ids", ids},
                                      {"pixel_values", pixels},
                                      {"image_sizes", sizes},
                                      {"images_per_sample", at::tensor({1, 1}, at::kLong)}},
                                     "token");
  const MicroBatch &first = inputs.rows[0].batch, &second = inputs.rows[1].batch;
  CHECK(first.pixel_values.equal(pixels.slice(0, 0, 4)));
  CHECK(second.pixel_values.equal(pixels.slice(0, 4, 7)));
  CHECK(List(first.image_grids) == std::vector<int64_t>{4, 7});
  CHECK(List(second.image_grids) == std::vector<int64_t>{8, 4});
  CHECK(first.image_positions.equal(at::arange(2, 16, at::kLong)));
  CHECK(second.position_ids.equal(at::arange(20, at::kLong)));

  // The form of Transformers' processor, tiles of each picture padded to the most.
  at::Tensor padded = at::zeros({2, 5, 3, 4, 4});
  padded.select(0, 0).narrow(0, 0, 4).copy_(pixels.slice(0, 0, 4));
  padded.select(0, 1).narrow(0, 0, 3).copy_(pixels.slice(0, 4, 7));
  const CheckInputs again =
      ReadFor(AnyResolution(),
              {{"input_ids", ids}, {"pixel_values", padded}, {"image_sizes", sizes}}, "token");
  CHECK(again.rows[1].batch.pixel_values.equal(second.pixel_values));

  const auto refusal = [&](Tensors changed) {
    changed.insert({{"input_ids", ids}, {"pixel_values", pixels}, {"image_sizes", sizes}});
    try {
      ReadFor(AnyResolution(), changed, "token");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal({}).empty());
  CHECK_THAT(refusal({{"image_sizes", sizes.narrow(0, 0, 1)}}),
             Contains("pixel_values: has the shape [7, 3, 4, 4], not [4, 3, 4, 4]"));
  CHECK_THAT(
      refusal({{"image_sizes", sizes.narrow(0, 0, 1)}, {"pixel_values", pixels.slice(0, 0, 4)}}),
      Contains("image_sizes: has 1 pictures, too few for the image tokens of row 1"));
  CHECK_THAT(refusal({{"image_sizes", sizes.flip(0)}}),
             Contains("row 0 has 14 image tokens for a picture that has 16"));
  CHECK_THAT(refusal({{"image_sizes", sizes.sub(4)}}), Contains("image_sizes: 0 x 3 is no height"));
  CHECK_THAT(refusal({{"image_sizes", sizes.flatten()}}), Contains("image_sizes: is not"));
  CHECK_THAT(refusal({{"input_ids", ids.narrow(0, 0, 1)}}),
             Contains("image_sizes: 1 pictures have no tokens"));
  CHECK_THAT(refusal({{"pixel_values", padded.narrow(1, 0, 3).contiguous()}}),
             Contains("pixel_values: has"));
  CHECK_THAT(refusal({{"images_per_sample", at::tensor({2, 1}, at::kLong)}}),
             Contains("sample 0 has image tokens for 1 pictures"));
  CHECK_THAT(refusal({{"image_grid_thw", sizes}}), Contains("takes no such tensor"));
}

// Qwen2.5-VL with a patch a token, numbers of a patch 3 * 2 * 2 * 2.
ModelConfig Grids() {
  ModelConfig config = Config(/*has_vision=*/true);
  config.model_type = "qwen2_5_vl";
  config.downsample_ratio = 1;
  config.vision.temporal_patch_size = 2;
  config.vision.tokens_per_second = 2;
  config.video_token_id = 8;
  return config;
}

TEST_CASE("videos go to the rows that have their tokens, between pictures", "[trainer][cpu]") {
  const at::Tensor pixels = at::randn({3, 24}), frames = at::randn({6, 24});
  const Tensors tensors = {
      {"input_ids", Row({1, 9, 2, 8, 8, 8, 8, 3, 9, 9, 4, 8, 8})},
      {"cu_seqlens", at::tensor({0, 11, 13}, at::kInt)},
      {"images_per_sample", at::tensor({2, 0}, at::kInt)},
      {"pixel_values", pixels},
      {"image_grid_thw", at::tensor({1, 1, 1, 1, 2, 1}, at::kLong).view({2, 3})},
      {"pixel_values_videos", frames},
      {"video_grid_thw", at::tensor({2, 1, 2, 1, 1, 2}, at::kLong).view({2, 3})},
      {"second_per_grid_ts", at::tensor({1.6F, 1.0F})}};
  const MicroBatch batch = ReadFor(Grids(), tensors, "token").rows[0].batch;
  CHECK(List(batch.image_positions) == std::vector<int64_t>{1, 3, 4, 5, 6, 8, 9, 11, 12});
  CHECK(List(batch.image_grids) == std::vector<int64_t>{1, 1, 1, 2, 1, 2, 2, 1, 1, 2});
  CHECK(batch.pixel_values.equal(at::cat({pixels.narrow(0, 0, 1), frames.narrow(0, 0, 4),
                                          pixels.narrow(0, 1, 2), frames.narrow(0, 4, 2)})));
  CHECK(List(batch.position_ids[0]) ==  // 3.2 positions apart
        std::vector<int64_t>{0, 1, 2, 3, 3, 6, 6, 7, 8, 8, 10, 0, 0});
  CHECK(List(batch.position_ids[2]) ==
        std::vector<int64_t>{0, 1, 2, 3, 4, 3, 4, 7, 8, 8, 10, 0, 1});
  const auto refusal = [&](const std::string& name, const at::Tensor& tensor) {
    Tensors changed = tensors;
    changed[name] = tensor;
    try {
      ReadFor(Grids(), changed, "token");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(refusal("second_per_grid_ts", at::tensor({1.0F})),
             Contains("second_per_grid_ts: has 1 numbers for 2 videos"));
  CHECK_THAT(refusal("image_grid_thw", at::tensor({1, 1, 1, 2, 1, 1}, at::kLong).view({2, 3})),
             Contains("image_grid_thw: has pictures of 2 times; those of videos stand in"));
  CHECK_THAT(refusal("video_grid_thw", at::tensor({2, 1, 1, 1, 1, 4}, at::kLong).view({2, 3})),
             Contains("row 0 has 2 tokens 8 in a run for the 4 that one of the videos has"));
  CHECK_THAT(refusal("video_grid_thw", at::tensor({2, 1, 2, 1, 1, 1}, at::kLong).view({2, 3})),
             Contains("pixel_values_videos: has the shape [6, 24], not [5, 24]"));
  CHECK_THAT(refusal("input_ids", Row({1, 9, 2, 8, 8, 8, 8, 3, 9, 9, 4, 5, 5})),
             Contains("video_grid_thw: 1 videos have no tokens in input_ids"));
}

TEST_CASE("tensors that do not go together are refused by name", "[trainer][cpu]") {
  struct Bad {
    const char* expected;
    Tensors tensors;
  };
  const at::Tensor ids = Row({1, 2, 9, 4});
  const at::Tensor pixels = at::zeros({1, 3, 4, 4});
  const std::vector<Bad> table = {
      {"input_ids: missing", {{"labels", ids}}},
      {"more: unknown tensor", {{"input_ids", ids}, {"more", ids}}},
      {"image_sizes: a model of type", {{"input_ids", ids}, {"image_sizes", ids}}},
      {"input_ids: must hold whole numbers", {{"input_ids", at::zeros({1, 4})}}},
      {"input_ids: has the shape [4]", {{"input_ids", at::zeros({4}, at::kLong)}}},
      {"input_ids: 10 is outside", {{"input_ids", Row({1, 10})}}},
      {"input_ids: -1 is outside", {{"input_ids", Row({1, -1})}}},
      {"labels: 10 is outside", {{"input_ids", Row({1, 2})}, {"labels", Row({1, 10})}}},
      {"labels: has the shape", {{"input_ids", Row({1, 2})}, {"labels", Row({1})}}},
      {"labels: no position is trained", {{"input_ids", Row({1, 2})}, {"labels", Row({1, -100})}}},
      {"labels: row 0 trains a masked",
       {{"input_ids", Row({1, 2})}, {"labels", Row({1, 2})}, {"attention_mask", Row({1, 0})}}},
      {"attention_mask: row 0 is masked in its middle",
       {{"input_ids", Row({1, 2, 3})}, {"attention_mask", Row({1, 0, 1})}}},
      {"attention_mask: a packed row",
       {{"input_ids", Row({1, 2})},
        {"attention_mask", Row({1, 0})},
        {"cu_seqlens", at::tensor({0, 2}, at::kInt)}}},
      {"cu_seqlens: needs a single row",
       {{"input_ids", at::ones({2, 2}, at::kLong)}, {"cu_seqlens", at::tensor({0, 2}, at::kInt)}}},
      {"cu_seqlens: must ascend from 0 to 3",
       {{"input_ids", Row({1, 2, 3})}, {"cu_seqlens", at::tensor({0, 2, 2, 3}, at::kInt)}}},
      {"cu_seqlens: must ascend from 0 to 3",
       {{"input_ids", Row({1, 2, 3})}, {"cu_seqlens", at::tensor({0, 2}, at::kInt)}}},
      {"pixel_values: holds 0 tiles, too few", {{"input_ids", ids}}},
      {"pixel_values: holds 1 tiles, input_ids have room for 0",
       {{"input_ids", Row({1, 2})}, {"pixel_values", pixels}}},
      {"pixel_values: has the shape [1, 3, 4, 6]",
       {{"input_ids", ids}, {"pixel_values", at::zeros({1, 3, 4, 6})}}},
      {"images_per_sample: sample 0 has image tokens for 1",
       {{"input_ids", ids},
        {"pixel_values", pixels},
        {"images_per_sample", at::zeros({1}, at::kInt)}}},
      {"images_per_sample: sample 1 has image tokens for 0",
       {{"input_ids", at::ones({2, 2}, at::kLong)},
        {"images_per_sample", at::zeros({1}, at::kInt)}}},
      {"images_per_sample: lists 3 samples, input_ids have 2",
       {{"input_ids", at::ones({2, 2}, at::kLong)},
        {"images_per_sample", at::zeros({3}, at::kInt)}}},
      {"images_per_sample: lists 3 samples, input_ids have 2",
       {{"input_ids", Row({1, 2, 9})},
        {"cu_seqlens", at::tensor({0, 2, 3}, at::kInt)},
        {"pixel_values", pixels},
        {"images_per_sample", at::tensor({0, 1, 1}, at::kInt)}}},
  };
  for (const Bad& bad : table) {
    INFO(bad.expected);
    CHECK_THROWS_WITH(Read(bad.tensors), Contains(bad.expected));
    CHECK_THROWS_AS(Read(bad.tensors), DataError);
  }
  CHECK_THROWS_WITH(Read({{"input_ids", ids}, {"pixel_values", pixels}}, false),
                    Contains("takes no pictures"));
  const auto without_vision = [&](const at::Tensor& counts) {
    Read({{"input_ids", ids}, {"images_per_sample", counts}}, false);
  };
  CHECK_NOTHROW(without_vision(at::zeros({1}, at::kInt)));
  CHECK_THROWS_WITH(without_vision(at::ones({1}, at::kInt)),
                    Contains("images_per_sample: sample 0"));
  CHECK_THROWS_WITH(without_vision(at::zeros({2}, at::kInt)), Contains("lists 2 samples"));
}

}  // namespace
}  // namespace equipoise
