#include "parallel/comm/operation_text.h"

#include <fmt/format.h>

namespace equipoise {
namespace {

std::string Size(size_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"KiB", "MiB", "GiB"}) {
    if (amount < 1024) break;
    amount /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {}", amount, unit);
}

}  // namespace

std::string CollectiveText(const std::string& kind, int64_t sequence, const std::string& group,
                           size_t bytes) {
  return fmt::format("{} #{} in group {} ({})", kind, sequence, group, Size(bytes));
}

std::string MessageText(const MessageName& message, const std::string& group, size_t bytes) {
  return CollectiveText(fmt::format("{} rank {}", message.kind, message.peer), message.sequence,
                        group, bytes);
}

}  // namespace equipoise
