#include "balance/costs/profile_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/spec/layer_spec.h"

// Non-negative least squares. There are only eight terms, so every subset is
// solved by the normal equations, and the best solution without a negative coefficient is the
// optimum: O(2^8 x 8^2 x measurements). Terms of pictures that are proportional to patches in all
// measurements are left out.

namespace equipoise {
namespace {

constexpr size_t kTerms = 8, kPatches = 1, kPatchPairs = 5, kImageTokens = 6, kWindowPairs = 7;
using Row = std::array<double, kTerms>;

Row Terms(const LayerLoad& load) {
  return {1,
          static_cast<double>(load.patches),
          static_cast<double>(load.tokens),
          load.token_pairs,
          static_cast<double>(load.targets),
          load.patch_pairs,
          static_cast<double>(load.image_tokens),
          load.window_pairs};
}

double Dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < kTerms; ++i) sum += a[i] * b[i];
  return sum;
}

// Rows of terms, divided by the measured value (so that errors are relative, and every target is 1)
// and by each term's largest value (pairs are millions of times the constant).
struct Problem {
  std::vector<Row> rows;
  std::vector<double> weights;  // of the squared errors
  Row scale = {};
};

Problem Scaled(const std::vector<LayerLoad>& loads, const std::vector<double>& measured,
               Errors errors) {
  Problem problem;
  const double largest = *std::max_element(measured.begin(), measured.end());
  for (size_t i = 0; i < loads.size(); ++i) {
    if (measured[i] <= 0) continue;
    Row row = Terms(loads[i]);
    for (size_t k = 0; k < kTerms; ++k) {
      row[k] /= measured[i];
      problem.scale[k] = std::max(problem.scale[k], row[k]);
    }
    problem.rows.push_back(row);
    problem.weights.push_back(errors == Errors::kRelative ? 1 : std::pow(measured[i] / largest, 2));
  }
  for (Row& row : problem.rows) {
    for (size_t k = 0; k < kTerms; ++k) {
      if (problem.scale[k] > 0) row[k] /= problem.scale[k];
    }
  }
  return problem;
}

// The terms, a bit each, that are proportional to patches in all rows.
unsigned LikePatches(const std::vector<Row>& scaled) {
  unsigned terms = 0;
  for (const size_t k : {kPatchPairs, kImageTokens, kWindowPairs}) {
    const bool alike = std::all_of(scaled.begin(), scaled.end(), [k](const Row& row) {
      return std::abs(row[k] - row[kPatches]) < 1e-9;
    });
    if (alike) terms |= 1U << k;
  }
  return terms;
}

// Least squares over the terms of `subset` (a bit each) by the normal equations and Gauss-Jordan
// elimination. False where they are singular or a coefficient is negative.
bool Solve(const Problem& problem, unsigned subset, Row& solution) {
  const std::vector<Row>& rows = problem.rows;
  std::vector<size_t> terms;
  for (size_t k = 0; k < kTerms; ++k) {
    if ((subset >> k & 1U) != 0) terms.push_back(k);
  }
  const size_t n = terms.size();
  std::array<std::array<double, kTerms + 1>, kTerms> m = {};
  double weights = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    const double weight = problem.weights[r];
    weights += weight;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) m[i][j] += weight * row[terms[i]] * row[terms[j]];
      m[i][n] += weight * row[terms[i]];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    if (m[i][i] < 1e-10 * weights) return false;
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = m[r][i] / m[i][i];
      for (size_t c = i; c <= n; ++c) m[r][c] -= factor * m[i][c];
    }
  }
  solution = {};
  for (size_t i = 0; i < n; ++i) {
    solution[terms[i]] = m[i][n] / m[i][i];
    if (solution[terms[i]] < 0) return false;
  }
  return true;
}

// Of relative errors, weighted or not.
double SumOfSquares(const Problem& problem, const Row& solution, bool weighted) {
  double sum = 0;
  for (size_t i = 0; i < problem.rows.size(); ++i)
    sum += (weighted ? problem.weights[i] : 1) * std::pow(Dot(problem.rows[i], solution) - 1, 2);
  return sum;
}

}  // namespace

double LoadFit::At(const LayerLoad& load) const { return Dot(coefficients, Terms(load)); }

LoadFit FitLoads(const std::vector<LayerLoad>& loads, const std::vector<double>& measured,
                 Errors errors) {
  LoadFit fit;
  if (measured.empty()) return fit;
  const Problem problem = Scaled(loads, measured, errors);
  if (problem.rows.empty()) return fit;
  double least = std::numeric_limits<double>::infinity(), relative = 0;
  const unsigned idle = LikePatches(problem.rows);
  for (unsigned subset = 1; subset < 1U << kTerms; ++subset) {
    Row solution;
    if ((subset & idle) != 0) continue;
    if (!Solve(problem, subset, solution)) continue;
    const double sum = SumOfSquares(problem, solution, /*weighted=*/true);
    if (sum >= least) continue;
    least = sum;
    relative = SumOfSquares(problem, solution, /*weighted=*/false);
    for (size_t k = 0; k < kTerms; ++k) {
      fit.coefficients[k] = problem.scale[k] > 0 ? solution[k] / problem.scale[k] : 0;
    }
  }
  fit.residual = std::sqrt(relative / static_cast<double>(problem.rows.size()));
  return fit;
}

LayerFit FitLayer(const Profile& profile, const std::string& layer_kind, const std::string& shape,
                  int tensor) {
  std::vector<LayerLoad> loads;
  std::vector<double> forward, input, weight, work;
  std::array<std::vector<double>, 4> kept;
  for (const LayerMeasurement& layer : profile.layers) {
    if (layer.layer_kind != layer_kind || layer.shape != shape || layer.tensor != tensor) continue;
    loads.push_back(layer.load);
    if (layer_kind != kHead) loads.back().targets = 0;
    forward.push_back(layer.forward_s);
    input.push_back(layer.input_gradient_s);
    weight.push_back(layer.weight_gradient_s);
    work.push_back(static_cast<double>(layer.work_bytes));
    for (size_t r = 0; r < kept.size(); ++r) {
      kept[r].push_back(static_cast<double>(layer.kept_bytes[r]));
    }
  }
  LayerFit fit;
  fit.measurements = static_cast<int>(loads.size());
  fit.forward_s = FitLoads(loads, forward, Errors::kAbsolute);
  fit.input_gradient_s = FitLoads(loads, input, Errors::kAbsolute);
  fit.weight_gradient_s = FitLoads(loads, weight, Errors::kAbsolute);
  fit.work_bytes = FitLoads(loads, work);
  for (size_t r = 0; r < kept.size(); ++r) fit.kept_bytes[r] = FitLoads(loads, kept[r]);
  double squares = 0, count = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    const double measured = forward[i] + input[i] + weight[i];
    if (measured <= 0) continue;
    const double fitted = fit.forward_s.At(loads[i]) + fit.input_gradient_s.At(loads[i]) +
                          fit.weight_gradient_s.At(loads[i]);
    squares += std::pow(fitted / measured - 1, 2);
    ++count;
  }
  fit.residual = count > 0 ? std::sqrt(squares / count) : 0;
  return fit;
}

}  // namespace equipoise
