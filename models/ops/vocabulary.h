#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// A vocabulary whose rows are split over tensor-parallel ranks, as Parameter::part says.

struct LocalIds {
  at::Tensor ids;        // within this rank's rows; 0 for those of other ranks
  at::Tensor elsewhere;  // bool: another rank holds the row
};
LocalIds IdsOfPart(const at::Tensor& ids, const Parameter& weight);

// x [rows, hidden] times `weight` [vocabulary, hidden], transposed: [rows, vocabulary] fp32, whole
// on every rank of `group` (null: the weight is whole). Has no gradient.
at::Tensor VocabularyLogits(const at::Tensor& x, const Parameter& weight, Communicator* group);

// `logits` [rows, this rank's vocabulary] fp32 become the probabilities over the whole one; returns
// the cross entropy [rows] fp64 of `ids` [rows]. Exchanges three numbers a row.
at::Tensor SoftmaxOverRanks(at::Tensor& logits, const LocalIds& ids, Communicator& group);

}  // namespace equipoise::ops
