#include "trainer/precision.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

namespace equipoise {
namespace {

// What Linux says of this CPU.
bool HasFlag(const std::string& flag) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string word; info >> word;) {
    if (word == flag) return true;
  }
  return false;
}

TEST_CASE("a precision that is given is taken", "[precision][cpu]") {
  CHECK(ComputeDtype("fp32", at::kCPU) == at::kFloat);
  CHECK(ComputeDtype("bf16", at::kCPU) == at::kBFloat16);
  CHECK(ComputeDtype("fp32", at::Device(at::kCUDA, 0)) == at::kFloat);
}

TEST_CASE("auto is bf16 where the CPU has matrix units for it", "[precision][cpu]") {
  const bool has_units = HasFlag("amx_bf16") && HasFlag("amx_tile");
  CHECK(CpuHasBf16MatrixUnits() == has_units);
  CHECK(PrecisionName(ComputeDtype("auto", at::kCPU)) == (has_units ? "bf16" : "fp32"));
}

}  // namespace
}  // namespace equipoise
