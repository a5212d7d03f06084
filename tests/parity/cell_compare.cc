// What two results of a cell differ by, and how much they may.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "tests/models/model_support.h"
#include "tests/parity/cell.h"

namespace equipoise::testing {
namespace {

double Worst(const MoveError& moves) { return std::max(moves.worst, moves.key_biases); }

}  // namespace

bool IsZeroInExactArithmetic(const std::string& name) {
  return name.find("vision_tower") == 0 && name.find("k_proj.bias") != std::string::npos;
}

at::Tensor FirstWeight(const std::string& name, const std::vector<int64_t>& shape) {
  at::Tensor whole = Normal(shape, std::hash<std::string>()(name), 0.2);
  if (name.find("norm") != std::string::npos && name.find("weight") != std::string::npos)
    whole.add_(1);
  return whole;
}

bool IsFrozenAt(const at::Tensor& first, const at::Tensor& weight) {
  const auto rounded = [&](at::ScalarType dtype) { return first.to(dtype).to(weight.dtype()); };
  return weight.equal(first.to(weight.dtype())) || weight.equal(rounded(at::kBFloat16)) ||
         weight.equal(rounded(at::kHalf));
}

MoveError CompareMoves(const std::map<std::string, at::Tensor>& a,
                       const std::map<std::string, at::Tensor>& b) {
  const auto squares = [](const at::Tensor& x, const at::Tensor& y) {
    return (x.to(at::kDouble) - y.to(at::kDouble)).square().sum().item<double>();
  };
  if (a.size() != b.size()) return {1e30, 1e30, 1e30};
  struct Tensor {
    double difference, move;  // squares
    bool key_bias;
  };
  std::vector<Tensor> tensors;
  double apart = 0, moved = 0;
  for (const auto& [name, tensor] : b) {
    if (IsZeroInExactArithmetic(name)) continue;
    const at::Tensor first = FirstWeight(name, tensor.sizes().vec());
    if (IsFrozenAt(first, a.at(name)) && IsFrozenAt(first, tensor)) continue;
    tensors.push_back({squares(a.at(name), tensor), squares(tensor, first),
                       name.find("self_attn.k_proj.bias") != std::string::npos});
    apart += tensors.back().difference;
    moved += tensors.back().move;
  }
  MoveError error{0, std::sqrt(apart / (moved + 1e-60)), 0};
  for (const Tensor& tensor : tensors) {
    const double beside = std::max(tensor.move, 1e-12 * moved) + 1e-60;
    const double one = std::sqrt(tensor.difference / beside);
    double& worst = tensor.key_bias ? error.key_biases : error.worst;
    if (!(one <= worst)) worst = std::isfinite(one) ? one : 1e30;
  }
  if (!std::isfinite(error.whole)) error.whole = 1e30;
  return error;
}

double WorstError(const std::map<std::string, at::Tensor>& a,
                  const std::map<std::string, at::Tensor>& b) {
  if (a.size() != b.size()) return 1e30;
  double squares = 0;
  for (const auto& [name, tensor] : b) {
    squares += tensor.to(at::kDouble).square().sum().item<double>();
  }
  double worst = 0;
  for (const auto& [name, tensor] : b) {
    // The last term: a step in which nothing has a gradient.
    const double floor = (IsZeroInExactArithmetic(name) ? 0.05 : 1e-6) * std::sqrt(squares) + 1e-30;
    const double error = RelativeError(a.at(name), tensor, floor);
    if (!(error <= worst)) worst = std::isfinite(error) ? error : 1e30;
  }
  return worst;
}

bool CellErrors::Within(const CellErrors& bounds) const {
  return loss <= bounds.loss && losses <= bounds.losses && gradients <= bounds.gradients &&
         norms <= bounds.norms && moves.worst <= bounds.moves.worst &&
         moves.whole <= bounds.moves.whole && moves.key_biases <= bounds.moves.key_biases;
}

CellErrors Compare(const CellResult& result, const CellResult& expected) {
  const auto worst = [](std::vector<double> a, std::vector<double> b) {
    double error = a.size() == b.size() ? 0 : 1e30;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      const double one = std::abs(a[i] - b[i]) / (std::abs(b[i]) + 1e-6);
      if (!(one <= error)) error = std::isfinite(one) ? one : 1e30;
    }
    return error;
  };
  CellErrors errors;
  errors.loss = worst({result.loss}, {expected.loss});
  errors.losses = worst(result.losses, expected.losses);
  errors.gradients = WorstError(result.gradients, expected.gradients);
  errors.norms = worst(result.norms, expected.norms);
  errors.moves = CompareMoves(result.weights, expected.weights);
  return errors;
}

