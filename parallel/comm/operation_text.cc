#include "parallel/comm/operation_text.h"

#include <cstdio>

namespace equipoise {
namespace {

std::string Size(size_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double amount = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"KiB", "MiB", "GiB"}) {
    if (amount < 1024) break;
    amount /= 1024;
    unit = next;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", amount, unit);
  return text;
}

}  // namespace

std::string CollectiveText(const std::string& kind, int64_t sequence, const std::string& group,
                           size_t bytes) {
  return kind + " #" + std::to_string(sequence) + " in group " + group + " (" + Size(bytes) + ")";
}

std::string MessageText(const MessageName& message, const std::string& group, size_t bytes) {
  return CollectiveText(std::string(message.kind) + " rank " + std::to_string(message.peer),
                        message.sequence, group, bytes);
}

}  // namespace equipoise
