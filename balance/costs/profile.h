#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "models/spec/layer_spec.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// One layer at one load, run for itself on a device, all trained.
struct LayerMeasurement {
  std::string layer_kind;  // LayerSpec::kind
  std::string shape;       // LayerSpec::shape: layers of equal kind and shape cost the same
  LayerLoad load;
  int tensor = 1;  // ranks that shared it: times are then of this rank's part and of their sums
  double forward_s = 0, backward_s = 0;                // means; backward makes both gradients
  double input_gradient_s = 0, weight_gradient_s = 0;  // with weights frozen; the rest of backward
  std::array<int64_t, 4> kept_bytes = {};  // from forward to backward, by Recompute; 0: not known
  int64_t work_bytes = 0;  // peak of both passes beyond what was kept before; 0: not known
};

// Measurements of `equipoise profile` on one device.
struct Profile {
  std::string device;     // "NVIDIA A100-SXM4-80GB", or the processor's name
  std::string versions;   // of this program and LibTorch
  std::string precision;  // fp32 | bf16
  int threads = 0;        // of the computation
  std::vector<LayerMeasurement> layers;
  double optimizer_s_per_parameter = 0;  // 0: not measured
  // Links for n bytes between two ranks: one way, and summed on both. Zeros: not measured.
  LinkModel point_to_point, all_reduce;
};

// Mean times of profiles that were measured alike; all else is the first one's. Rates of links are
// means of the times that a byte takes, over the profiles that have them.
// REQUIRES: at least one; the same rows in each.
Profile MeanProfile(const std::vector<Profile>& profiles);

Json ToJson(const Profile& profile);
// Throws DataError that begins with `source` for what is no profile, lacks a field, or holds a
// number that is negative or not finite.
Profile ParseProfile(const Json& json, const std::string& source);
// Files of that JSON. Throw DataError that begins with the path, also where it cannot be read or
// written.
Profile ReadProfile(const std::string& path);
void WriteProfile(const std::string& path, const Profile& profile);

// Where a profile is to be used. "" and 0 stand for any.
struct ProfileUse {
  std::string device;  // a part of the device's name will do
  std::string versions, precision;
  int threads = 0;
};
// "measured in bf16, used in fp32" and so on; "" where the profile fits.
std::string ProfileMismatch(const Profile& profile, const ProfileUse& use);
// Throws ConfigError that begins with the path where the profile does not fit, unless it is forced:
// then returns the line to warn with ("" where it fits).
std::string RequireProfile(const Profile& profile, const ProfileUse& use, const std::string& path,
                           bool force);

}  // namespace equipoise
