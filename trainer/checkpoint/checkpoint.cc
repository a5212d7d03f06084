#include "trainer/checkpoint/checkpoint.h"

#include <ATen/ops/aminmax.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/weights/safetensors.h"
#include "parallel/comm/values.h"
#include "trainer/checkpoint/checkpoint_integrity.h"
#include "trainer/checkpoint/checkpoint_json.h"
#include "trainer/checkpoint/checkpoint_layout.h"
#include "trainer/common/agreement.h"
#include "trainer/common/durable_file.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

void Remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw RunError(path.string() + ": cannot remove: " + error.message());
}

// Left by a run that was killed while it saved or deleted.
void RemoveTemporaries(const fs::path& checkpoints) {
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints)) {
    if (entry.path().filename().string().rfind(kTemporaryPrefix, 0) == 0) left.push_back(entry);
  }
  for (const fs::path& path : left) Remove(path);
}

void PrepareTemporary(const fs::path& checkpoints, const fs::path& temporary) {
  std::error_code error;
  fs::create_directories(checkpoints, error);
  if (error) throw RunError(checkpoints.string() + ": cannot create: " + error.message());
  RemoveTemporaries(checkpoints);
  fs::create_directory(temporary, error);
  if (error) throw RunError(temporary.string() + ": cannot create: " + error.message());
}

// The size and checksum of every rank's file; bytes 0 where a rank has none.
std::vector<FileSum> GatherSums(const FileSum& mine, Communicator& world) {
  const std::vector<int64_t> words = {mine.bytes, std::bit_cast<int64_t>(mine.xxh3)};
  std::vector<FileSum> sums;
  sums.reserve(static_cast<size_t>(world.size()));
  for (const std::vector<int64_t>& rank : GatherValues(world, words)) {
    sums.push_back({rank[0], std::bit_cast<uint64_t>(rank[1])});
  }
  return sums;
}

Json StateJson(const TrainState& state) {
  return {{"step", state.step},
          {"epoch", state.position.epoch},
          {"pack", state.position.pack},
          {"optimizer_step", state.optimizer_step},
          {"tokens", state.tokens},
          {"samples", state.samples},
          {"images", state.images},
          {"skipped_samples", state.skipped_samples},
          {"non_finite_in_a_row", state.non_finite_in_a_row}};
}

// Adds what a rank's file holds. It tells itself which pieces are no whole tensors.
void ListPieces(const SafetensorsReader& reader, const std::string& file,
                std::map<std::string, std::vector<StoredPiece>>& tensors) {
  const auto told = reader.metadata().find(kPiecesKey);
  const Json pieces =
      told == reader.metadata().end() ? Json::object() : ParseJson(told->second, reader.path());
  for (const auto& [name, entry] : reader.entries()) {
    const bool whole = !pieces.contains(name);
    tensors[name].push_back({file,
                             whole ? TensorPiece{entry.shape, -1, {}, {}}
                                   : PieceFromJson(pieces.at(name), reader.path()),
                             whole});
  }
}

// Each element of a tensor is saved by one rank.
void RequireWhole(const std::map<std::string, std::vector<StoredPiece>>& tensors) {
  for (const auto& [name, pieces] : tensors) {
    std::vector<Range> ranges;
    std::string files;
    for (const StoredPiece& stored : pieces) {
      files.append(files.empty() ? "" : ", ").append(stored.file);
      if (stored.piece.shape != pieces[0].piece.shape) {
        throw RunError(fmt::format("tensor {} has two shapes; its pieces are in {}", name, files));
      }
      for (const Segment& s : Segments(stored.piece))
        ranges.push_back({s.whole, s.whole + s.count});
    }
    const std::string fault =
        CoverFault(std::move(ranges), PieceSize({pieces[0].piece.shape, -1, {}, {}}));
    if (!fault.empty()) {
      throw RunError(fmt::format("tensor {}: {}, where one rank alone must save each; in {}", name,
                                 fault, files));
    }
  }
}

// index.json of the files in `folder`, whose headers say what they hold.
Json IndexJson(const CheckpointContent& content, const std::vector<FileSum>& sums,
               const fs::path& folder) {
  Json files = Json::object();
  std::map<std::string, std::vector<StoredPiece>> tensors;
  for (size_t rank = 0; rank < sums.size(); ++rank) {
    if (sums[rank].bytes == 0) continue;
    const std::string file = RankFileName(static_cast<int>(rank));
    files[file] = {{"bytes", sums[rank].bytes}, {"xxh3_64", HexDigits(sums[rank].xxh3)}};
    ListPieces(SafetensorsReader((folder / file).string()), file, tensors);
  }
  RequireWhole(tensors);
  return {{"format", kCheckpointFormat},
          {"version", kCheckpointVersion},
          {"state", StateJson(content.state)},
          {"environment", content.environment},
          {"sections", content.sections},
          {"settings", content.settings},
          {"files", files},
          {"tensors", TensorsToJson(tensors)}};
}

