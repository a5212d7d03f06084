// A libFuzzer program of one target, whose name the build gives.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const equipoise::FuzzTarget& target : equipoise::FuzzTargets()) {
    if (target.name != EQUIPOISE_FUZZ_TARGET) continue;
    target.run({reinterpret_cast<const char*>(data), size});
    return 0;
  }
  std::abort();  // there is no such target
}
