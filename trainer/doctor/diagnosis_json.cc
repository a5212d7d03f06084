#include <algorithm>

#include "trainer/doctor/diagnosis.h"

namespace equipoise {
namespace {

Json ToJson(const Remedy& remedy, double step_s) {
  Json json = {{"name", remedy.name},
               {"setting", remedy.setting},
               {"predicted_gain_s", remedy.gain * step_s},
               {"at_most", remedy.at_most}};
  if (!remedy.advice.empty()) json["advice"] = remedy.advice;
  return json;
}

Json ToJson(const RankIdle& rank) {
  Json idle = Json::object();
  for (const auto& name : NamesOf(IdleCause())) {
    if (rank[name.value] > 0) idle[std::string(name.name)] = rank[name.value];
  }
  return {{"compute_s", rank.compute_s}, {"update_s", rank.update_s}, {"idle_s", idle}};
}

}  // namespace

Json DiagnosisToJson(const Diagnosis& diagnosis) {
  const IdleTable& table = diagnosis.table;
  Json causes = Json::array(), remedies = Json::array(), ranks = Json::array();
  for (const IdleCause cause : diagnosis.causes) {
    Json against = Json::array();
    for (const Remedy& remedy : diagnosis.remedies) {
      const auto& causes_of = remedy.against;
      if (std::find(causes_of.begin(), causes_of.end(), cause) != causes_of.end())
        against.push_back(ToJson(remedy, table.step_s));
    }
    causes.push_back({{"cause", ToString(cause)},
                      {"seconds", table.Total(cause)},
                      {"share", table.step_s > 0 ? table.Total(cause) / table.step_s : 0},
                      {"explanation", Explain(cause, table)},
                      {"remedies", against}});
  }
  for (const Remedy& remedy : diagnosis.remedies) remedies.push_back(ToJson(remedy, table.step_s));
  for (const RankIdle& rank : table.ranks) ranks.push_back(ToJson(rank));
  return {{"subject", diagnosis.subject},
          {"plan", diagnosis.plan},
          {"basis", diagnosis.basis},
          {"step_s", table.step_s},
          {"causes", causes},
          {"remedies", remedies},
          {"ranks", ranks},
          {"notes", diagnosis.notes}};
}

}  // namespace equipoise
