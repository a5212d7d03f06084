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

// A checkpoint appears by one rename of a folder whose files are complete and on disk, and is
// deleted by a rename before its files go; `latest` is replaced in the same way. So a folder under
// a checkpoint's name is always complete. Ranks write their files in parallel; each step is one
// that all ranks complete or all abandon. Every element of a tensor is written by one rank, which
// rank 0 checks in the headers of the files.

namespace equipoise {
namespace {

namespace fs = std::filesystem;

void Remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw RunError(fmt::format("{}: cannot remove: {}", path.string(), error.message()));
}

// Removes the temporary folders of a run that was killed while it saved or deleted a checkpoint.
void RemoveTemporaries(const fs::path& checkpoints) {
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints)) {
    if (entry.path().filename().string().starts_with(kTemporaryPrefix)) stale.push_back(entry);
  }
  for (const fs::path& path : stale) Remove(path);
}

void PrepareTemporary(const fs::path& checkpoints, const fs::path& temporary) {
  std::error_code error;
  fs::create_directories(checkpoints, error);
  if (error)
    throw RunError(fmt::format("{}: cannot create: {}", checkpoints.string(), error.message()));
  RemoveTemporaries(checkpoints);
  fs::create_directory(temporary, error);
  if (error)
    throw RunError(fmt::format("{}: cannot create: {}", temporary.string(), error.message()));
}

// The size and checksum of every rank's file; a rank without a file has 0 bytes.
std::vector<FileSum> GatherSums(const FileSum& local, Communicator& world) {
  const std::vector<int64_t> words = {local.bytes, std::bit_cast<int64_t>(local.xxh3)};
  std::vector<FileSum> sums;
  sums.reserve(static_cast<size_t>(world.size()));
  for (const std::vector<int64_t>& rank : GatherValues(world, words)) {
    sums.push_back({rank[0], std::bit_cast<uint64_t>(rank[1])});
  }
  return sums;
}

Json StateJson(const TrainState& state) {
  Json json = {{"step", state.step},
               {"epoch", state.position.epoch},
               {"pack", state.position.pack},
               {"optimizer_step", state.optimizer_step},
               {"tokens", state.tokens},
               {"samples", state.samples},
               {"images", state.images},
               {"packs", state.packs},
               {"skipped_samples", state.skipped_samples},
               {"non_finite_in_a_row", state.non_finite_in_a_row}};
  if (state.non_finite_tried) json["non_finite_tried"] = true;
  if (const auto& scale = state.loss_scale)
    json["loss_scale"] = {{"scale", scale->scale}, {"good_steps", scale->good_steps}};
  if (const auto& best = state.best)
    json["best"] = {{"measure", best->measure},
                    {"value", best->value},
                    {"step", best->step},
                    {"data", best->data}};
  if (state.owes_answers) json["owes_answers"] = true;
  return json;
}

// Adds the tensors of a rank's file. Its metadata lists those that are pieces of a larger tensor.
void ListPieces(const SafetensorsReader& reader, const std::string& file,
                std::map<std::string, std::vector<StoredPiece>>& tensors) {
  const auto listed = reader.metadata().find(kPiecesKey);
  const Json pieces =
      listed == reader.metadata().end() ? Json::object() : ParseJson(listed->second, reader.path());
  for (const auto& [name, entry] : reader.entries()) {
    const bool whole = !pieces.contains(name);
    tensors[name].push_back({file,
                             whole ? TensorPiece{entry.shape, -1, {}, {}}
                                   : PieceFromJson(pieces.at(name), reader.path()),
                             whole});
  }
}

// Throws RunError unless each element of every tensor is saved by exactly one rank.
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

// The content of index.json, from the headers of the files in `folder`.
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

// Deletes all but the newest `keep` and the best. Checkpoints marked as unsound are deleted first,
// then those of steps beyond `step`, which remain when the run was resumed from an older
// checkpoint.
void DeleteOld(const fs::path& checkpoints, int64_t step, int64_t keep) {
  if (keep == 0) return;
  std::vector<int64_t> steps = StepsIn(checkpoints.string());
  std::map<int64_t, int> priority;  // of deletion; 2: unsound, 1: beyond `step`
  for (const int64_t s : steps) {
    priority[s] = fs::exists(checkpoints / StepFolderName(s) / kUnsoundName) ? 2 : s > step ? 1 : 0;
  }
  std::sort(steps.begin(), steps.end(), [&priority](int64_t a, int64_t b) {
    return priority[a] != priority[b] ? priority[a] < priority[b] : a > b;
  });
  const std::string latest = LinkedName(checkpoints.string(), kLatestName);
  const std::string best = LinkedName(checkpoints.string(), kBestName);
  for (auto i = static_cast<size_t>(keep); i < steps.size(); ++i) {
    const std::string name = StepFolderName(steps[i]);
    if (name == latest || name == best) continue;
    // Renamed first: a half-deleted folder must not look like a checkpoint.
    const fs::path renamed = checkpoints / fmt::format("{}delete-{}", kTemporaryPrefix, name);
    fs::rename(checkpoints / name, renamed);
    Remove(renamed);
  }
}

