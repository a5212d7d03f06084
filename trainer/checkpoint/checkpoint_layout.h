#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

// Names of files in a run folder's `checkpoints/` (docs/checkpoint_format.md).

inline constexpr const char* kCheckpointFormat = "equipoise-checkpoint";
inline constexpr int64_t kCheckpointVersion = 3;
inline constexpr int64_t kFirstWithChecksum = 3;  // first version whose index has a checksum
inline constexpr const char* kIndexName = "index.json";
inline constexpr const char* kLatestName = "latest";
inline constexpr const char* kBestName = "best";
inline constexpr const char* kUnsoundName = "unsound";
inline constexpr const char* kTemporaryPrefix = ".tmp-";

// The name of a step's folder, such as "step-00000100".
std::string StepFolderName(int64_t step);
// The step of such a name; -1 for any other name.
int64_t StepOfName(const std::string& name);
// The name of a rank's file, such as "rank-00003.safetensors".
std::string RankFileName(int rank);
// The steps saved in `checkpoints`, ascending; empty when the folder is absent.
std::vector<int64_t> StepsIn(const std::string& checkpoints);
// The target of a link, kLatestName or kBestName; empty when there is none.
std::string LinkedName(const std::string& checkpoints, const char* link);

}  // namespace equipoise
