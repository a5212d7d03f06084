#pragma once

#include <string>
#include <vector>

namespace equipoise {

// The candidate nearest to a misspelt name, the first of equals; "" where none is near. Near means
// at most one edit (insertion, deletion, substitution, swap of neighbours) per three characters, or
// else that this candidate alone holds the name.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace equipoise
