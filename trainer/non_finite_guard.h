#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

// Decides about steps whose loss or gradient norm is not finite. A pure state: every rank holds
// one, sees the same numbers and so decides alike.
class NonFiniteGuard {
 public:
  static constexpr int64_t kLimit = 5;

  struct Step {
    int64_t number = 0;
    double loss = 0;
    double grad_norm = 0;
    std::vector<std::string> samples;  // names of the step's samples, e.g. "train.jsonl:17"
  };

  // `in_a_row` comes from TrainState after a resume.
  explicit NonFiniteGuard(int64_t in_a_row = 0) : in_a_row_(in_a_row) {}

  // Whether the optimizer may take the step. When it may not, warning() says why. Throws RunError
  // with the samples named on the fifth refusal in a row.
  bool MayTake(const Step& step);

  int64_t in_a_row() const { return in_a_row_; }
  const std::string& warning() const { return warning_; }

 private:
  int64_t in_a_row_;
  std::string warning_;
};

}  // namespace equipoise
