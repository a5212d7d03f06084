#include "trainer/settings/precision.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "trainer/device/bf16_units.h"

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

TEST_CASE("each precision has its name and size", "[precision][cpu]") {
  CHECK(ToString(Precision::kFp32) == "fp32");
  CHECK(ToString(Precision::kBf16) == "bf16");
  CHECK(ToString(Precision::kFp16) == "fp16");
  CHECK(ElementBytes(Precision::kFp32) == 4);
  CHECK(ElementBytes(Precision::kBf16) == 2);
  CHECK(ElementBytes(Precision::kFp16) == 2);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16})
    CHECK(ParsePrecision(ToString(precision)) == precision);
  CHECK_THROWS_AS(ParsePrecision("fp8"), std::logic_error);
  CHECK(PrecisionSettings() == std::vector<std::string>{"auto", "fp32", "bf16", "fp16"});
  CHECK(ToString(MomentPrecision::k8Bit) == "8bit");
  for (const MomentPrecision moments :
       {MomentPrecision::kFp32, MomentPrecision::kBf16, MomentPrecision::k8Bit})
    CHECK(ParseEnum<MomentPrecision>(ToString(moments)) == moments);
  CHECK(ElementBytes(MomentPrecision::kFp32) == 4);
  CHECK(ElementBytes(MomentPrecision::kBf16) == 2);
  CHECK(ElementBytes(MomentPrecision::k8Bit) == 1 + 4.0 / 256);
  for (const char* name : {"fp16", "int8", "8", ""}) CHECK_FALSE(ParseEnum<MomentPrecision>(name));
}

TEST_CASE("weights without masters are bf16, or refused in a line", "[precision][cpu]") {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16})
    CHECK_NOTHROW(CheckMaster(MasterPrecision::kFp32, precision));
  CHECK_NOTHROW(CheckMaster(MasterPrecision::kNone, Precision::kBf16));
  for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
    try {
      CheckMaster(MasterPrecision::kNone, precision);
      FAIL("not refused");
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      CHECK(text.starts_with("train.master: none "));
      CHECK(text.find(ToString(precision)) != std::string::npos);
      CHECK(text.find("; set train.precision to bf16") != std::string::npos);
      CHECK(text.find('\n') == std::string::npos);
    }
  }
}

TEST_CASE("a precision that is given is taken, auto goes by the matrix units", "[precision][cpu]") {
  for (const bool has_units : {false, true}) {
    CHECK(ChoosePrecision("fp32", has_units) == Precision::kFp32);
    CHECK(ChoosePrecision("bf16", has_units) == Precision::kBf16);
    CHECK(ChoosePrecision("fp16", has_units) == Precision::kFp16);
  }
  CHECK(ChoosePrecision("auto", false) == Precision::kFp32);
  CHECK(ChoosePrecision("auto", true) == Precision::kBf16);
}

TEST_CASE("this machine's CPU is asked for its matrix units", "[precision][cpu]") {
  const bool has_units = HasFlag("amx_bf16") && HasFlag("amx_tile");
  CHECK(CpuHasBf16MatrixUnits() == has_units);
  CHECK(ThisMachineHasBf16MatrixUnits("cpu") == has_units);
}

}  // namespace
}  // namespace equipoise
