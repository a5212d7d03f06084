#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// Operations on a vocabulary whose rows are split over tensor-parallel ranks (Parameter::part).

// Token ids as rows of this rank's part.
struct LocalIds {
  at::Tensor ids;        // index within this rank's rows; 0 for rows of other ranks
  at::Tensor elsewhere;  // bool: another rank holds the row
};
LocalIds IdsOfPart(const at::Tensor& ids, const Parameter& weight);

// Logits [rows, vocabulary] fp32: x [rows, hidden] times `weight` [vocabulary, hidden], transposed.
// Whole on every rank of `group` (null: the weight is whole). Has no gradient.
at::Tensor VocabularyLogits(const at::Tensor& x, const Parameter& weight, Communicator* group);

// The column [rows] int64 of the largest logit of each row, the first of equal ones, without all
// logits on any rank: the ranks exchange two numbers a row. The same on every rank of `group`.
at::Tensor VocabularyArgmax(const at::Tensor& x, const Parameter& weight, Communicator* group);

// Softmax over the whole vocabulary, in place: `logits` [rows, this rank's vocabulary] fp32 become
// probabilities. Returns the cross entropy [rows] fp64 of `ids` [rows]. All-reduces three numbers a
// row.
at::Tensor SoftmaxOverRanks(at::Tensor& logits, const LocalIds& ids, Communicator& group);

}  // namespace equipoise::ops
