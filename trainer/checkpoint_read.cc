#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "configs/error.h"
#include "configs/regular_file.h"
#include "models/safetensors.h"
#include "trainer/agreement.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_integrity.h"
#include "trainer/checkpoint_json.h"
#include "trainer/checkpoint_layout.h"
#include "trainer/durable_file.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

const Json& Member(const Json& object, const char* key, const std::string& source) {
  if (!object.is_object() || !object.contains(key) || !object.at(key).is_object()) {
    throw DataError(source + ": " + key + ": missing, or no object; use another checkpoint");
  }
  return object.at(key);
}

int64_t Count(const Json& object, const char* key, const std::string& source) {
  const int64_t value = GetInt(object, key, source);
  if (value < 0) throw DataError(source + ": " + key + ": is negative; use another checkpoint");
  return value;
}

TrainState ReadState(const Json& json, const std::string& source) {
  TrainState state;
  state.step = Count(json, "step", source);
  state.position.epoch = Count(json, "epoch", source);
  state.position.pack = Count(json, "pack", source);
  state.optimizer_step = Count(json, "optimizer_step", source);
  state.tokens = Count(json, "tokens", source);
  state.samples = Count(json, "samples", source);
  state.images = Count(json, "images", source);
  state.skipped_samples = Count(json, "skipped_samples", source);
  state.non_finite_in_a_row = Count(json, "non_finite_in_a_row", source);
  return state;
}

// One number against another, and the step against the folder's name.
void CheckState(const TrainState& state, const fs::path& folder, const std::string& source) {
  const auto fail = [&](const std::string& what) {
    throw DataError(source + ": state: " + what + "; use another checkpoint");
  };
  std::error_code error;
  const int64_t named = StepOfName(fs::weakly_canonical(folder, error).filename().string());
  if (named >= 0 && named != state.step) {
    fail("step is " + std::to_string(state.step) + " in the folder of step " +
         std::to_string(named));
  }
  if (state.optimizer_step > state.step)
    fail("optimizer_step " + std::to_string(state.optimizer_step) + " is beyond the step " +
         std::to_string(state.step));
  if (state.non_finite_in_a_row > state.step - state.optimizer_step)
    fail("non_finite_in_a_row " + std::to_string(state.non_finite_in_a_row) +
         " is beyond the steps that were skipped");
  if (state.position.epoch > state.samples)  // each has one at least
    fail("epoch " + std::to_string(state.position.epoch) + " is beyond the samples used");
}

// Returns the version.
int64_t CheckFormat(const Json& json, bool has_checksum, const std::string& source) {
  const std::string format = GetString(json, "format", source);
  const int64_t version = GetInt(json, "version", source);
  if (format != kCheckpointFormat || version < 1 || version > kCheckpointVersion) {
    throw DataError(source + ": format " + format + " version " + std::to_string(version) +
                    " is not known to this program; use the one that wrote it");
  }
  // The key alone tells that there was one, whatever became of the version.
  if (!has_checksum && (version >= kFirstWithChecksum || json.contains("xxh3_64"))) {
    throw DataError(source + ": its checksum is not at its end; use another checkpoint");
  }
  return version;
}

void CheckFile(const fs::path& path, const Json& entry, bool verify, const std::string& source) {
  const int64_t bytes = Count(entry, "bytes", source);
  const std::string sum = GetString(entry, "xxh3_64", source);
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) throw DataError(path.string() + ": " + error.message() + "; use another checkpoint");
  if (static_cast<int64_t>(size) != bytes) {
    throw DataError(path.string() + ": has " + std::to_string(size) + " bytes, the index says " +
                    std::to_string(bytes) + "; use another checkpoint");
  }
  if (!verify) return;
  const TensorScan scan = ScanTensors(path.string());
  const std::string found = HexDigits(scan.sum.xxh3);
  if (found != sum) {
    throw DataError(path.string() + ": checksum " + found + ", the index says " + sum +
                    "; use another checkpoint");
  }
  if (!scan.not_finite.empty())
    throw DataError(path.string() + ": " + scan.not_finite + "; use another checkpoint");
}

