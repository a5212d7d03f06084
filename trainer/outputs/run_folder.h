#pragma once

#include <cstdint>
#include <string>

#include "configs/base/file_handle.h"
#include "parallel/comm/communicator.h"

namespace equipoise {

// A run's hold on its folder, for as long as it lives.
//
//   config.yaml  metrics.jsonl  quarantine.jsonl  report.html  checkpoints/  log/  tensorboard/
//   lock         held (flock) by rank 0; says who holds it
class RunFolder {
 public:
  // Creates the folder and its subfolders, and locks it (rank 0). Collective. Throws RunError on
  // every rank when it cannot be written to, when another job has it (its process and machine are
  // named), or when something else is where the link to the newest checkpoint or the file that asks
  // for a stop belongs.
  RunFolder(const std::string& dir, Communicator& world);

  const std::string& dir() const { return dir_; }
  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  // RUN/log/rank-00003.log
  std::string LogPath(int rank) const;

 private:
  std::string dir_;
  FileHandle lock_;  // rank 0's
};

// Throws what making a RunFolder of it would, and leaves everything as it was. Collective.
void CheckRunFolder(const std::string& dir, Communicator& world);

// For `--resume none`. Throws ConfigError when the run folder holds checkpoints.
void RefuseCheckpoints(const std::string& run_dir);
bool HasCheckpoints(const std::string& run_dir);

// For a run that begins anew, and does not go on from elsewhere, in a folder without checkpoints.
// Throws DataError when metrics.jsonl or report.html shows that one was saved there: with `every`
// steps between them. A run that ended before its first checkpoint may begin anew.
void RefuseLostCheckpoints(const std::string& run_dir, int64_t every);

// Renames a metrics file of steps to the first free one of `path`.1, `path`.2, ...; the new name,
// empty when there is nothing to keep. Throws RunError.
std::string SetMetricsAside(const std::string& path);

// Removes the objects of later steps than `step` from a metrics file, and a last line that is torn
// or no object; the rest keeps its bytes. Nothing happens where there is no file. Throws RunError.
void CutMetrics(const std::string& path, int64_t step);

}  // namespace equipoise
