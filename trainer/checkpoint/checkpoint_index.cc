#include "trainer/checkpoint/checkpoint_index.h"

#include <fmt/format.h>

#include "configs/base/error.h"
#include "trainer/checkpoint/checkpoint_integrity.h"
#include "trainer/checkpoint/checkpoint_json.h"
#include "trainer/checkpoint/checkpoint_layout.h"

namespace equipoise {
namespace {

const Json& Member(const Json& object, const char* key, const std::string& source) {
  if (!object.is_object() || !object.contains(key) || !object.at(key).is_object()) {
    throw DataError(
        fmt::format("{}: {}: missing, or no object; use another checkpoint", source, key));
  }
  return object.at(key);
}

int64_t Count(const Json& object, const char* key, const std::string& source) {
  const int64_t value = GetInt(object, key, source);
  if (value < 0)
    throw DataError(fmt::format("{}: {}: is negative; use another checkpoint", source, key));
  return value;
}

BestStep ReadBest(const Json& json, const std::string& source) {
  const Json value = json.is_object() ? json.value("value", Json()) : Json();
  if (!value.is_number())
    throw DataError(fmt::format("{}: best: holds no value; use another checkpoint", source));
  return {GetString(json, "measure", source), value.get<double>(), Count(json, "step", source),
          GetString(json, "data", source, "")};
}

LossScale ReadLossScale(const Json& json, const std::string& source) {
  const Json scale = json.is_object() ? json.value("scale", Json()) : Json();
  if (!scale.is_number() || scale.get<double>() < 1 ||
      scale.get<double>() > static_cast<double>(LossScaleSection::kMost)) {
    throw DataError(
        fmt::format("{}: loss_scale: scale is no number from 1 to {}; use another "
                    "checkpoint",
                    source, LossScaleSection::kMost));
  }
  return {scale.get<double>(), Count(json, "good_steps", source)};
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
  state.packs = json.contains("packs") ? Count(json, "packs", source) : -1;
  state.skipped_samples = Count(json, "skipped_samples", source);
  state.non_finite_in_a_row = Count(json, "non_finite_in_a_row", source);
  if (json.contains("loss_scale")) state.loss_scale = ReadLossScale(json.at("loss_scale"), source);
  if (json.contains("best")) state.best = ReadBest(json.at("best"), source);
  if (json.contains("non_finite_tried"))
    state.non_finite_tried = GetBool(json, "non_finite_tried", source);
  if (json.contains("owes_answers")) state.owes_answers = GetBool(json, "owes_answers", source);
  return state;
}

// Checks the consistency of the numbers.
void CheckState(const TrainState& state, const std::string& source) {
  const auto fail = [&](const std::string& what) {
    throw DataError(fmt::format("{}: state: {}; use another checkpoint", source, what));
  };
  if (state.optimizer_step > state.step)
    fail(fmt::format("optimizer_step {} is beyond the step {}", state.optimizer_step, state.step));
  if (state.non_finite_in_a_row > state.step - state.optimizer_step)
    fail(fmt::format("non_finite_in_a_row {} is beyond the steps that were skipped",
                     state.non_finite_in_a_row));
  if (state.best && state.best->step > state.step)
    fail(fmt::format("best step {} is beyond the step {}", state.best->step, state.step));
  if (state.position.epoch > state.samples)  // an epoch has at least one sample
    fail(fmt::format("epoch {} is beyond the samples used", state.position.epoch));
}

// Returns the version.
int64_t CheckFormat(const Json& json, bool has_checksum, const std::string& source) {
  const std::string format = GetString(json, "format", source);
  const int64_t version = GetInt(json, "version", source);
  if (format != kCheckpointFormat || version < 1 || version > kCheckpointVersion) {
    throw DataError(fmt::format(
        "{}: format {} version {} is not known to this program; use the one that wrote it", source,
        format, version));
  }
  // The key shows that there was a checksum, even if the version has been altered.
  if (!has_checksum && (version >= kFirstWithChecksum || json.contains("xxh3_64"))) {
    throw DataError(source + ": its checksum is not at its end; use another checkpoint");
  }
  return version;
}

// Names come from a file and must not lead out of the folder.
void CheckName(const std::string& name, const std::string& source) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    throw DataError(
        fmt::format("{}: files: '{}' is no file name; use another checkpoint", source, name));
  }
}

std::map<std::string, ListedFile> ReadFiles(const Json& json, const std::string& source) {
  std::map<std::string, ListedFile> files;
  for (const auto& [name, entry] : json.items()) {
    CheckName(name, source);
    files[name] = {Count(entry, "bytes", source), GetString(entry, "xxh3_64", source)};
  }
  return files;
}

}  // namespace

CheckpointIndex ParseCheckpointIndex(std::string_view text, const std::string& source) {
  const bool has_checksum = HasChecksum(text, source);
  const Json json = ParseJson(text, source);
  CheckpointIndex index;
  index.version = CheckFormat(json, has_checksum, source);
  index.state = ReadState(Member(json, "state", source), source);
  CheckState(index.state, source);
  index.environment = Member(json, "environment", source);
  index.sections = Member(json, "sections", source);
  if (json.contains("settings")) index.settings = Member(json, "settings", source);
  index.files = ReadFiles(Member(json, "files", source), source);
  index.tensors = TensorsFromJson(Member(json, "tensors", source), source);
  for (const auto& [name, pieces] : index.tensors) {
    for (const StoredPiece& stored : pieces) {
      if (index.files.contains(stored.file)) continue;
      throw DataError(
          fmt::format("{}: tensor {} is in no listed file; use another checkpoint", source, name));
    }
  }
  return index;
}

}  // namespace equipoise
