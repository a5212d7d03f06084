#include "trainer/checkpoint/checkpoint.h"

#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "parallel/comm/single_communicator.h"
#include "tests/parallel/run_ranks.h"
#include "tests/trainer/checkpoint_sample.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/checkpoint/checkpoint_layout.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST_CASE("what any number of ranks save, one rank reads", "[checkpoint][cpu]") {
  const int ranks = GENERATE(1, 2, 5);
  const ScratchFolder scratch;
  RunRanks(ranks, [&](Communicator& world) {
    SaveCheckpoint(scratch.path(), SampleContent(40, world.rank()), 3, world);
  });
  const std::string folder = FindCheckpoint(scratch.path());
  CHECK(folder == scratch.Path("checkpoints/step-00000040"));
  CHECK(HoldsSample(folder, ranks));
  const CheckpointIndex index = ReadCheckpointIndex(folder, /*verify=*/true);
  CHECK(index.state.step == 40);
  CHECK(index.state.position.epoch == 2);
  CHECK(index.state.position.pack == 120);
  CHECK(index.state.optimizer_step == 39);
  CHECK(index.state.tokens == 160);
  CHECK(index.state.samples == 200);
  CHECK(index.state.images == 240);
  CHECK(index.state.skipped_samples == 7);
  CHECK(index.state.non_finite_in_a_row == 1);
  CHECK(index.environment == SampleContent(40, 0).environment);
  CHECK(index.version == 3);
  CHECK(index.sections == SampleContent(40, 0).sections);
  CHECK(index.settings == SampleContent(40, 0).settings);
  CHECK(index.tensors.size() == 2 * static_cast<size_t>(ranks));
}

TEST_CASE("the best checkpoint is linked and never deleted", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SingleCommunicator world;
  CheckpointContent content = SampleContent(40, 0);
  for (const int64_t step : {40, 50, 60, 70}) {
    content.state.step = step;
    if (step == 50) content.state.best = BestStep{"doc/anls", 0.5, step};
    SaveCheckpoint(scratch.path(), content, /*keep=*/1, world);
  }
  const std::string folder = scratch.Path("checkpoints");
  CHECK(NamesIn(folder) ==
        std::set<std::string>{"best", "latest", "step-00000050", "step-00000070"});
  CHECK(fs::read_symlink(fs::path(folder) / "best") == "step-00000050");
  const TrainState state = ReadCheckpointIndex(folder + "/step-00000070", /*verify=*/true).state;
  REQUIRE(state.best);
  CHECK(state.best->measure == "doc/anls");
  CHECK(state.best->value == 0.5);
  CHECK(state.best->step == 50);
  content.state.step = 80;
  content.state.best = BestStep{"doc/anls", 0.6, 80};
  SaveCheckpoint(scratch.path(), content, /*keep=*/1, world);
  CHECK(NamesIn(folder) == std::set<std::string>{"best", "latest", "step-00000080"});
}

TEST_CASE("a run that goes back has the best of what it goes back to", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SingleCommunicator world;
  CheckpointContent content = SampleContent(10, 0);
  const auto save = [&](int64_t step, std::optional<int64_t> best) {
    content.state.step = step;
    content.state.best.reset();
    if (best) content.state.best = BestStep{"eval_loss", 1.0 / static_cast<double>(*best), *best};
    SaveCheckpoint(scratch.path(), content, /*keep=*/0, world);
  };
  save(10, 10);
  save(20, 10);
  save(30, 30);
  const fs::path folder = scratch.Path("checkpoints");
  CHECK(LinkedName(folder, kBestName) == "step-00000030");
  GoBackTo(scratch.path(), folder / "step-00000020");
  CHECK(LinkedName(folder, kLatestName) == "step-00000020");
  CHECK(FindCheckpoint(scratch.path()) == folder / "step-00000020");
  fs::remove(folder / "step-00000020" / "index.json");
  CHECK(FindCheckpoint(scratch.path()) == folder / "step-00000010");  // not that of the way left
  save(25, 10);
  CHECK(LinkedName(folder, kBestName) == "step-00000010");
  CHECK(HasCheckpointOf(scratch.path(), 10));
  CHECK_FALSE(HasCheckpointOf(scratch.path(), 11));
  MarkUnsound(scratch.path(), content.state.optimizer_step, "not finite");
  CHECK_FALSE(HasCheckpointOf(scratch.path(), 10));
  fs::remove_all(folder / "step-00000010");
  save(26, 10);
  CHECK_FALSE(fs::exists(fs::symlink_status(folder / kBestName)));
  const ScratchFolder other;
  GoBackTo(other.path(), folder / "step-00000026");
  CHECK_FALSE(fs::exists(other.Path("checkpoints")));
}

