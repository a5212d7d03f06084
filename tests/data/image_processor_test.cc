#include "data/images/image_processor.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "data/images/image.h"
#include "models/ops/pixels.h"
#include "tests/data/image_samples.h"

namespace equipoise {
namespace {

constexpr int64_t kSide = 4;

ImageProcessor Tiles(const TilesConfig& config) {
  ImageSpec spec;
  spec.kind = ImageSpec::Kind::kTiles;
  spec.tile_size = kSide;
  spec.rows_per_tile = 5;
  spec.tokens_per_tile = 2;
  spec.mean = {0.485F, 0.456F, 0.406F};
  spec.deviation = {0.229F, 0.224F, 0.225F};
  return {spec, config};
}

// A picture whose red byte numbers its pixels.
at::Tensor NumberedImage(int64_t width, int64_t height) {
  at::Tensor image = at::empty({height, width, 3}, at::kByte);
  uint8_t* pixel = image.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < width * height; ++i, pixel += 3) {
    pixel[0] = static_cast<uint8_t>(i);
    pixel[1] = 7;
    pixel[2] = 255;
  }
  return image;
}

uint8_t Value(const at::Tensor& tiles, int64_t tile, int64_t channel, int64_t y, int64_t x) {
  return tiles.const_data_ptr<uint8_t>()[((tile * 3 + channel) * kSide + y) * kSide + x];
}

TEST_CASE("tiles are cut row by row, into a plane for each channel", "[data][cpu]") {
  const at::Tensor image = NumberedImage(3 * kSide, 2 * kSide);  // the grid's own size: no resize
  const at::Tensor tiles = Tiles({1, 6, false}).Make(image, 1);
  REQUIRE(tiles.sizes() == at::IntArrayRef({6, 3, kSide, kSide}));
  for (int64_t tile = 0; tile < 6; ++tile) {
    for (int64_t y = 0; y < kSide; ++y) {
      for (int64_t x = 0; x < kSide; ++x) {
        const int64_t number = (tile / 3 * kSide + y) * 3 * kSide + tile % 3 * kSide + x;
        CHECK(Value(tiles, tile, 0, y, x) == number);
        CHECK(Value(tiles, tile, 1, y, x) == 7);
        CHECK(Value(tiles, tile, 2, y, x) == 255);
      }
    }
  }
}

TEST_CASE("the thumbnail is the whole picture, last, and only beside several tiles",
          "[data][cpu]") {
  const at::Tensor image = NumberedImage(3 * kSide, 2 * kSide);
  const at::Tensor tiles = Tiles({1, 6, true}).Make(image, 1);
  REQUIRE(tiles.size(0) == 7);
  const at::Tensor alone = Tiles({1, 1, true}).Make(image, 1);
  REQUIRE(alone.size(0) == 1);
  CHECK(tiles[6].equal(alone[0]));
  CHECK(Tiles({1, 6, true}).Make(image, 6).equal(alone));
}

TEST_CASE("what is made of a picture is what its size told", "[data][cpu]") {
  for (int64_t width = 1; width < 20; width += 3) {
    for (int64_t height = 1; height < 20; height += 2) {
      const ImageProcessor processor = Tiles({1, 5, height % 3 != 0});
      for (const int64_t pictures : {1, 2, 9}) {
        const at::Tensor made = processor.Make(NumberedImage(width, height), pictures);
        const PictureLoad load = processor.Measure({width, height}, pictures);
        CHECK(made.sizes() == at::IntArrayRef({load.patches / 5, 3, kSide, kSide}));
        CHECK(load == processor.spec().LoadOfTiles(made.size(0)));
        CHECK(load.patch_pairs == 5.0 * static_cast<double>(load.patches));
        CHECK(load.image_tokens == 2 * made.size(0));
        CHECK(load.image_tokens >= processor.least_tokens());
      }
    }
  }
  CHECK_THROWS_AS(ImageProcessor({}, {}).Measure({1, 1}, 1), std::logic_error);  // no encoder
}

TEST_CASE("a picture of any resolution stands between black borders", "[data][cpu]") {
  ImageSpec spec;
  spec.kind = ImageSpec::Kind::kAnyRes;
  spec.tile_size = 4;
  spec.tokens_per_tile = 4;
  spec.rows_per_tile = 5;
  spec.resolutions = {{1, 3}, {2, 1}};
  const ImageProcessor processor(spec, {/*min=*/1, /*max=*/1, /*thumbnail=*/false});
  // Its height is the resolution's: seven columns in the middle of twelve, two before and three
  // behind.
  const at::Tensor image = NumberedImage(7, 4);
  const at::Tensor tiles = processor.Make(image, 9);
  REQUIRE(tiles.sizes() == at::IntArrayRef({4, 3, 4, 4}));
  CHECK(processor.GridOf({7, 4}) == PatchGrid{4, 7});
  CHECK(processor.Measure({7, 4}, 9).patches == 4 * 5);
  CHECK(tiles[0].equal(ResizeBicubic(image, 4, 4).permute({2, 0, 1})));
  const at::Tensor row = at::cat({tiles[1], tiles[2], tiles[3]}, 2);
  CHECK(row.narrow(2, 2, 7).equal(image.permute({2, 0, 1})));
  CHECK(row.narrow(2, 0, 2).count_nonzero().item<int64_t>() == 0);
  CHECK(row.narrow(2, 9, 3).count_nonzero().item<int64_t>() == 0);
  for (const ImageSize size : {ImageSize{1, 1}, {3, 100}, {100, 3}, {40, 41}}) {
    const PictureLoad load = processor.Measure(size, 1);
    CHECK(load.patches == 5 * processor.Make(NumberedImage(size.width, size.height), 1).size(0));
    CHECK(load.image_tokens >= processor.least_tokens());
  }
}

// Of tiles with four tokens.
ImageSpec SpecOf(ImageSpec::Kind kind, ImageSpec::Fit fit, int64_t tile_size) {
  ImageSpec spec;
  spec.kind = kind;
  spec.fit = fit;
  spec.tile_size = tile_size;
  spec.rows_per_tile = spec.tokens_per_tile = 4;
  return spec;
}

constexpr TilesConfig kOneTile = {/*min=*/1, /*max=*/1, /*thumbnail=*/false};

TEST_CASE("several pictures of a record are padded squares", "[data][cpu]") {
  ImageSpec spec = SpecOf(ImageSpec::Kind::kAnyRes, ImageSpec::Fit::kPad, 8);
  spec.resolutions = {{1, 2}, {2, 1}};
  spec.lone_tiles = true;
  spec.mean = {0.5F, 0, 0};
  const ImageProcessor processor(spec, {/*min=*/1, /*max=*/1, /*thumbnail=*/false});
  const at::Tensor image = NumberedImage(8, 4);
  CHECK(processor.Make(image, 1).size(0) == 3);
  const at::Tensor square = processor.Make(image, 2);
  REQUIRE(square.sizes() == at::IntArrayRef({1, 3, 8, 8}));
  CHECK(square[0].narrow(1, 2, 4).equal(image.permute({2, 0, 1})));
  CHECK(square[0][0].narrow(0, 0, 2).eq(127).all().item<bool>());
  CHECK(square[0][1].narrow(0, 6, 2).eq(0).all().item<bool>());
  CHECK(processor.Measure({8, 4}, 2) == PictureLoad{4, 16, 5});
  CHECK(processor.GridOf({8, 4}, 2) == PatchGrid{-1, -5});
  CHECK(processor.GridOf({8, 4}) == PatchGrid{4, 8});
}

TEST_CASE("a thin picture is refused where it would become a huge square", "[data][cpu]") {
  ImageSpec spec = SpecOf(ImageSpec::Kind::kSquare, ImageSpec::Fit::kPad, 8);
  const std::string words = "1 x 65536 pixels: a side is above 65535, too long to be made a square";
  const ImageProcessor padded(spec, kOneTile);
  CHECK_THROWS_WITH(padded.Measure({1, 65'536}, 1), words);
  CHECK_THROWS_AS(padded.Measure({1'000'000, 1}, 1), ImageError);
  CHECK(padded.Measure({65'535, 1}, 1).patches == 4);
  CHECK(padded.Measure({70'000, 70'000}, 1).patches == 4);  // a square as it is

  ImageSpec several = spec;
  several.kind = ImageSpec::Kind::kAnyRes;
  several.resolutions = {{1, 2}, {2, 1}};
  several.lone_tiles = true;
  const ImageProcessor lone(several, kOneTile);
  CHECK_THROWS_WITH(lone.GridOf({1, 65'536}, 2), words);
  CHECK_THROWS_WITH(lone.Measure({1, 65'536}, 2), words);
  CHECK(lone.GridOf({1, 65'536}) == PatchGrid{65'536, 1});  // tiles of a resolution

  spec.fit = ImageSpec::Fit::kStretch;
  CHECK(ImageProcessor(spec, kOneTile).Measure({1, 1'000'000}, 1).patches == 4);
}

TEST_CASE("of a thin picture no more is enlarged than the crop shows", "[data][cpu]") {
  const ImageProcessor processor(
      SpecOf(ImageSpec::Kind::kSquare, ImageSpec::Fit::kCrop, /*tile_size=*/336), kOneTile);
  CHECK(processor.Measure({1, 1'000'000}, 1).patches == 4);
  // Enlarged it has 336,000,000 rows. The crop reaches from the middle of row 499,999, whose number
  // ends with the byte 31, to that of the next.
  const at::Tensor tile = processor.Make(NumberedImage(1, 1'000'000), 1);
  REQUIRE(tile.sizes() == at::IntArrayRef({1, 3, 336, 336}));
  const at::Tensor red = tile[0][0];
  CHECK(red.narrow(0, 0, 160).eq(31).all().item<bool>());
  CHECK(red.narrow(0, 176, 160).eq(32).all().item<bool>());
  CHECK(tile[0][1].eq(7).all().item<bool>());
  CHECK(tile[0][2].eq(255).all().item<bool>());
}

TEST_CASE("a video's frames are stretched to a tile each", "[data][cpu]") {
  ImageSpec spec;
  spec.kind = ImageSpec::Kind::kAnyRes;
  spec.fit = ImageSpec::Fit::kPad;  // of pictures
  spec.tile_size = 8;
  spec.rows_per_tile = spec.tokens_per_tile = 9;
  spec.resolutions = {{1, 2}};
  spec.lone_tiles = true;
  spec.videos.min_pixels = spec.videos.max_pixels = 64;
  const ImageProcessor processor(spec, {/*min=*/1, /*max=*/1, /*thumbnail=*/false});
  Video video;
  video.frames = 3;
  CHECK(processor.GridOf({12, 4}, video) == PatchGrid{0, 3});
  CHECK(spec.LoadOfGrid(processor.GridOf({12, 4}, video)) == PictureLoad{27, 243, 3 * 4 + 1});
  CHECK(processor.LeastTokens(video) == 13);
  std::vector<at::Tensor> frames;
  for (int64_t i = 0; i < 3; ++i) frames.push_back(NumberedImage(12, 4).add(10 * i));
  const at::Tensor made =
      processor.Make({12, 4}, video, [&](size_t frame) { return frames[frame]; });
  REQUIRE(made.sizes() == at::IntArrayRef({3, 3, 8, 8}));
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(made[i].equal(ResizeBicubic(frames[static_cast<size_t>(i)], 8, 8).permute({2, 0, 1})));
  }
}

ImageSpec Grids(int64_t min_pixels, int64_t max_pixels) {
  ImageSpec spec;
  spec.kind = ImageSpec::Kind::kNative;
  spec.rows_per_tile = 4;
  spec.tokens_per_tile = 1;
  spec.patch_size = 14;
  spec.merge = spec.frames = 2;
  spec.min_pixels = min_pixels;
  spec.max_pixels = max_pixels;
  return spec;
}

TEST_CASE("a picture's grid is that of Transformers' smart_resize", "[data][cpu]") {
  struct Row {
    ImageSize size;
    int64_t min_pixels, max_pixels;
    PatchGrid grid;
  };
  for (const Row& row :
       {Row{{28, 28}, 3136, 12845056, {4, 4}}, Row{{1, 1}, 3136, 12845056, {4, 4}},
        Row{{70, 42}, 3136, 12845056, {4, 4}},  // halves go to the even number
        Row{{2800, 14}, 3136, 12845056, {2, 58}}, Row{{1500, 10}, 3136, 12845056, {2, 50}},
        Row{{7016, 4961}, 3136, 1003520, {60, 84}}, Row{{5000, 5000}, 3136, 12845056, {254, 254}},
        Row{{56, 57}, 40000, 80000, {16, 16}}, Row{{98, 126}, 3136, 1003520, {8, 8}}}) {
    INFO(row.size.width << " x " << row.size.height);
    const ImageProcessor processor(Grids(row.min_pixels, row.max_pixels), {});
    const PatchGrid grid = processor.GridOf(row.size);
    CHECK(grid == row.grid);
    const PictureLoad load = processor.Measure(row.size, 3);
    CHECK(load.patches == grid.patches());
    CHECK(load.image_tokens == grid.patches() / 4);
    CHECK(load.patch_pairs == static_cast<double>(grid.patches() * grid.patches()));
  }
  const ImageProcessor processor(Grids(3136, 12845056), {});
  CHECK_THROWS_WITH(processor.GridOf({201, 1}), Catch::Contains("more than 200 times"));
}

TEST_CASE("a video's grid is that of Transformers' video processors", "[data][cpu]") {
  struct Row {
    size_t frames;
    ImageSize size;  // width, height
    PatchGrid grid;
  };
  const auto check = [](const ImageProcessor& processor, const Row& row) {
    INFO(row.frames << " of " << row.size.width << " x " << row.size.height);
    Video video;
    video.frames = video.whole = row.frames;
    video.fps = 4;
    CHECK(processor.GridOf(row.size, video) == row.grid);
  };
  ImageSpec spec = Grids(56 * 56, 28 * 28 * 1280);
  spec.videos.min_pixels = 128 * 28 * 28;
  spec.videos.max_pixels = 768 * 28 * 28;
  for (const Row& row : {Row{2, {640, 480}, {34, 46, 1}}, Row{5, {1920, 1080}, {40, 72, 3}},
                         Row{1, {90, 100}, {24, 22, 1}}, Row{4, {300, 20}, {6, 88, 2}}}) {
    check(ImageProcessor(spec, {}), row);
  }
  spec.videos.positions_per_second = 3;  // two frames are half a second
  check(ImageProcessor(spec, {}), {5, {640, 480}, {34, 46, 3, 1.5F}});

  ImageSpec third = Grids(56 * 56, 28 * 28 * 1280);
  third.patch_size = 16;
  third.videos = {128 * 32 * 32, 24576 * 32 * 32, true, 0, true, 0};
  for (const Row& row : {Row{2, {640, 480}, {30, 40, 1}}, Row{32, {1920, 1080}, {40, 72, 16}},
                         Row{3, {90, 100}, {14, 14, 2}}, Row{5, {300, 20}, {4, 40, 3}},
                         Row{64, {640, 360}, {22, 40, 32}}, Row{4, {16, 16}, {12, 12, 2}}}) {
    check(ImageProcessor(third, {}), row);
  }
  Video five;
  five.frames = 5;
  CHECK(ImageProcessor(third, {}).LeastTokens(five) == 3);
  third.videos.max_pixels = 768 * 32 * 32;
  check(ImageProcessor(third, {}), {32, {1920, 1080}, {6, 12, 16}});

  // With cap_pixels_per_frame.
  third.videos.max_pixels = 24576 * 32 * 32;
  third.videos.capped_tokens = 768;
  for (const Row& row : {Row{2, {1920, 1080}, {40, 72, 1}}, Row{32, {1920, 1080}, {40, 72, 16}},
                         Row{200, {1920, 1080}, {16, 30, 100}}}) {
    check(ImageProcessor(third, {}), row);
  }
  spec.videos.positions_per_second = 0;
  spec.videos.capped_tokens = 128'000;
  for (const Row& row : {Row{5, {1920, 1080}, {40, 72, 3}}, Row{768, {1920, 1080}, {24, 46, 384}},
                         Row{4000, {1920, 1080}, {16, 30, 2000}}}) {
    check(ImageProcessor(spec, {}), row);
  }
}

TEST_CASE("frames of a video are paired, and the last is repeated", "[data][cpu]") {
  ImageSpec spec = Grids(28 * 28, 56 * 56);
  spec.videos.min_pixels = 28 * 28;
  spec.videos.max_pixels = 56 * 56;
  const ImageProcessor processor(spec, {});
  Video video;
  video.frames = video.whole = 3;
  std::vector<at::Tensor> frames;
  for (int64_t i = 0; i < 3; ++i) frames.push_back(NumberedImage(28, 28).add(10 * i));
  const at::Tensor made =
      processor.Make({28, 28}, video, [&](size_t frame) { return frames[frame]; });
  REQUIRE(made.sizes() == at::IntArrayRef({8, 3 * 2 * 14 * 14}));
  const at::Tensor by_frame = made.view({2, 4, 3, 2, 14 * 14});
  for (int64_t i = 0; i < 4; ++i) {
    const at::Tensor alone =
        processor.Make(frames[static_cast<size_t>(std::min<int64_t>(i, 2))], 1);
    CHECK(by_frame.select(0, i / 2).select(2, i % 2).equal(
        alone.view({4, 3, 2, 14 * 14}).select(2, 0)));
  }
}

TEST_CASE("patches are cut square by square, each channel's frames together", "[data][cpu]") {
  const at::Tensor image = NumberedImage(56, 28);  // the grid's own size: no resize
  const at::Tensor patches = ImageProcessor(Grids(28 * 28, 56 * 56), {}).Make(image, 1);
  REQUIRE(patches.sizes() == at::IntArrayRef({8, 3 * 2 * 14 * 14}));
  const uint8_t* byte = patches.const_data_ptr<uint8_t>();
  for (int64_t patch = 0; patch < 8; ++patch) {
    const int64_t row = patch % 4 / 2, column = patch / 4 * 2 + patch % 2;
    for (int64_t channel = 0; channel < 3; ++channel) {
      for (int64_t frame = 0; frame < 2; ++frame) {
        for (int64_t i = 0; i < 14 * 14; ++i, ++byte) {
          const int64_t number = (row * 14 + i / 14) * 56 + column * 14 + i % 14;
          REQUIRE(*byte == (channel == 0 ? number % 256 : channel == 1 ? 7 : 255));
        }
      }
    }
  }
}

TEST_CASE("pixels are normalized step by step in fp32, in one pass as well", "[data][cpu]") {
  ImageSpec spec;
  spec.mean = {0.48145466F, 0.4578275F, 0.40821073F};
  spec.deviation = {0.26862954F, 0.26130258F, 0.27577711F};
  const at::Tensor bytes = at::arange(256, at::kByte).view({16, 16});
  const at::Tensor pixels = bytes.expand({5, 3, 16, 16}).contiguous();
  const at::Tensor mean = at::tensor(at::ArrayRef<float>(spec.mean)).view({3, 1, 1});
  const at::Tensor deviation = at::tensor(at::ArrayRef<float>(spec.deviation)).view({3, 1, 1});
  const at::Tensor wanted =
      pixels.to(at::kFloat).div(at::full({1}, 255.0F)).sub(mean).div(deviation);
  const ops::PixelScale scale(spec, at::kCPU);
  CHECK(scale(pixels).equal(wanted));
  CHECK(scale(pixels.view({5, -1})).equal(wanted.view({5, -1})));
  CHECK(scale(pixels.narrow(2, 3, 8)).equal(wanted.narrow(2, 3, 8)));
}

TEST_CASE("a file becomes a tensor of its pixels", "[data][cpu]") {
  const at::Tensor image = DecodeImage(MakePng({3, 2}), {});
  CHECK(image.sizes() == at::IntArrayRef({2, 3, 3}));
  CHECK(image.scalar_type() == at::kByte);
  CHECK(ResizeBicubic(image, 3, 2).equal(image));
  CHECK(ResizeBicubic(image, 7, 5).sizes() == at::IntArrayRef({5, 7, 3}));
  CHECK_THROWS_AS(DecodeImage(MakePng({3, 2}), {5, 1 << 20}), ImageError);
  CHECK_THROWS_AS(ResizeBicubic(image.permute({1, 0, 2}), 3, 2), std::logic_error);
}

}  // namespace
}  // namespace equipoise
