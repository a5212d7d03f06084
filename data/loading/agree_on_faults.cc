#include "data/loading/agree_on_faults.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "configs/base/json.h"
#include "parallel/comm/gather_text.h"
#include "parallel/comm/values.h"

// Ranks that differ load the pack anew with each other's faults, and compare again, as that reading
// may fail in another place. Samples that are bad stay so: the rounds end, on all ranks at once,
// since each goes by what the groups have reduced.

namespace equipoise {
namespace {

using Groups = std::vector<Communicator*>;

bool Differ(const Groups& groups, const SampleFaults& faults) {
  std::vector<int64_t> seen;  // of each sample: whether some rank has it as bad, some as good
  for (const std::string& fault : faults) {
    seen.push_back(fault.empty() ? 0 : 1);
    seen.push_back(fault.empty() ? 1 : 0);
  }
  for (Communicator* group : groups) seen = AllReduceValues(*group, seen, ReduceOp::kMax);
  for (size_t i = 0; i < seen.size(); i += 2) {
    if (seen[i] + seen[i + 1] == 2) return true;
  }
  return false;
}

// The fault of each sample on the first rank that has one.
SampleFaults OfAnyRank(const Groups& groups, SampleFaults faults) {
  for (Communicator* group : groups) {
    const Json mine = faults;
    const std::string text = mine.dump(-1, ' ', false, Json::error_handler_t::replace);
    SampleFaults any(faults.size());
    for (const std::string& rank : GatherText(*group, text)) {
      const auto theirs = Json::parse(rank).get<SampleFaults>();
      for (size_t i = 0; i < any.size(); ++i) {
        if (any[i].empty()) any[i] = theirs[i];
      }
    }
    faults = std::move(any);
  }
  return faults;
}

}  // namespace

bool AgreeOnFaults(const Dataset& dataset, const Pack& pack, const Groups& groups,
                   LoadedPack& loaded) {
  bool changed = false;
  for (; Differ(groups, loaded.faults); changed = true) {
    const uint64_t noise = loaded.batch.noise;
    const bool pictures = loaded.batch.pixel_values.defined();
    loaded = dataset.Load(pack, pictures, OfAnyRank(groups, loaded.faults));
    loaded.batch.noise = noise;
  }
  return changed;
}

std::vector<BadSample> MissedByLoss(const std::vector<BadSample>& bad, bool has_loss,
                                    Communicator& world) {
  Json samples = Json::array();
  for (const BadSample& one : bad)
    samples.push_back({one.sample, one.file, one.line, one.id, one.reason});
  const Json mine = {{"loss", has_loss}, {"samples", samples}};
  const std::string text = mine.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::set<int64_t> noticed;
  std::map<int64_t, BadSample> before;
  for (const std::string& rank : GatherText(world, text)) {
    const Json theirs = Json::parse(rank);
    for (const Json& one : theirs["samples"]) {
      if (theirs["loss"]) {
        noticed.insert(one[0].get<int64_t>());
      } else {
        before.emplace(one[0], BadSample{one[0], one[1], one[2], one[3], one[4]});
      }
    }
  }
  std::vector<BadSample> missed;
  for (const auto& [sample, one] : before) {
    if (!noticed.contains(sample)) missed.push_back(one);
  }
  return missed;
}

}  // namespace equipoise
