#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

// Counter of the steps that are skipped because their loss, their gradient norm, or the weights and
// moments after them would not be finite. Every rank has one, which sees the same numbers, so all
// ranks decide alike without communication.
class NonFiniteGuard {
 public:
  static constexpr int64_t kLimit = 5;

  struct Step {
    int64_t number = 0;
    double loss = 0;
    double grad_norm = 0;
    double lr = 0;
    std::vector<std::string> samples;  // names of the step's samples, e.g. "train.jsonl:17"
    double least_scale = 0;  // the loss scale, where it can become no smaller; 0: it can, or none
  };

  // `in_a_row` and `tried` come from TrainState after a resume.
  explicit NonFiniteGuard(int64_t in_a_row = 0, bool tried = false)
      : in_a_row_(in_a_row), tried_(tried) {}

  // Whether the optimizer may run: loss and norm are finite. Otherwise the step is skipped, and
  // warning() says why.
  bool MayTry(const Step& step);
  // Records that the optimizer has run: it changed the weights (`taken`), or left them because they
  // would not be finite.
  void Tried(const Step& step, bool taken);

  // Ends the row: a step had a finite loss, whatever it was skipped for.
  void SawFiniteLoss() { in_a_row_ = 0, tried_ = false; }

  int64_t in_a_row() const { return in_a_row_; }
  // Whether the optimizer has run in a step of the row.
  bool tried() const { return tried_; }
  // Whether so many steps in a row were skipped that the run must end.
  bool exhausted() const { return in_a_row_ >= kLimit; }
  // Whether no skipped step of the row had a finite loss and norm: the weights may be the cause.
  bool doubts_weights() const { return in_a_row_ > 0 && !tried_; }
  // The reason why the last step was skipped; empty when it was not.
  const std::string& warning() const { return warning_; }

 private:
  void Skip(const Step& step, const std::string& why);

  int64_t in_a_row_;
  bool tried_;
  std::string warning_;
};

}  // namespace equipoise
