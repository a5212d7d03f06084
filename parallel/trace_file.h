#pragma once

#include <optional>
#include <string>

#include "configs/base/json.h"
#include "parallel/mesh.h"
#include "parallel/timeline.h"

namespace equipoise {

// A trace that this program has written, read back: RUN/trace.json, or that of `plan --trace`.
struct TraceFile {
  Timeline measured;   // of the processes "rank R measured"
  Timeline predicted;  // "rank R predicted", and "rank R" of a simulated step
  std::optional<Mesh> mesh;
};

// The entry "mesh" beside a trace's events, by which a reader knows which ranks belong together.
Json MeshJson(const Mesh& mesh);

// Reads a trace. Throws DataError for a file that is none, or of another program.
TraceFile ReadTraceFile(const std::string& path);

}  // namespace equipoise
