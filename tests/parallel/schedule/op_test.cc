#include "parallel/schedule/op.h"

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

TEST_CASE("ops have the text of the literature", "[op]") {
  CHECK(ToString({OpKind::kForward, 2, 0}) == "2F0");
  CHECK(ToString({OpKind::kBackward, 2, 13}) == "2B13");
  CHECK(ToString({OpKind::kInputGradient, 0, 1}) == "0I1");
  CHECK(ToString({OpKind::kWeightGradient, 0, 1}) == "0W1");
  CHECK(ToString({OpKind::kEncoderForward, 11, 4}) == "11V4");
  CHECK(ToString({OpKind::kEncoderBackward, 11, 4}) == "11U4");
  CHECK(ToString({OpKind::kSend, 2, 0, 3}) == "2S0>3");
  CHECK(ToString({OpKind::kRecv, 3, 0, 2, true}) == "3R0<2");
  CHECK(ToString({OpKind::kReduce, 2, 0}) == "2REDUCE");
  CHECK(ToString({OpKind::kOptimizer, 0, 0}) == "OPT");
}

TEST_CASE("each kind of op belongs to the classes that its passes belong to", "[op]") {
  struct Row {
    OpKind kind;
    bool compute, transfer, forward, input_gradient, weight_gradient;
  };
  for (const Row& row : {
           Row{OpKind::kForward, true, false, true, false, false},
           Row{OpKind::kEncoderForward, true, false, true, false, false},
           Row{OpKind::kBackward, true, false, false, true, true},
           Row{OpKind::kEncoderBackward, true, false, false, true, true},
           Row{OpKind::kInputGradient, true, false, false, true, false},
           Row{OpKind::kWeightGradient, true, false, false, false, true},
           Row{OpKind::kSend, false, true, false, false, false},
           Row{OpKind::kRecv, false, true, false, false, false},
           Row{OpKind::kReduce, false, false, false, false, false},
           Row{OpKind::kOptimizer, false, false, false, false, false},
       }) {
    CAPTURE(ToString({row.kind, 1, 1, 2}));
    CHECK(IsCompute(row.kind) == row.compute);
    CHECK(IsTransfer(row.kind) == row.transfer);
    CHECK(IsForward(row.kind) == row.forward);
    CHECK(MakesInputGradient(row.kind) == row.input_gradient);
    CHECK(MakesWeightGradient(row.kind) == row.weight_gradient);
  }
}

}  // namespace
}  // namespace equipoise