TEST_CASE("a checkpoint that was being replaced without an exchange has its name back",
          "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SingleCommunicator world;
  const std::string folder = SaveCheckpoint(scratch.path(), SampleContent(40, 0), 1, world).folder;
  fs::rename(folder, scratch.Path("checkpoints/.tmp-step-00000040.old"));
  FinishReplacing(scratch.path());
  CHECK(FindCheckpoint(scratch.path()) == folder);
  CHECK(HoldsSample(folder, 1));
  fs::create_directory(scratch.Path("checkpoints/.tmp-step-00000040.old"));
  FinishReplacing(scratch.path());  // the new one is there
  CHECK(HoldsSample(folder, 1));
}

TEST_CASE("the scale of the loss is kept", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SingleCommunicator world;
  CheckpointContent content = SampleContent(40, 0);
  for (const auto& scale : {std::optional<LossScale>(), std::optional<LossScale>({0x1p20, 17})}) {
    content.state.loss_scale = scale;
    content.state.step += 1;
    const std::string folder = SaveCheckpoint(scratch.path(), content, 3, world).folder;
    CHECK(ReadCheckpointIndex(folder, /*verify=*/true).state.loss_scale == scale);
  }
}

TEST_CASE("answers that are owed are kept", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SingleCommunicator world;
  CheckpointContent content = SampleContent(40, 0);
  for (const bool owes : {true, false}) {
    content.state.owes_answers = owes;
    content.state.non_finite_tried = owes;
    const std::string folder = SaveCheckpoint(scratch.path(), content, 3, world).folder;
    const TrainState state = ReadCheckpointIndex(folder, /*verify=*/true).state;
    CHECK(state.owes_answers == owes);
    CHECK(state.non_finite_tried == owes);
  }
}

TEST_CASE("ranks without tensors write no file", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  RunRanks(3, [&](Communicator& world) {
    CheckpointContent content = SampleContent(1, world.rank());
    if (world.rank() != 1) content.tensors.clear();
    SaveCheckpoint(scratch.path(), content, 1, world);
  });
  const std::string folder = scratch.Path("checkpoints/step-00000001");
  CHECK(NamesIn(folder) == std::set<std::string>{"index.json", "rank-00001.safetensors"});
}

TEST_CASE("the newest are kept, and left-over folders are removed", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  fs::create_directories(scratch.Path("checkpoints/.tmp-step-00000099/deep"));
  fs::create_directories(scratch.Path("checkpoints/.tmp-delete-step-00000001"));
  for (int64_t step = 10; step <= 50; step += 10) SaveSample(scratch.path(), step, /*keep=*/2);
  CHECK(NamesIn(scratch.Path("checkpoints")) ==
        std::set<std::string>{"latest", "step-00000040", "step-00000050"});
  CHECK(fs::read_symlink(scratch.Path("checkpoints/latest")) == "step-00000050");
}

TEST_CASE("steps of a course that was left are the first to go", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  for (const int64_t step : {10, 20, 30}) SaveSample(scratch.path(), step, /*keep=*/3);
  SaveSample(scratch.path(), 15, /*keep=*/2);  // resumed from step 10
  CHECK(NamesIn(scratch.Path("checkpoints")) ==
        std::set<std::string>{"latest", "step-00000010", "step-00000015"});
  CHECK(FindCheckpoint(scratch.path()) == scratch.Path("checkpoints/step-00000015"));
}

