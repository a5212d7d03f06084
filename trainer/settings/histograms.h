#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace equipoise {

// Histograms of samples that are part of the program: the JSON texts of configs/histograms.
std::vector<std::string> HistogramNames();
// "" where there is none of this name.
std::string_view HistogramText(std::string_view name);

}  // namespace equipoise
