#include "trainer/common/program_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <fstream>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {

std::string ProgramHash() {
  constexpr const char* kProgram = "/proc/self/exe";
  std::ifstream file(kProgram, std::ios::binary);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  std::vector<char> block(size_t{1} << 20);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0) {
    XXH3_64bits_update(&state, block.data(), static_cast<size_t>(file.gcount()));
  }
  if (!file.eof()) throw RunError(fmt::format("{}: cannot be read; mount /proc", kProgram));
  return fmt::format("{:016x}", XXH3_64bits_digest(&state));
}

}  // namespace equipoise