// Deletes all but the newest `keep`. Those marked as unsound go first, then steps beyond `step`: of
// a course that the run has left, by resuming from an older checkpoint.
void DeleteOld(const fs::path& checkpoints, int64_t step, int64_t keep) {
  if (keep == 0) return;
  std::vector<int64_t> steps = StepsIn(checkpoints.string());
  std::map<int64_t, int> left;  // 2: unsound
  for (const int64_t s : steps) {
    left[s] = fs::exists(checkpoints / StepFolderName(s) / kUnsoundName) ? 2 : s > step ? 1 : 0;
  }
  std::sort(steps.begin(), steps.end(), [&left](int64_t a, int64_t b) {
    return left[a] != left[b] ? left[a] < left[b] : a > b;
  });
  const std::string latest = LatestName(checkpoints.string());
  for (auto i = static_cast<size_t>(keep); i < steps.size(); ++i) {
    const std::string name = StepFolderName(steps[i]);
    if (name == latest) continue;
    // Under another name first: a half-deleted folder must not look like a checkpoint.
    const fs::path doomed = checkpoints / (kTemporaryPrefix + ("delete-" + name));
    fs::rename(checkpoints / name, doomed);
    Remove(doomed);
  }
}

void RequireFinite(const std::map<std::string, HeldPiece>& held) {
  for (const auto& [name, piece] : held) {
    if (piece.values.numel() == 0) continue;
    const auto [least, most] = at::aminmax(piece.values);
    if (std::isfinite(least.item<double>()) && std::isfinite(most.item<double>())) continue;
    throw RunError(
        fmt::format("tensor {} holds values that are infinite or no numbers: not saved; the "
                    "checkpoints before stay, and the same command goes on from the newest",
                    name));
  }
}

void WriteRankFile(const std::string& path, const std::map<std::string, HeldPiece>& held) {
  std::map<std::string, at::Tensor> tensors;
  Json pieces = Json::object();
  for (const auto& [name, each] : held) {
    tensors.emplace(name, each.values);
    if (!each.piece.whole()) pieces[name] = PieceToJson(each.piece);
  }
  std::map<std::string, std::string> metadata;
  if (!pieces.empty()) metadata[kPiecesKey] = pieces.dump();
  WriteSafetensors(path, tensors, metadata);
}

void Publish(const CheckpointContent& content, const std::vector<FileSum>& sums,
             const fs::path& temporary) {
  const fs::path checkpoints = temporary.parent_path();
  const std::string name = StepFolderName(content.state.step);
  const Json index = IndexJson(content, sums, temporary);
  WriteAndSync((temporary / kIndexName).string(), WithChecksum(index.dump(1)));
  SyncFolder(temporary.string());
  ReplaceFolder(temporary.string(), (checkpoints / name).string());
  ReplaceLink((checkpoints / kLatestName).string(), name);
}

}  // namespace

SavedCheckpoint SaveCheckpoint(const std::string& run_dir, const CheckpointContent& content,
                               int64_t keep, Communicator& world) {
  const fs::path checkpoints = fs::path(run_dir) / "checkpoints";
  const fs::path temporary = checkpoints / (kTemporaryPrefix + StepFolderName(content.state.step));
  const bool leads = world.rank() == 0;
  SavedCheckpoint saved{(checkpoints / StepFolderName(content.state.step)).string(), 0};
  AgreeOrThrowRunError(world, [&] { RequireFinite(content.tensors); });
  try {
    AgreeOrThrowRunError(world, [&] {
      if (leads) PrepareTemporary(checkpoints, temporary);
    });
    FileSum mine;
    AgreeOrThrowRunError(world, [&] {
      if (content.tensors.empty()) return;
      const std::string file = (temporary / RankFileName(world.rank())).string();
      WriteRankFile(file, content.tensors);
      mine = SumFile(file);
    });
    const std::vector<FileSum> sums = GatherSums(mine, world);
    for (const FileSum& sum : sums) saved.bytes += sum.bytes;
    AgreeOrThrowRunError(world, [&] {
      if (leads) Publish(content, sums, temporary);
    });
  } catch (const RunError&) {
    std::error_code ignored;
    if (leads) fs::remove_all(temporary, ignored);
    throw;
  }
  AgreeOrThrowRunError(world, [&] {
    if (leads) DeleteOld(checkpoints, content.state.step, keep);
  });
  return saved;
}

std::vector<std::string> MarkUnsound(const std::string& run_dir, int64_t optimizer_step,
                                     const std::string& why) {
  std::vector<std::string> marked;
  const fs::path checkpoints = fs::path(run_dir) / "checkpoints";
  for (const int64_t step : StepsIn(checkpoints.string())) {
    const fs::path folder = checkpoints / StepFolderName(step);
    if (!fs::is_regular_file(folder / kIndexName)) continue;
    const Json index = Json::parse(std::ifstream(folder / kIndexName), nullptr,
                                   /*allow_exceptions=*/false);
    const Json state = index.is_object() ? index.value("state", Json()) : Json();
    if (!state.is_object() || state.value("optimizer_step", Json()) != Json(optimizer_step))
      continue;
    std::ofstream mark(folder / kUnsoundName);
    mark << why << "\n";
    if (mark.flush()) marked.push_back(StepFolderName(step));
  }
  return marked;
}

}  // namespace equipoise
