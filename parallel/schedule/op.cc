#include "parallel/schedule/op.h"

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
    case OpKind::kOptimizer:
      break;
  }
  return "OPT";
}

}  // namespace

std::string ToString(const Op& op) {
  std::string text = Letter(op.kind);
  if (op.kind == OpKind::kOptimizer) return text;
  text.insert(0, std::to_string(op.stage));
  if (op.kind == OpKind::kReduce) return text;
  text += std::to_string(op.micro_batch);
  if (op.kind == OpKind::kSend) text += ">" + std::to_string(op.peer);
  if (op.kind == OpKind::kRecv) text += "<" + std::to_string(op.peer);
  return text;
}

}  // namespace equipoise
