#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace equipoise {

// What an operation is called in every message, in every backend.
// "all_reduce #17 in group data (4.0 MiB)"
std::string CollectiveText(const std::string& kind, int64_t sequence, const std::string& group,
                           size_t bytes);
// "send to rank 3 #2 in group pipeline (4.0 MiB)"; `kind` is "send to" or "recv from"
struct MessageName {
  const char* kind;
  int peer;  // rank in the world
  int64_t sequence;
};
std::string MessageText(const MessageName& message, const std::string& group, size_t bytes);

}  // namespace equipoise