void RequireFinite(const std::map<std::string, HeldPiece>& tensors) {
  for (const auto& [name, piece] : tensors) {
    if (piece.values.numel() == 0) continue;
    const auto [least, most] = at::aminmax(piece.values.Get());
    if (std::isfinite(least.item<double>()) && std::isfinite(most.item<double>())) continue;
    throw RunError(
        fmt::format("tensor {} holds values that are infinite or no numbers: not saved; the "
                    "checkpoints before stay, and the same command goes on from the newest",
                    name));
  }
}

void WriteRankFile(const std::string& path, const std::map<std::string, HeldPiece>& held) {
  std::map<std::string, LazyTensor> tensors;
  Json pieces = Json::object();
  for (const auto& [name, each] : held) {
    tensors.emplace(name, each.values);
    if (!each.piece.whole()) pieces[name] = PieceToJson(each.piece);
  }
  std::map<std::string, std::string> metadata;
  if (!pieces.empty()) metadata[kPiecesKey] = pieces.dump();
  WriteSafetensors(path, tensors, metadata);
}

// The link is of this run's best, which it may have gone back behind: to the state of a checkpoint
// before the one that is linked.
void LinkBest(const fs::path& checkpoints, const TrainState& state) {
  const std::string name = state.best ? StepFolderName(state.best->step) : "";
  const fs::path link = checkpoints / kBestName;
  if (name.empty() || !fs::exists(checkpoints / name)) return Remove(link);
  if (LinkedName(checkpoints.string(), kBestName) != name) ReplaceLink(link.string(), name);
}

// Makes the checkpoint visible; rank 0 only.
void Publish(const CheckpointContent& content, const std::vector<FileSum>& sums,
             const fs::path& temporary) {
  const fs::path checkpoints = temporary.parent_path();
  const std::string name = StepFolderName(content.state.step);
  const Json index = IndexJson(content, sums, temporary);
  WriteAndSync((temporary / kIndexName).string(), WithChecksum(index.dump(1)));
  SyncFolder(temporary.string());
  ReplaceFolder(temporary.string(), (checkpoints / name).string());
  ReplaceLink((checkpoints / kLatestName).string(), name);
  LinkBest(checkpoints, content.state);
}

}  // namespace

SavedCheckpoint SaveCheckpoint(const std::string& run_dir, const CheckpointContent& content,
                               int64_t keep, Communicator& world) {
  const fs::path checkpoints = fs::path(run_dir) / "checkpoints";
  const fs::path temporary = checkpoints / (kTemporaryPrefix + StepFolderName(content.state.step));
  const bool is_root = world.rank() == 0;
  SavedCheckpoint saved{(checkpoints / StepFolderName(content.state.step)).string(), 0};
  AgreeOrThrowRunError(world, [&] { RequireFinite(content.tensors); });
  try {
    AgreeOrThrowRunError(world, [&] {
      if (is_root) PrepareTemporary(checkpoints, temporary);
    });
    FileSum local;
    AgreeOrThrowRunError(world, [&] {
      if (content.tensors.empty()) return;
      const std::string file = (temporary / RankFileName(world.rank())).string();
      WriteRankFile(file, content.tensors);
      local = SumFile(file);
    });
    const std::vector<FileSum> sums = GatherSums(local, world);
    for (const FileSum& sum : sums) saved.bytes += sum.bytes;
    AgreeOrThrowRunError(world, [&] {
      if (is_root) Publish(content, sums, temporary);
    });
  } catch (const RunError&) {
    std::error_code ignored;
    if (is_root) fs::remove_all(temporary, ignored);
    throw;
  }
  AgreeOrThrowRunError(world, [&] {
    if (is_root) DeleteOld(checkpoints, content.state.step, keep);
  });
  return saved;
}

void GoBackTo(const std::string& run_dir, const std::string& checkpoint_dir) {
  const fs::path checkpoints = fs::path(run_dir) / "checkpoints";
  const fs::path name = fs::canonical(checkpoint_dir).filename();
  std::error_code error;
  if (!fs::equivalent(checkpoints / name, checkpoint_dir, error) || error) return;
  if (LinkedName(checkpoints.string(), kLatestName) != name)
    ReplaceLink((checkpoints / kLatestName).string(), name);
}

bool HasCheckpointOf(const std::string& run_dir, int64_t step) {
  const fs::path folder = fs::path(run_dir) / "checkpoints" / StepFolderName(step);
  return fs::exists(folder / kIndexName) && !fs::exists(folder / kUnsoundName);
}

void FinishReplacing(const std::string& run_dir) {
  const fs::path checkpoints = fs::path(run_dir) / "checkpoints";
  if (!fs::is_directory(checkpoints)) return;
  std::vector<fs::path> aside;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints)) {
    if (entry.path().extension() == kAsideSuffix) aside.push_back(entry);
  }
  for (const fs::path& path : aside) {
    const std::string name = path.stem().string().substr(std::string_view(kTemporaryPrefix).size());
    if (StepOfName(name) < 0 || fs::exists(checkpoints / name)) continue;
    fs::rename(path, checkpoints / name);
  }
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
