#pragma once

#include <cstdint>
#include <string>

#include "configs/base/file_handle.h"
#include "parallel/comm/communicator.h"
#include "trainer/settings/step_interval.h"

namespace equipoise {

// The folder of a run, locked for the lifetime of this object.
//
//   config.yaml  metrics.jsonl  quarantine.jsonl  report.html  checkpoints/  log/  tensorboard/
//   lock         locked (flock) by rank 0; contains the owner's process and machine
class RunFolder {
 public:
  // Creates the folder and its subfolders, and locks it (rank 0). Collective. Throws RunError on
  // every rank when it cannot be written to, when another job has locked it (the message names its
  // process and machine), or when the path of the link `latest` or of the file `stop` is taken by
  // something else.
  RunFolder(const std::string& dir, Communicator& world);

  // Throws RunError on every rank when the folder was removed or replaced since: nothing that is
  // saved would be found, and another run may be in its place. Collective.
  void RequireHeld(Communicator& world) const;

  const std::string& dir() const { return dir_; }
  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  // Path of a rank's log, such as RUN/log/rank-00003.log.
  std::string LogPath(int rank) const;

 private:
  std::string dir_;
  FileHandle lock_;  // open on rank 0 only
};

// Throws as the constructor of RunFolder would, and leaves the file system unchanged. Collective.
void CheckRunFolder(const std::string& dir, Communicator& world);

// Throws ConfigError when the run folder has checkpoints, which `--resume none` would lose.
void RefuseCheckpoints(const std::string& run_dir);
// Throws ConfigError when it has some, and `from`, where a run is to begin, is none of them: those
// beyond that step would be deleted.
void RefuseOthersCheckpoint(const std::string& run_dir, const std::string& from);
bool HasCheckpoints(const std::string& run_dir);

// Throws DataError when a folder without checkpoints shows by metrics.jsonl or report.html that one
// was saved there, by a run that saved one every `every` steps. For a run that starts at step 0; a
// run that ended before its first checkpoint may be started again.
void RefuseLostCheckpoints(const std::string& run_dir, const StepInterval& every);

// Renames a metrics file that has steps to the first unused of `path`.1, `path`.2, ...; returns the
// new name, or "" when there are no steps. Throws RunError.
std::string RotateMetrics(const std::string& path);

// Removes from a metrics file the steps after `step` and lines that are incomplete or malformed;
// other lines keep their bytes. Does nothing when there is no file. Throws RunError.
void TruncateMetrics(const std::string& path, int64_t step);

}  // namespace equipoise
