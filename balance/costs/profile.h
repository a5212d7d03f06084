#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "models/spec/layer_spec.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// A measurement of one layer at one load, alone on a device, with all weights trained.
struct LayerMeasurement {
  std::string layer_kind;  // LayerSpec::kind
  std::string shape;       // LayerSpec::shape: layers of equal kind and shape cost the same
  LayerLoad load;
  int tensor = 1;  // tensor-parallel ranks: times are of a rank's part and of the all-reduces
  double forward_s = 0, backward_s = 0;                // means; backward has both gradients
  double input_gradient_s = 0, weight_gradient_s = 0;  // with frozen weights; rest of backward
  std::array<int64_t, 4> kept_bytes = {};  // saved for backward, by Recompute; 0: unknown
  int64_t work_bytes = 0;                  // peak of temporaries of both passes; 0: unknown
};

// Measurements of `equipoise profile` on one device.
struct Profile {
  std::string device;     // "NVIDIA A100-SXM4-80GB", or the processor's name
  std::string versions;   // of LibTorch: "LibTorch 2.11.0"
  std::string precision;  // fp32 | bf16 | fp16
  int threads = 0;        // of the computation
  std::vector<LayerMeasurement> layers;
  double optimizer_s_per_parameter = 0;  // 0: not measured
  // Links for n bytes between two ranks: one way, and summed on both. Zeros: not measured.
  LinkModel point_to_point, all_reduce;
  // Of a GPU to pinned memory of the host or back, the slower way, while all of the ranks' GPUs
  // copy; 0: not measured.
  double host_link_bytes_per_s = 0;
};

// The profile with the mean times of several that were measured in the same way; all else is from
// the first. Rates of links are means of seconds per byte, over the profiles that have them.
// REQUIRES: at least one profile; the same rows in each.
Profile MeanProfile(const std::vector<Profile>& profiles);

Json ToJson(const Profile& profile);
// Throws DataError that begins with `source` for JSON that is not a profile, lacks a field, or has
// a number that is negative or not finite.
Profile ParseProfile(const Json& json, const std::string& source);
// Files of that JSON. Both throw DataError that begins with the path, also where the file cannot be
// read or written.
Profile ReadProfile(const std::string& path);
void WriteProfile(const std::string& path, const Profile& profile);

// The conditions in which a profile is used. "" and 0 stand for any.
struct ProfileUse {
  std::string device;  // a part of the device's name suffices
  std::string versions, precision;
  int threads = 0;
};
// The first difference, such as "measured in bf16, used in fp32"; "" where the profile matches.
std::string ProfileMismatch(const Profile& profile, const ProfileUse& use);
// Throws ConfigError that begins with the path where the profile does not match. With `force`
// returns a warning instead ("" where it matches).
std::string RequireProfile(const Profile& profile, const ProfileUse& use, const std::string& path,
                           bool force);

}  // namespace equipoise
