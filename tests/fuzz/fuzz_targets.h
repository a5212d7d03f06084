#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace equipoise {

// One reader of what comes from outside.
struct FuzzTarget {
  std::string name;
  // Any bytes are read, or refused by an exception of the kind that the reader promises; any other
  // exception gets out.
  void (*run)(std::string_view bytes);
  std::vector<std::string> seeds;  // files that are read
  std::vector<std::string> words;  // that mutations insert
};

const std::vector<FuzzTarget>& FuzzTargets();

}  // namespace equipoise