// Names come from a file: they may not lead out of the folder.
void CheckName(const std::string& name, const std::string& source) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    throw DataError(source + ": files: '" + name + "' is no file name; use another checkpoint");
  }
}

[[noreturn]] void FailTensor(const std::string& source, const std::string& name,
                             const std::string& what) {
  throw DataError(source + ": tensor " + name + " " + what);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// What of a file's tensor goes where.
struct Reading {
  std::string name;
  TensorPiece stored;
  bool whole;  // the file must hold the shape of the tensor, not only as many elements
  std::vector<CopyRun> runs;
  at::Tensor target;
};

void RequireShape(const std::string& source, const std::string& name,
                  const std::vector<int64_t>& found, const std::vector<int64_t>& wanted) {
  if (found == wanted) return;
  FailTensor(source, name,
             "has the shape " + ShapeText(found) + ", the model needs " + ShapeText(wanted));
}

// Finds out which bytes of which files are needed, before any is read.
void PlanReading(const std::string& checkpoint_dir, const std::string& name,
                 const std::vector<StoredPiece>& pieces, const HeldPiece& target,
                 std::map<std::string, std::vector<Reading>>& of_file) {
  EQUIPOISE_CHECK(target.values.numel() == PieceSize(target.piece), name);
  std::vector<Range> filled;
  for (const StoredPiece& stored : pieces) {
    const TensorPiece piece =
        stored.whole ? TensorPiece{target.piece.shape, -1, {}, {}} : stored.piece;
    RequireShape(checkpoint_dir, name, piece.shape, target.piece.shape);
    std::vector<CopyRun> runs = CommonRuns(piece, target.piece);
    for (const CopyRun& run : runs) filled.push_back({run.to, run.to + run.count});
    // A whole tensor's file is opened in any case: its shape is to be compared.
    if (runs.empty() && !stored.whole) continue;
    of_file[stored.file].push_back({name, piece, stored.whole, std::move(runs), target.values});
  }
  const std::string fault = CoverFault(std::move(filled), target.values.numel());
  if (!fault.empty()) {
    FailTensor(checkpoint_dir, name, "is not whole: " + fault + "; use another checkpoint");
  }
}

void Read(const SafetensorsReader& reader, const Reading& reading) {
  const auto entry = reader.entries().find(reading.name);
  if (entry == reader.entries().end()) {
    FailTensor(reader.path(), reading.name, "is not in the file; use another checkpoint");
  }
  const std::vector<int64_t>& shape = entry->second.shape;
  if (reading.whole) RequireShape(reader.path(), reading.name, shape, reading.stored.shape);
  const int64_t numel = PieceSize({shape, -1, {}, {}});
  if (numel != PieceSize(reading.stored)) {
    FailTensor(reader.path(), reading.name, "has another size than the index says");
  }
  const at::Tensor flat = reading.target.view({-1});
  for (const CopyRun& run : reading.runs) {
    at::Tensor into = flat.narrow(0, run.to, run.count);
    reader.ReadElements(reading.name, run.from, into);
  }
}

// Empty for one that can be gone on from.
std::string WhyNot(const fs::path& folder) {
  try {
    if (std::ifstream mark(folder / kUnsoundName); mark) {
      std::string why;
      std::getline(mark, why);
      return folder.string() + ": " + why + " (remove " + (folder / kUnsoundName).string() +
             " to go on from it all the same)";
    }
    ReadCheckpointIndex(folder.string(), /*verify=*/true);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// `checkpoints`' step folders in the order in which they are tried.
std::vector<std::string> Candidates(const fs::path& checkpoints) {
  std::vector<int64_t> steps = StepsIn(checkpoints.string());
  std::sort(steps.rbegin(), steps.rend());
  const int64_t latest = StepOfName(LatestName(checkpoints.string()));
  std::stable_partition(steps.begin(), steps.end(), [&](int64_t step) { return step == latest; });
  std::vector<std::string> folders;
  folders.reserve(steps.size());
  for (const int64_t step : steps) folders.push_back((checkpoints / StepFolderName(step)).string());
  return folders;
}

bool IsStepFolder(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return fs::exists(path / kIndexName, error) || StepOfName(real.filename().string()) >= 0;
}

}  // namespace

CheckpointIndex ReadCheckpointIndex(const std::string& checkpoint_dir, bool verify) {
  const std::string source = (fs::path(checkpoint_dir) / kIndexName).string();
  const FileText file = ReadRegularFile(source, JsonLimits().bytes);
  if (!file.problem.empty()) throw DataError(source + ": " + file.problem);
  const bool has_checksum = HasChecksum(file.text, source);
  const Json json = ParseJson(file.text, source);
  CheckpointIndex index;
  index.version = CheckFormat(json, has_checksum, source);
  index.state = ReadState(Member(json, "state", source), source);
  CheckState(index.state, checkpoint_dir, source);
  index.environment = Member(json, "environment", source);
  index.sections = Member(json, "sections", source);
  if (json.contains("settings")) index.settings = Member(json, "settings", source);
  const Json& files = Member(json, "files", source);
  for (const auto& [name, entry] : files.items()) {
    CheckName(name, source);
    CheckFile(fs::path(checkpoint_dir) / name, entry, verify, source);
  }
  index.tensors = TensorsFromJson(Member(json, "tensors", source), source);
  for (const auto& [name, pieces] : index.tensors) {
    for (const StoredPiece& stored : pieces) {
      if (files.contains(stored.file)) continue;
      FailTensor(source, name, "is in no listed file; use another checkpoint");
    }
  }
  return index;
}

std::string FindCheckpoint(const std::string& path, const std::vector<std::string>& passed_over) {
  if (IsStepFolder(path)) {
    ReadCheckpointIndex(path, /*verify=*/true);
    return path;
  }
  const fs::path checkpoints = fs::path(path) / "checkpoints";
  const std::vector<std::string> candidates = Candidates(checkpoints);
  for (const std::string& folder : candidates) {
    if (std::find(passed_over.begin(), passed_over.end(), folder) != passed_over.end()) continue;
    const std::string reason = WhyNot(folder);
    if (reason.empty()) return folder;
    spdlog::warn("{}; this checkpoint is passed over", reason);
  }
  if (candidates.empty()) return "";
  throw DataError(checkpoints.string() + ": none of the " + std::to_string(candidates.size()) +
                  " checkpoints can be gone on from; start anew in another run.dir, or choose one "
                  "with --resume");
}

std::string FindCheckpoint(const std::string& path, Communicator& world,
                           const std::vector<std::string>& passed_over) {
  std::string found;
  AgreeOrThrowDataError(world, [&] {
    if (world.rank() == 0) found = FindCheckpoint(path, passed_over);
  });
  return BroadcastText(world, found, /*root=*/0);
}

TensorPiece PieceOf(const Parameter& parameter, const std::vector<Range>& runs) {
  TensorPiece piece{parameter.whole_shape(), -1, {}, runs};
  const TensorPart& part = parameter.part;
  if (part.split()) {
    piece.dim = part.dim;
    piece.along = {part.begin, part.begin + parameter.shape[static_cast<size_t>(part.dim)]};
  }
  if (runs.size() == 1 && runs[0] == Range{0, parameter.numel()}) piece.runs.clear();
  const std::string fault = PieceFault(piece);
  EQUIPOISE_CHECK(fault.empty(), parameter.name, ": ", fault);
  return piece;
}

void ReadCheckpointTensors(const std::string& checkpoint_dir, const CheckpointIndex& index,
                           const CheckpointTargets& targets) {
  std::map<std::string, std::vector<Reading>> of_file;
  for (const auto& [name, target] : targets) {
    const auto found = index.tensors.find(name);
    if (found == index.tensors.end()) {
      FailTensor(checkpoint_dir, name,
                 "is absent; resume with the model that the checkpoint was saved from");
    }
    PlanReading(checkpoint_dir, name, found->second, target, of_file);
  }
  for (const auto& [file, readings] : of_file) {
    const SafetensorsReader reader((fs::path(checkpoint_dir) / file).string());
    for (const Reading& reading : readings) Read(reader, reading);
  }
}

}  // namespace equipoise
