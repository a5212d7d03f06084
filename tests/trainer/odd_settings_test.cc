#include "trainer/settings/odd_settings.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "configs/yaml/overrides.h"

namespace equipoise {
namespace {

using Lines = std::vector<std::string>;

Lines Of(const std::vector<std::string>& settings, ImageSpec::Kind kind = ImageSpec::Kind::kTiles) {
  RunConfig config;
  ReadConfigText("a.yaml", "", ParseOverrides(settings), config);
  ImageSpec images;
  images.kind = kind;
  return OddSettings(config, images);
}

TEST_CASE("rates where shares of the rate belong are told", "[trainer][cpu]") {
  CHECK(Of({"train.lr=1e-5", "train.min_lr=1e-6"}) ==
        Lines{"train.min_lr: 1e-06 is a share of train.lr 1e-05, and the rate ends at 1e-11; for "
              "a rate of 1e-06 write 0.1"});
  CHECK(Of({"train.lr=1e-5", "train.min_lr=5e-4"}) ==
        Lines{"train.min_lr: 0.0005 is a share of train.lr 1e-05, and the rate ends at 5e-09"});
  CHECK(Of({"train.lr=1e-5", "train.lr_factor.vision=2e-6"}) ==
        Lines{"train.lr_factor.vision: 2e-06 is a factor on train.lr 1e-05, which makes a rate of "
              "2e-11; for a rate of 2e-06 write 0.2"});
  CHECK(Of({"train.lr_factor.projector=9e-4", "train.lr_factor.llm=1e-5"}).size() == 2);
  for (const Lines& fine : std::vector<Lines>{
           {},
           {"train.min_lr=0.1", "train.lr_factor.vision=0.001"},
           {"train.min_lr=0", "train.lr_factor.vision=0"},
           {"train.min_lr=1e-3"},
           {"train.min_lr=1e-6", "train.lr=0"},
           {"train.min_lr=1e-6", "train.schedule=constant"},
       }) {
    CHECK(Of(fine).empty());
  }
}

TEST_CASE("second moments that can only rise are told", "[trainer][cpu]") {
  CHECK(
      Of({"train.moments=bf16", "train.beta2=0.999"}) ==
      Lines{"train.moments: bf16 rounds to a step of 0.8 %, so that with train.beta2: 0.999 second "
            "moments rise and never fall; set beta2 to 0.996 or less, or moments to fp32 or "
            "8bit"});
  CHECK(Of({"train.moments=bf16", "train.beta2=0.996"}).empty());
  CHECK(Of({"train.beta2=0.999"}).empty());
}

TEST_CASE("settings of frozen components are told", "[trainer][cpu]") {
  CHECK(Of({"model.freeze=[vision]", "train.lr_factor.vision=0.5"}) ==
        Lines{"train.lr_factor.vision: 0.5 has no effect: model.freeze has vision; leave one of "
              "them out"});
  CHECK(Of({"model.freeze=[vision]", "train.lr_factor.llm=0.5"}).empty());
  CHECK(Of({"model.freeze=[llm]", "train.lr_factor.llm=0.5", "model.adapter.targets=[q_proj]",
            "model.adapter.train=[norm]"})
            .empty());
  CHECK(Of({"model.freeze=[vision]", "model.drop_path=0.1"}) ==
        Lines{"model.drop_path: 0.1 has no effect: blocks that are trained are skipped alone, and "
              "model.freeze has vision; leave one of them out"});
  for (const Lines& fine : std::vector<Lines>{
           {"model.freeze=[vision]", "model.drop_path=0"},
           {"model.freeze=[llm]", "model.drop_path=0.1"},
           {"model.freeze=[vision]", "model.drop_path=0.1", "model.unfreeze=['vision[-8:]']"},
           {"model.freeze=[vision]", "train.lr_factor.vision=0.1",
            "model.unfreeze=['vision[-8:]']"}}) {
    CHECK(Of(fine).empty());
  }
  const std::string all = "model.adapter.targets=[all-linear]";
  CHECK(Of({all, "model.freeze=[vision, llm]"}) ==
        Lines{"model.freeze: with vision and llm in it the projector alone gets adapters; "
              "adapters freeze the layers below them by themselves: leave out what shall have "
              "some"});
  CHECK(Of({all, "model.freeze=[vision]"}).empty());
  CHECK(Of({all, "model.freeze=[llm, projector]"}).empty());
  CHECK(Of({"model.freeze=[vision, llm]"}).empty());
}

TEST_CASE("settings that nothing reads are told", "[trainer][cpu]") {
  CHECK(Of({"train.micro_batch=1"}) ==
        Lines{"train.micro_batch: 1 has no effect with balance.group: isf+, whose packs have as "
              "many samples as fit; set balance.group: random or length_grouped, or leave it out"});
  CHECK(Of({"train.micro_batch=1", "balance.group=random"}).empty());
  CHECK(Of({"train.micro_batch=1", "balance.group=length_grouped"}).empty());
  CHECK(Of({"train.micro_batch=4"}).empty());
  CHECK(Of({"data.tiles.max=12"}).empty());
  CHECK(Of({"data.tiles.max=12"}, ImageSpec::Kind::kNative) ==
        Lines{"data.tiles: has no effect on this model, which takes pictures at about their own "
              "size; set data.pixels, or leave it out"});
  for (const auto kind :
       {ImageSpec::Kind::kNone, ImageSpec::Kind::kSquare, ImageSpec::Kind::kAnyRes}) {
    CHECK(Of({"data.tiles.thumbnail=false"}, kind).size() == 1);
    CHECK(Of({}, kind).empty());
  }
}

}  // namespace
}  // namespace equipoise
