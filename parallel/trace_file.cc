#include "parallel/trace_file.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// A process of the trace: whose spans, and which of the two timelines.
struct Process {
  int rank = 0;
  bool measured = false;
};

Process ProcessOf(const std::string& name, const std::string& path) {
  const std::string lead = "rank ";
  const size_t end = name.find(' ', lead.size());
  const std::string number =
      name.substr(0, lead.size()) == lead ? name.substr(lead.size(), end - lead.size()) : "";
  if (number.empty() || number.size() > 7 ||
      number.find_first_not_of("0123456789") != std::string::npos) {
    throw DataError(
        fmt::format("{}: process '{}' is no rank; give a trace.json of a run or of `plan --trace`",
                    path, name));
  }
  return {std::stoi(number), end != std::string::npos && name.substr(end) == " measured"};
}

// The name in an event of metadata.
std::string NameIn(const Json& event, const std::string& path) {
  const auto found = event.find("args");
  if (found == event.end())
    throw DataError(path + ": metadata without args; the trace is damaged, write it again");
  return GetString(*found, "name", path);
}

std::optional<Mesh> MeshIn(const Json& trace, const std::string& path) {
  if (!trace.contains("mesh")) return std::nullopt;
  const Json& axes = trace["mesh"];
  std::vector<AxisSize> sizes;
  for (const Axis axis : {Axis::kData, Axis::kPipeline, Axis::kContext, Axis::kTensor}) {
    sizes.push_back({axis, static_cast<int>(GetInt(axes, AxisName(axis).c_str(), path, 1))});
  }
  return Mesh(sizes);
}

}  // namespace

Json MeshJson(const Mesh& mesh) {
  Json json;
  for (const Axis axis : {Axis::kData, Axis::kPipeline, Axis::kContext, Axis::kTensor}) {
    json[AxisName(axis)] = mesh.size(axis);
  }
  return json;
}

TraceFile ReadTraceFile(const std::string& path) {
  const Json trace = ReadJsonFile(path);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
    throw DataError(path + ": has no traceEvents; give a trace.json of a run or of `plan --trace`");
  }
  std::map<int64_t, Process> processes;
  std::map<std::pair<int64_t, int64_t>, std::string> lanes;  // by process and thread
  for (const Json& event : trace["traceEvents"]) {
    if (GetString(event, "ph", path) != "M") continue;
    const int64_t pid = GetInt(event, "pid", path), tid = GetInt(event, "tid", path);
    const std::string kind = GetString(event, "name", path);
    if (kind == "process_name") {
      processes[pid] = ProcessOf(NameIn(event, path), path);
    } else if (kind == "thread_name") {
      lanes[{pid, tid}] = NameIn(event, path);
    }
  }
  TraceFile file;
  for (const Json& event : trace["traceEvents"]) {
    if (GetString(event, "ph", path) != "X") continue;
    const int64_t pid = GetInt(event, "pid", path);
    const auto lane = lanes.find({pid, GetInt(event, "tid", path)});
    const auto process = processes.find(pid);
    if (process == processes.end() || lane == lanes.end()) {
      throw DataError(path + ": a span without a rank; the trace is damaged, write it again");
    }
    const double start_s = GetNumber(event, "ts", path) * 1e-6;
    const double end_s = start_s + GetNumber(event, "dur", path) * 1e-6;
    Timeline& timeline = process->second.measured ? file.measured : file.predicted;
    timeline.push_back(
        {process->second.rank, lane->second, GetString(event, "name", path), start_s, end_s});
  }
  file.mesh = MeshIn(trace, path);
  return file;
}

}  // namespace equipoise