TEST_CASE("a step that is saved again takes the place of the old one", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SaveSample(scratch.path(), 10, 1);
  WriteText(scratch.Path("checkpoints/step-00000010/index.json"), "damaged");
  SaveSample(scratch.path(), 10, 1);
  CHECK(HoldsSample(FindCheckpoint(scratch.path()), 1));
  CHECK(NamesIn(scratch.Path("checkpoints")) == std::set<std::string>{"latest", "step-00000010"});
}

TEST_CASE("a checkpoint is found by run folder, step folder and link", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  CHECK(FindCheckpoint(scratch.Path("absent")).empty());
  CHECK(FindCheckpoint(scratch.path()).empty());
  SaveSample(scratch.path(), 10, 3);
  SaveSample(scratch.path(), 20, 3);
  for (const char* name : {"checkpoints/step-00000010", "checkpoints/latest"}) {
    CHECK(FindCheckpoint(scratch.Path(name)) == scratch.Path(name));
  }
  std::vector<std::string> found(3);
  RunRanks(3, [&](Communicator& world) {
    found[static_cast<size_t>(world.rank())] = FindCheckpoint(scratch.path(), world);
  });
  const std::string newest = scratch.Path("checkpoints/step-00000020");
  CHECK(found == std::vector<std::string>(3, newest));
}