CellErrors BoundsOf(const Cell& cell, bool other_device) {
  // Data ranks sum in fp32, and a pipeline moves no sum.
  const bool same_products = cell.tensor == 1 && cell.context == 1 && !other_device;
  if (cell.precision == "fp32" || same_products)
    return {1e-6, 2e-5, 2e-5, 1e-4, {2e-2, 5e-3, 2e-2}};
  // Each tensor rank rounds its partial sums to 16 bits, each context rank the gradients of its
  // rows. Where a gradient is not much more than that, AdamW makes whole steps of it.
  const bool random = cell.modality.rfind("random", 0) == 0;
  // In fp8 the losses of three models in one process are 4e-3 to 1e-2 from fp32: a number may be
  // near another by chance, so that twice the one is no bound of the other.
  const double losses = cell.fp8 ? 1.5e-2 : 5e-3;
  return {5e-3, losses, random ? 2e-1 : 1e-1, 5e-2, {0.9, 0.25, 1.5}};
}

CellErrors AtLeast(const CellErrors& bounds, const CellErrors& measured, double factor) {
  const auto larger = [&](double bound, double floor) { return std::max(bound, factor * floor); };
  return {larger(bounds.loss, measured.loss),
          larger(bounds.losses, measured.losses),
          larger(bounds.gradients, measured.gradients),
          larger(bounds.norms, measured.norms),
          {larger(bounds.moves.worst, measured.moves.worst),
           larger(bounds.moves.whole, measured.moves.whole),
           larger(bounds.moves.key_biases, measured.moves.key_biases)}};
}

bool WithinRounding(const Cell& cell, const CellErrors& errors, const CellResult& one) {
  const CellErrors bounds = BoundsOf(cell);
  const bool alone = cell.tensor == 1 && cell.context == 1, fp32 = cell.precision == "fp32";
  if (errors.Within(bounds) || alone || (fp32 && !cell.modality.starts_with("random")))
    return errors.Within(bounds);
  Cell exact = InOneProcess(cell);
  exact.nudged = fp32;
  if (fp32) return errors.Within(AtLeast(bounds, Compare(RunCell(exact), one), 1));
  exact.precision = "fp32";
  exact.fp8 = false;
  // Weights that no step moves have an error of 1.
  constexpr double kUnmoved = 0.95;
  return errors.moves.whole < kUnmoved &&
         errors.Within(AtLeast(bounds, Compare(one, Known(exact)), 2));
}

std::string ToString(const CellErrors& errors) {
  return fmt::format(
      "loss {:.1e}, losses {:.1e}, gradients {:.1e}, norms {:.1e}, moves {:.1e}, all {:.1e}",
      errors.loss, errors.losses, errors.gradients, errors.norms, Worst(errors.moves),
      errors.moves.whole);
}

std::string Row(const Cell& cell, const CellErrors& errors, bool same_bits) {
  return fmt::format("{}\t{:.1e}\t{:.1e}\t{:.1e}\t{:.1e}\t{}", ToString(cell), errors.losses,
                     errors.gradients, Worst(errors.moves), errors.moves.whole,
                     same_bits ? "yes" : "no");
}

bool SameBits(const CellResult& a, const CellResult& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::all_of(x.begin(), x.end(), [&](const auto& entry) {
             return entry.second.equal(y.at(entry.first));
           });
  };
  return a.loss == b.loss && a.losses == b.losses && a.norms == b.norms &&
         same(a.gradients, b.gradients) && same(a.weights, b.weights);
}

std::string OtherTextBits(const CellResult& a, const CellResult& b) {
  int compared = 0;
  for (const auto& [name, gradient] : b.gradients) {
    if (name.find("language_model") != 0) continue;
    const auto found = a.gradients.find(name);
    if (found == a.gradients.end() || !found->second.equal(gradient)) return name;
    ++compared;
  }
  return compared > 10 ? "" : fmt::format("{} gradients alone", compared);
}

}  // namespace equipoise::testing
