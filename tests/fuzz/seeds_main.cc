// Writes each target's seeds to FOLDER/TARGET/0, 1, ...: the files that libFuzzer begins with.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/fuzz/fuzz_targets.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_seeds FOLDER\n";
    return 2;
  }
  for (const equipoise::FuzzTarget& target : equipoise::FuzzTargets()) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / target.name;
    std::filesystem::create_directories(folder);
    for (size_t i = 0; i < target.seeds.size(); ++i)
      std::ofstream(folder / std::to_string(i), std::ios::binary) << target.seeds[i];
    std::cout << target.name << "\n";
  }
  return 0;
}