TEST_CASE("one tensor from two ranks is refused, and nothing is left", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  std::vector<std::string> texts(2);
  RunRanks(2, [&](Communicator& world) {
    try {
      SaveCheckpoint(scratch.path(), SampleContent(1, /*rank=*/0), 1, world);
    } catch (const RunError& error) {
      texts[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  CHECK(texts[0].find(
            "layer.0.weight: elements 0 to 999 are there twice, where one rank alone must "
            "save each; in rank-00000.safetensors, rank-00001.safetensors") != std::string::npos);
  CHECK(texts[1] == texts[0]);
  CHECK(NamesIn(scratch.Path("checkpoints")).empty());
}

TEST_CASE("a tensor that is absent or of another shape is refused", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SaveSample(scratch.path(), 1, 1);
  const std::string folder = FindCheckpoint(scratch.path());
  const CheckpointIndex index = ReadCheckpointIndex(folder, /*verify=*/false);
  const CheckpointTargets absent{{"other.weight", at::zeros({250, 4})}};
  CHECK_THROWS_WITH(ReadCheckpointTensors(folder, index, absent),
                    Catch::Contains("tensor other.weight is absent"));
  const CheckpointTargets larger{{"layer.0.weight", at::zeros({500, 4})}};
  CHECK_THROWS_WITH(ReadCheckpointTensors(folder, index, larger),
                    Catch::Contains("has the shape [250, 4], the model needs [500, 4]"));
}

// A tensor of [6, 10] whose elements are their own places, cut as `pieces`, one of each rank.
void SavePieces(const std::string& run_dir, const std::vector<TensorPiece>& pieces) {
  RunRanks(static_cast<int>(pieces.size()), [&](Communicator& world) {
    CheckpointContent content = SampleContent(1, world.rank());
    const TensorPiece& piece = pieces[static_cast<size_t>(world.rank())];
    at::Tensor values = at::zeros({PieceSize(piece)}, at::kFloat);
    for (const Segment& s : Segments(piece)) {
      for (int64_t i = 0; i < s.count; ++i) {
        values.mutable_data_ptr<float>()[s.local + i] = static_cast<float>(s.whole + i);
      }
    }
    if (piece.whole()) values = values.view(piece.shape);
    content.tensors = {{"t", HeldPiece(values, piece)}};
    SaveCheckpoint(run_dir, content, 1, world);
  });
}

TEST_CASE("a tensor saved in pieces is read in others, and whole", "[checkpoint][cpu]") {
  const std::vector<int64_t> shape = {6, 10};
  const std::vector<std::vector<TensorPiece>> cuts = {
      {{shape, -1, {}, {}}},
      {{shape, 0, {0, 4}, {}}, {shape, 0, {4, 6}, {}}},
      {{shape, 1, {0, 3}, {}}, {shape, 1, {3, 10}, {}}},
      {{shape, -1, {}, {{0, 7}, {20, 33}}}, {shape, -1, {}, {{7, 20}, {33, 60}}}},
      {{shape, 1, {0, 5}, {{0, 8}}}, {shape, 1, {0, 5}, {{8, 30}}}, {shape, 1, {5, 10}, {}}},
  };
  for (const std::vector<TensorPiece>& saved : cuts) {
    const ScratchFolder scratch;
    SavePieces(scratch.path(), saved);
    const std::string folder = FindCheckpoint(scratch.path());
    const CheckpointIndex index = ReadCheckpointIndex(folder, /*verify=*/true);
    for (const std::vector<TensorPiece>& wanted : cuts) {
      for (const TensorPiece& piece : wanted) {
        const at::Tensor values = at::full({PieceSize(piece)}, -1.0, at::kFloat);
        ReadCheckpointTensors(folder, index, {{"t", HeldPiece(values, piece)}});
        for (const Segment& s : Segments(piece)) {
          for (int64_t i = 0; i < s.count; ++i) {
            REQUIRE(values.const_data_ptr<float>()[s.local + i] == static_cast<float>(s.whole + i));
          }
        }
      }
    }
  }
}

TEST_CASE("pieces that do not make up a tensor are refused", "[checkpoint][cpu]") {
  const std::vector<int64_t> shape = {6, 10};
  const TensorPiece half{shape, 0, {0, 3}, {}}, rest{shape, 0, {3, 6}, {}};
  const std::vector<std::pair<std::vector<TensorPiece>, std::string>> cases = {
      {{half}, "elements 30 to 59 are missing"},
      {{half, {shape, 0, {2, 6}, {}}}, "elements 20 to 29 are there twice"},
      {{half, {{6, 11}, 0, {3, 6}, {}}}, "tensor t has two shapes"},
  };
  for (const auto& [pieces, text] : cases) {
    const ScratchFolder scratch;
    CHECK_THROWS_WITH(SavePieces(scratch.path(), pieces), Catch::Contains(text));
  }
  const ScratchFolder scratch;
  SavePieces(scratch.path(), {half, rest});
  const std::string folder = FindCheckpoint(scratch.path());
  CheckpointIndex index = ReadCheckpointIndex(folder, /*verify=*/true);
  const at::Tensor values = at::zeros(shape, at::kFloat);
  CHECK_THROWS_WITH(ReadCheckpointTensors(folder, index, {{"t", HeldPiece(at::zeros({10, 6}))}}),
                    Catch::Contains("tensor t has the shape [6, 10], the model needs [10, 6]"));
  index.tensors["t"].pop_back();
  CHECK_THROWS_WITH(ReadCheckpointTensors(folder, index, {{"t", HeldPiece(values)}}),
                    Catch::Contains("tensor t is not whole: elements 30 to 59 are missing"));
  index.tensors["t"][0].piece.along.end = 6;
  CHECK_THROWS_WITH(ReadCheckpointTensors(folder, index, {{"t", HeldPiece(values)}}),
                    Catch::Contains("tensor t has another size than the index says"));
}

TEST_CASE("a piece needs no other file than its own", "[checkpoint][cpu]") {
  const std::vector<int64_t> shape = {6, 10};
  const TensorPiece half{shape, 0, {0, 3}, {}}, rest{shape, 0, {3, 6}, {}};
  const ScratchFolder scratch;
  SavePieces(scratch.path(), {half, rest});
  const std::string folder = FindCheckpoint(scratch.path());
  const CheckpointIndex index = ReadCheckpointIndex(folder, /*verify=*/true);
  fs::remove(folder + "/rank-00001.safetensors");
  const at::Tensor values = at::zeros({30}, at::kFloat);
  CHECK_NOTHROW(ReadCheckpointTensors(folder, index, {{"t", HeldPiece(values, half)}}));
  CHECK_THROWS_AS(ReadCheckpointTensors(folder, index, {{"t", HeldPiece(values, rest)}}),
                  DataError);
}

TEST_CASE("checkpoints of versions 1 and 2 are read", "[checkpoint][cpu]") {
  const int version = GENERATE(1, 2);
  const ScratchFolder scratch;
  SaveSample(scratch.path(), 10, 1);
  const std::string path = scratch.Path("checkpoints/step-00000010/index.json");
  Json index = Json::parse(ReadText(path));
  CHECK(index["version"] == 3);
  CHECK(index["tensors"]["layer.0.weight"] == "rank-00000.safetensors");  // as in version 1
  index["version"] = version;
  index.erase("xxh3_64");
  index.erase("settings");
  WriteText(path, index.dump());
  CHECK(HoldsSample(FindCheckpoint(scratch.path()), 1));
  const CheckpointIndex read = ReadCheckpointIndex(FindCheckpoint(scratch.path()), true);
  CHECK(read.version == version);
  CHECK(read.settings.empty());
}

TEST_CASE("what is not finite is not saved, and the checkpoints before stay", "[checkpoint][cpu]") {
  const float value =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
               -std::numeric_limits<float>::infinity());
  const std::string poisoned = GENERATE("layer.1.weight", "exp_avg.layer.1.weight");
  const ScratchFolder scratch;
  const auto save = [&](int64_t step, bool spoil) {
    std::vector<std::string> texts(2);
    RunRanks(2, [&](Communicator& world) {
      CheckpointContent content = SampleContent(step, world.rank());
      if (spoil && world.rank() == 1)
        content.tensors.at(poisoned).values.Get().select(0, 249).select(0, 3).fill_(value);
      try {
        SaveCheckpoint(scratch.path(), content, 1, world);
      } catch (const RunError& error) {
        texts[static_cast<size_t>(world.rank())] = error.what();
      }
    });
    return texts;
  };
  CHECK(save(10, false) == std::vector<std::string>(2));
  const std::vector<std::string> texts = save(20, true);
  CHECK(texts[0].find("tensor " + poisoned + " holds values that are infinite or no numbers") == 0);
  CHECK(texts[1] == texts[0]);
  CHECK(NamesIn(scratch.Path("checkpoints")) == std::set<std::string>{"latest", "step-00000010"});
  CHECK(HoldsSample(FindCheckpoint(scratch.path()), 2));
}

TEST_CASE("a save that keeps all deletes none", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  for (const int64_t step : {10, 20, 30}) SaveSample(scratch.path(), step, /*keep=*/0);
  CHECK(NamesIn(scratch.Path("checkpoints")).size() == 4);
}

TEST_CASE("checkpoints marked as unsound are passed over, and the first to go",
          "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  for (const int64_t step : {10, 20, 30}) SaveSample(scratch.path(), step, /*keep=*/3);
  CHECK(MarkUnsound(scratch.path(), /*optimizer_step=*/77, "why").empty());
  CHECK(MarkUnsound(scratch.path(), /*optimizer_step=*/29, "steps 31 to 35 were not finite") ==
        std::vector<std::string>{"step-00000030"});
  CHECK(FindCheckpoint(scratch.path()) == scratch.Path("checkpoints/step-00000020"));
  const std::string marked = scratch.Path("checkpoints/step-00000030");
  CHECK(FindCheckpoint(marked) == marked);  // asked for by name
  SaveSample(scratch.path(), 25, /*keep=*/3);
  CHECK(NamesIn(scratch.Path("checkpoints")) ==
        std::set<std::string>{"latest", "step-00000010", "step-00000020", "step-00000025"});
}

TEST_CASE("checkpoints that were passed over are not found again", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  for (const int64_t step : {10, 20}) SaveSample(scratch.path(), step, /*keep=*/3);
  const std::string older = scratch.Path("checkpoints/step-00000010"),
                    newer = scratch.Path("checkpoints/step-00000020");
  CHECK(FindCheckpoint(scratch.path(), {newer}) == older);
  CHECK_THROWS_WITH(FindCheckpoint(scratch.path(), {newer, older}),
                    Catch::Contains("none of the 2 checkpoints"));
}

}  // namespace
}  // namespace equipoise
