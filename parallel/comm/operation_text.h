#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace equipoise {

// The name of a collective in messages of every backend: "all_reduce #17 in group data (4.0 MiB)".
std::string CollectiveText(const std::string& kind, int64_t sequence, const std::string& group,
                           size_t bytes);
// The name of a transfer in messages: "send to rank 3 #2 in group pipeline (4.0 MiB)".
struct MessageName {
  const char* kind;  // "send to" or "recv from"
  int peer;          // rank in the world
  int64_t sequence;
};
std::string MessageText(const MessageName& message, const std::string& group, size_t bytes);

}  // namespace equipoise
