#pragma once

#include <string>
#include <vector>

namespace equipoise {

// The candidate that `name` was most likely meant to be, or "" where none is near: at most one edit
// (insertion, deletion, substitution, swap of neighbours) per three characters. The first of
// equals.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace equipoise
