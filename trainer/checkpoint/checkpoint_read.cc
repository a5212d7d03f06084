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
#include "parallel/comm/single_communicator.h"
#include "parallel/comm/values.h"
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

void CheckSize(const fs::path& path, int64_t bytes) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) {
    throw DataError(fmt::format("{}: {}; use another checkpoint", path.string(), error.message()));
  }
  if (static_cast<int64_t>(size) != bytes) {
    throw DataError(fmt::format("{}: has {} bytes, the index says {}; use another checkpoint",
                                path.string(), size, bytes));
  }
}

void CheckContent(const fs::path& path, const std::string& sum, const TensorScan& scan) {
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

// Throws DataError where a run that chooses its checkpoint must not go on from this one.
void RequireUnmarked(const fs::path& folder) {
  std::ifstream mark(folder / kUnsoundName);
  if (!mark) return;
  std::string why;
  std::getline(mark, why);
  throw DataError(fmt::format("{}: {} (remove {} to go on from it all the same)", folder.string(),
                              why, (folder / kUnsoundName).string()));
}

// The step folders in the order in which they are tried: that of `latest` and those before it, the
// newest first, then those beyond it, which the run went back behind.
std::vector<std::string> Candidates(const fs::path& checkpoints) {
  std::vector<int64_t> steps = StepsIn(checkpoints.string());
  std::sort(steps.rbegin(), steps.rend());
  const int64_t latest = StepOfName(LinkedName(checkpoints.string(), kLatestName));
  std::stable_partition(steps.begin(), steps.end(), [&](int64_t step) { return step <= latest; });
  std::vector<std::string> folders;
  folders.reserve(steps.size());
  for (const int64_t step : steps) folders.push_back((checkpoints / StepFolderName(step)).string());
  return folders;
}

// How a search proceeds on the ranks that make it.
struct Search {
  Communicator& world;
  const std::vector<std::string>& skipped;
  const FileScan& scan;
  std::string advice = kAdviceOfResume;
};

// Why a run cannot resume from a checkpoint; nothing where it can. `chosen`: it was not asked for
// by name. Rank 0 reads the index. Collective.
std::optional<std::string> FaultOf(const std::string& folder, bool chosen, const Search& search) {
  Json files = Json::array();  // [name, checksum]
  auto fault = AgreeOnDataError(search.world, [&] {
    if (search.world.rank() != 0) return;
    if (chosen) RequireUnmarked(folder);
    for (const auto& [name, file] : ReadCheckpointIndex(folder, /*verify=*/false).files)
      files.push_back({name, file.xxh3_64});
  });
  if (fault) return fault;
  files = Json::parse(BroadcastText(search.world, files.dump(), /*root=*/0));
  return AgreeOnItems(search.world, std::ssize(files), [&](int64_t i, const auto& alive) {
    const Json& file = files[static_cast<size_t>(i)];
    const fs::path path = fs::path(folder) / file[0].get<std::string>();
    CheckContent(path, file[1], search.scan(path.string(), alive));
  });
}

bool IsStepFolder(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return fs::exists(path / kIndexName, error) || StepOfName(real.filename().string()) >= 0;
}

// FindCheckpoint(). Rank 0 alone lists the checkpoints; the others are told one after the other.
std::string Find(const std::string& path, const Search& search) {
  std::vector<std::string> candidates;
  const fs::path checkpoints = fs::path(path) / "checkpoints";
  AgreeOrThrowDataError(search.world, [&] {
    if (search.world.rank() != 0) return;
    candidates = IsStepFolder(path) ? std::vector{path} : Candidates(checkpoints);
  });
  const auto count = AllReduceValue<int64_t>(search.world, std::ssize(candidates), ReduceOp::kMax);
  for (int64_t i = 0; i < count; ++i) {
    const std::string mine = candidates.empty() ? "" : candidates[static_cast<size_t>(i)];
    std::string folder = BroadcastText(search.world, mine, /*root=*/0);
    const bool chosen = folder != path;
    if (chosen && std::ranges::count(search.skipped, folder) > 0) continue;
    const std::optional<std::string> fault = FaultOf(folder, chosen, search);
    if (!fault) return folder;
    if (!chosen) throw DataError(*fault);
    if (search.world.rank() == 0) spdlog::warn("{}", PassingOver(*fault));
  }
  if (count == 0) return "";
  throw DataError(fmt::format("{}: none of the {} checkpoints can be {}", checkpoints.string(),
                              count, search.advice));
}

}  // namespace

CheckpointIndex ReadCheckpointIndex(const std::string& checkpoint_dir, bool verify) {
  const std::string source = (fs::path(checkpoint_dir) / kIndexName).string();
  const FileText file = ReadRegularFile(source, JsonLimits().bytes);
  if (!file.problem.empty()) throw DataError(fmt::format("{}: {}", source, file.problem));
  CheckpointIndex index = ParseCheckpointIndex(file.text, source);
  CheckFolder(index.state.step, checkpoint_dir, source);
  for (const auto& [name, listed] : index.files) {
    const fs::path path = fs::path(checkpoint_dir) / name;
    CheckSize(path, listed.bytes);
    if (verify) CheckContent(path, listed.xxh3_64, ScanTensors(path.string(), [] {}));
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
  SingleCommunicator world;
  return Find(path, {world, skipped, ScanTensors, advice});
}

std::string FindCheckpoint(const std::string& path, Communicator& world,
                           const std::vector<std::string>& skipped, const FileScan& scan) {
  return Find(path, {world, skipped, scan});
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
