#include "parallel/schedule/op.h"

#include <fmt/format.h>

namespace equipoise {
namespace {

const char* Letter(OpKind kind) {
  switch (kind) {
    case OpKind::kForward:
      return "F";
    case OpKind::kBackward:
      return "B";
    case OpKind::kInputGradient:
      return "I";
    case OpKind::kWeightGradient:
      return "W";
    case OpKind::kEncoderForward:
      return "V";
    case OpKind::kEncoderBackward:
      return "U";
    case OpKind::kSend:
      return "S";
    case OpKind::kRecv:
      return "R";
    case OpKind::kReduce:
      return "REDUCE";
    case OpKind::kGather:
      return "GATHER";
    case OpKind::kFree:
      return "FREE";
    case OpKind::kOptimizer:
      break;
  }
  return "OPT";
}

}  // namespace

std::string ToString(const Op& op) {
  const char* letter = Letter(op.kind);
  switch (op.kind) {
    case OpKind::kOptimizer:
      return letter;
    case OpKind::kReduce:
      return fmt::format("{}{}", op.stage, letter);
    case OpKind::kSend:
      return fmt::format("{}{}{}>{}", op.stage, letter, op.micro_batch, op.peer);
    case OpKind::kRecv:
      return fmt::format("{}{}{}<{}", op.stage, letter, op.micro_batch, op.peer);
    case OpKind::kGather:
    case OpKind::kFree:
      return fmt::format("{}{}{}{}", op.stage, Letter(op.pass), op.micro_batch, letter);
    default:
      return fmt::format("{}{}{}", op.stage, letter, op.micro_batch);
  }
}

}  // namespace equipoise
