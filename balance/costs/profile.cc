#include "balance/costs/profile.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "configs/base/error.h"
#include "configs/base/json.h"

namespace equipoise {
namespace {

constexpr const char* kAnyFormat = "equipoise profile ";
constexpr const char* kFormat = "equipoise profile 2";  // 1 counted tiles

double Positive(const Json& object, const char* key, const std::string& source) {
  const double value = GetNumber(object, key, source);
  if (std::isfinite(value) && value >= 0) return value;
  throw DataError(
      fmt::format("{}: {}: {} is no time, size or speed; measure again with equipoise profile",
                  source, key, value));
}

int64_t PositiveInt(const Json& object, const char* key, const std::string& source) {
  const int64_t value = GetInt(object, key, source);
  if (value >= 0) return value;
  throw DataError(fmt::format("{}: {}: {} is negative; measure again with equipoise profile",
                              source, key, value));
}

const Json& Part(const Json& object, const char* key, bool list, const std::string& source) {
  const auto found = object.find(key);
  if (found != object.end() && (list ? found->is_array() : found->is_object())) return *found;
  throw DataError(fmt::format("{}: no {} '{}'; measure again with equipoise profile", source,
                              list ? "list" : "map", key));
}

Json LinkJson(const LinkModel& link) {
  return {{"latency_s", link.latency_s}, {"bytes_per_s", link.bytes_per_s}};
}

LinkModel ReadLink(const Json& object, const char* key, const std::string& source) {
  const Json& link = Part(object, key, /*list=*/false, source);
  return {Positive(link, "latency_s", source), Positive(link, "bytes_per_s", source)};
}

Json LayerJson(const LayerMeasurement& layer) {
  return {{"layer_kind", layer.layer_kind},
          {"shape", layer.shape},
          {"patches", layer.load.patches},
          {"patch_pairs", layer.load.patch_pairs},
          {"window_pairs", layer.load.window_pairs},
          {"image_tokens", layer.load.image_tokens},
          {"tokens", layer.load.tokens},
          {"token_pairs", layer.load.token_pairs},
          {"targets", layer.load.targets},
          {"tensor", layer.tensor},
          {"forward_s", layer.forward_s},
          {"backward_s", layer.backward_s},
          {"input_gradient_s", layer.input_gradient_s},
          {"weight_gradient_s", layer.weight_gradient_s},
          {"kept_bytes", layer.kept_bytes},
          {"work_bytes", layer.work_bytes}};
}

LayerMeasurement ReadLayer(const Json& object, const std::string& source) {
  LayerMeasurement layer;
  layer.layer_kind = GetString(object, "layer_kind", source);
  layer.shape = GetString(object, "shape", source);
  layer.load.patches = PositiveInt(object, "patches", source);
  layer.load.patch_pairs = Positive(object, "patch_pairs", source);
  if (object.contains("window_pairs"))
    layer.load.window_pairs = Positive(object, "window_pairs", source);
  layer.load.image_tokens = PositiveInt(object, "image_tokens", source);
  layer.load.tokens = PositiveInt(object, "tokens", source);
  layer.load.token_pairs = Positive(object, "token_pairs", source);
  if (object.contains("targets")) layer.load.targets = PositiveInt(object, "targets", source);
  if (object.contains("tensor"))
    layer.tensor = static_cast<int>(PositiveInt(object, "tensor", source));
  layer.forward_s = Positive(object, "forward_s", source);
  layer.backward_s = Positive(object, "backward_s", source);
  layer.input_gradient_s = Positive(object, "input_gradient_s", source);
  layer.weight_gradient_s = Positive(object, "weight_gradient_s", source);
  layer.work_bytes = PositiveInt(object, "work_bytes", source);
  const Json& kept = Part(object, "kept_bytes", /*list=*/true, source);
  if (kept.size() != layer.kept_bytes.size()) {
    throw DataError(
        fmt::format("{}: kept_bytes: {} numbers, one for each kind of recomputation is needed",
                    source, kept.size()));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    layer.kept_bytes[i] = PositiveInt({{"kept_bytes", kept[i]}}, "kept_bytes", source);
  }
  return layer;
}

std::string Differs(const std::string& what, const std::string& there, const std::string& here) {
  return fmt::format("measured {0} {1}, used {0} {2}", what, there, here);
}

LinkModel MeanLink(const std::vector<Profile>& profiles, LinkModel Profile::*link) {
  double count = 0, latency_s = 0, s_per_byte = 0;
  for (const Profile& profile : profiles) {
    const LinkModel& one = profile.*link;
    if (one.bytes_per_s <= 0) continue;
    ++count;
    latency_s += one.latency_s;
    s_per_byte += 1 / one.bytes_per_s;
  }
  return count > 0 ? LinkModel{latency_s / count, count / s_per_byte} : LinkModel();
}

// Of those that have it.
double MeanRate(const std::vector<Profile>& profiles, double Profile::*rate) {
  double count = 0, s_per_byte = 0;
  for (const Profile& profile : profiles) {
    if (profile.*rate <= 0) continue;
    ++count;
    s_per_byte += 1 / profile.*rate;
  }
  return count > 0 ? count / s_per_byte : 0;
}

}  // namespace

Profile MeanProfile(const std::vector<Profile>& profiles) {
  Profile mean = profiles.at(0);
  const auto average = [&](auto&& value) {
    double sum = 0;
    for (const Profile& profile : profiles) sum += value(profile);
    return sum / static_cast<double>(profiles.size());
  };
  for (size_t i = 0; i < mean.layers.size(); ++i) {
    for (double LayerMeasurement::*time :
         {&LayerMeasurement::forward_s, &LayerMeasurement::backward_s,
          &LayerMeasurement::input_gradient_s, &LayerMeasurement::weight_gradient_s}) {
      mean.layers[i].*time = average([&](const Profile& p) { return p.layers.at(i).*time; });
    }
  }
  mean.optimizer_s_per_parameter =
      average([](const Profile& p) { return p.optimizer_s_per_parameter; });
  mean.point_to_point = MeanLink(profiles, &Profile::point_to_point);
  mean.all_reduce = MeanLink(profiles, &Profile::all_reduce);
  mean.host_link_bytes_per_s = MeanRate(profiles, &Profile::host_link_bytes_per_s);
  return mean;
}

Profile ParseProfile(const Json& json, const std::string& source) {
  const std::string format = json.is_object() ? GetString(json, "format", source, "") : "";
  if (!format.starts_with(kAnyFormat)) {
    throw DataError(
        fmt::format("{}: not a profile ('format' is not '{}'); make one with equipoise profile",
                    source, kFormat));
  }
  if (format != kFormat) {
    throw DataError(
        fmt::format("{}: is of another version of this program ('{}', not '{}'); measure again "
                    "with equipoise profile",
                    source, format, kFormat));
  }
  Profile profile;
  profile.device = GetString(json, "device", source);
  profile.versions = GetString(json, "versions", source);
  profile.precision = GetString(json, "precision", source);
  profile.threads = static_cast<int>(PositiveInt(json, "threads", source));
  profile.optimizer_s_per_parameter = Positive(json, "optimizer_s_per_parameter", source);
  profile.point_to_point = ReadLink(json, "point_to_point", source);
  profile.all_reduce = ReadLink(json, "all_reduce", source);
  if (json.contains("host_link_bytes_per_s"))
    profile.host_link_bytes_per_s = Positive(json, "host_link_bytes_per_s", source);
  const Json& layers = Part(json, "layers", /*list=*/true, source);
  for (size_t i = 0; i < layers.size(); ++i) {
    profile.layers.push_back(ReadLayer(layers[i], fmt::format("{}: layers.{}", source, i)));
  }
  return profile;
}

Profile ReadProfile(const std::string& path) { return ParseProfile(ReadJsonFile(path), path); }

Json ToJson(const Profile& profile) {
  Json json = {{"format", kFormat},
               {"device", profile.device},
               {"versions", profile.versions},
               {"precision", profile.precision},
               {"threads", profile.threads},
               {"optimizer_s_per_parameter", profile.optimizer_s_per_parameter},
               {"point_to_point", LinkJson(profile.point_to_point)},
               {"all_reduce", LinkJson(profile.all_reduce)},
               {"host_link_bytes_per_s", profile.host_link_bytes_per_s},
               {"layers", Json::array()}};
  for (const LayerMeasurement& layer : profile.layers) json["layers"].push_back(LayerJson(layer));
  return json;
}

void WriteProfile(const std::string& path, const Profile& profile) {
  std::ofstream file(path);
  file << ToJson(profile).dump(1) << "\n";
  file.close();
  if (!file) throw DataError(path + ": cannot be written; choose another place with --out");
}

std::string ProfileMismatch(const Profile& profile, const ProfileUse& use) {
  if (profile.device.find(use.device) == std::string::npos) {
    return Differs("on", "'" + profile.device + "'", "'" + use.device + "'");
  }
  if (!use.versions.empty() && use.versions != profile.versions) {
    return Differs("with", "'" + profile.versions + "'", "'" + use.versions + "'");
  }
  if (!use.precision.empty() && use.precision != profile.precision) {
    return Differs("in", profile.precision, use.precision);
  }
  if (use.threads != 0 && use.threads != profile.threads) {
    return Differs("with", fmt::format("{} threads", profile.threads), std::to_string(use.threads));
  }
  return "";
}

std::string RequireProfile(const Profile& profile, const ProfileUse& use, const std::string& path,
                           bool force) {
  const std::string mismatch = ProfileMismatch(profile, use);
  if (mismatch.empty()) return "";
  if (force) return fmt::format("{}: {}; times predicted from it may be wrong", path, mismatch);
  throw ConfigError(
      fmt::format("{}: {}; measure here with equipoise profile, or set cluster.force_profile: true",
                  path, mismatch));
}

}  // namespace equipoise
