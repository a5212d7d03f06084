#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/regular_file.h"
#include "models/weights/safetensors.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_integrity.h"
#include "trainer/checkpoint/checkpoint_layout.h"
#include "trainer/common/agreement.h"
#include "trainer/common/durable_file.h"

// A checkpoint is read by a mesh that may differ from the one that wrote it. For each target, the
// elements that it has in common with every stored piece are listed first (CommonRuns()), and must
// cover it exactly once; then each file is opened once, and only these elements are read.

namespace equipoise {
namespace {

namespace fs = std::filesystem;

// Compares the step with the folder's name.
void CheckFolder(int64_t step, const fs::path& folder, const std::string& source) {
  std::error_code error;
  const int64_t named = StepOfName(fs::weakly_canonical(folder, error).filename().string());
  if (named < 0 || named == step) return;
  throw DataError(
      fmt::format("{}: state: step is {} in the folder of step {}; use another checkpoint", source,
                  step, named));
}

void CheckFile(const fs::path& path, const ListedFile& listed, bool verify) {
  const auto& [bytes, sum] = listed;
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) {
    throw DataError(fmt::format("{}: {}; use another checkpoint", path.string(), error.message()));
  }
  if (static_cast<int64_t>(size) != bytes) {
    throw DataError(fmt::format("{}: has {} bytes, the index says {}; use another checkpoint",
                                path.string(), size, bytes));
  }
  if (!verify) return;
  const TensorScan scan = ScanTensors(path.string());
  const std::string found = HexDigits(scan.sum.xxh3);
  if (found != sum) {
    throw DataError(fmt::format("{}: checksum {}, the index says {}; use another checkpoint",
                                path.string(), found, sum));
  }
  if (!scan.not_finite.empty()) {
    throw DataError(fmt::format("{}: {}; use another checkpoint", path.string(), scan.not_finite));
  }
}

[[noreturn]] void FailTensor(const std::string& source, const std::string& name,
                             const std::string& what) {
  throw DataError(fmt::format("{}: tensor {} {}", source, name, what));
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Elements of a stored tensor that are copied to a target.
struct Reading {
  std::string name;
  TensorPiece stored;
  bool whole;  // the file's tensor must have the same shape, not only the same size
  std::vector<CopyRun> runs;
  at::Tensor target;
};

void RequireShape(const std::string& source, const std::string& name,
                  const std::vector<int64_t>& found, const std::vector<int64_t>& wanted) {
  if (found == wanted) return;
  FailTensor(
      source, name,
      fmt::format("has the shape {}, the model needs {}", ShapeText(found), ShapeText(wanted)));
}

// Adds the elements of each file that `target` needs; nothing is read yet.
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
    // The file of a whole tensor is opened in any case, to compare the shape.
    if (runs.empty() && !stored.whole) continue;
    of_file[stored.file].push_back(
        {name, piece, stored.whole, std::move(runs), target.values.Get()});
  }
  const std::string fault = CoverFault(std::move(filled), target.values.numel());
  if (!fault.empty()) {
    FailTensor(checkpoint_dir, name,
               fmt::format("is not whole: {}; use another checkpoint", fault));
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

// Why a run cannot resume from a checkpoint; empty when it can.
std::string WhyNot(const fs::path& folder) {
  try {
    if (std::ifstream mark(folder / kUnsoundName); mark) {
      std::string why;
      std::getline(mark, why);
      return fmt::format("{}: {} (remove {} to go on from it all the same)", folder.string(), why,
                         (folder / kUnsoundName).string());
    }
    ReadCheckpointIndex(folder.string(), /*verify=*/true);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The step folders in the order in which they are tried: that of `latest`, then the newest first.
std::vector<std::string> Candidates(const fs::path& checkpoints) {
  std::vector<int64_t> steps = StepsIn(checkpoints.string());
  std::sort(steps.rbegin(), steps.rend());
  const int64_t latest = StepOfName(LinkedName(checkpoints.string(), kLatestName));
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
  if (!file.problem.empty()) throw DataError(fmt::format("{}: {}", source, file.problem));
  CheckpointIndex index = ParseCheckpointIndex(file.text, source);
  CheckFolder(index.state.step, checkpoint_dir, source);
  for (const auto& [name, listed] : index.files) {
    CheckFile(fs::path(checkpoint_dir) / name, listed, verify);
  }
  return index;
}

std::string PassingOver(const std::string& fault) {
  // The fault's own advice is what is done here.
  constexpr std::string_view kAdvice = "; use another checkpoint";
  const bool advises = fault.ends_with(kAdvice);
  return fmt::format("{}; this checkpoint is passed over",
                     advises ? fault.substr(0, fault.size() - kAdvice.size()) : fault);
}

std::string FindCheckpoint(const std::string& path, const std::vector<std::string>& skipped,
                           const std::string& advice) {
  if (IsStepFolder(path)) {
    ReadCheckpointIndex(path, /*verify=*/true);
    return path;
  }
  const fs::path checkpoints = fs::path(path) / "checkpoints";
  const std::vector<std::string> candidates = Candidates(checkpoints);
  for (const std::string& folder : candidates) {
    if (std::find(skipped.begin(), skipped.end(), folder) != skipped.end()) continue;
    const std::string reason = WhyNot(folder);
    if (reason.empty()) return folder;
    spdlog::warn("{}", PassingOver(reason));
  }
  if (candidates.empty()) return "";
  throw DataError(fmt::format("{}: none of the {} checkpoints can be {}", checkpoints.string(),
                              candidates.size(), advice));
}

std::string FindCheckpoint(const std::string& path, Communicator& world,
                           const std::vector<std::string>& skipped) {
  std::string found;
  AgreeOrThrowDataError(world, [&] {
    if (world.rank() == 0) found = FindCheckpoint(path, skipped);
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
