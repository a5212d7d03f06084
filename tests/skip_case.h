#pragma once

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

namespace equipoise::testing {

// For a test case that cannot run here and returns: prints the line by which scripts/test counts it
// as skipped, `skipped: NAME OF THE CASE: reason`.
inline void SkipCase(const std::string& reason) {
  std::printf("skipped: %s: %s\n", Catch::getResultCapture().getCurrentTestName().c_str(),
              reason.c_str());
}

}  // namespace equipoise::testing
