#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace equipoise {

// Names of the histograms of samples that are part of the program: the files of configs/histograms.
std::vector<std::string> HistogramNames();
// The JSON text of a histogram; "" when there is none of this name.
std::string_view HistogramText(std::string_view name);

}  // namespace equipoise
