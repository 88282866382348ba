#include "scheduler/step_time.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cuvil::scheduler {
namespace {

// A sample's weight halves every 22 steps or so: quick enough for a changed batch of contexts, slow
// enough to ride over noise.
constexpr double kFade = 0.97;
// A step that took this much longer than predicted was held up by something else (a stolen core, a
// page fault storm): counted, but not in full.
constexpr double kOutlier = 4;
// How much the prior weighs against the samples, where each quantity is about 1. Steps that were
// all of a size say nothing about the slopes: then all of it is rows, the careful guess.
constexpr double kPrior = 1e-3;

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

// Solves a x = b for the unknowns of `used`; the others are 0. `a` is positive definite.
Vector Solve(Matrix a, Vector b, const std::array<bool, 3>& used) {
  for (int i = 0; i < 3; ++i) {
    if (used[i]) continue;
    for (int j = 0; j < 3; ++j) a[i][j] = a[j][i] = 0;
    a[i][i] = 1;
    b[i] = 0;
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = i + 1; j < 3; ++j) {
      const double factor = a[j][i] / a[i][i];
      for (int k = i; k < 3; ++k) a[j][k] -= factor * a[i][k];
      b[j] -= factor * b[i];
    }
  }
  Vector x = {};
  for (int i = 2; i >= 0; --i) {
    double sum = b[i];
    for (int k = i + 1; k < 3; ++k) sum -= a[i][k] * x[k];
    x[i] = sum / a[i][i];
  }
  return x;
}

}  // namespace

void StepTimeModel::Add(const StepLoad& load, int64_t elapsed_us) {
  const Vector x = {1, static_cast<double>(load.rows), static_cast<double>(load.keys)};
  double y = static_cast<double>(std::max<int64_t>(elapsed_us, 1));
  if (known()) y = std::min(y, kOutlier * std::max(Predict(load), 1.0));
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) xx_[i][j] = xx_[i][j] * kFade + x[i] * x[j];
    xy_[i] = xy_[i] * kFade + x[i] * y;
  }
  weight_ = weight_ * kFade + 1;
  Fit();
}

// In units in which the means of rows, keys and time are 1, so that one prior fits all models.
void StepTimeModel::Fit() {
  const double time = xy_[0] / weight_;
  const Vector unit = {1, std::max(xx_[0][1] / weight_, 1e-9), std::max(xx_[0][2] / weight_, 1e-9)};
  Matrix a;
  Vector b;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) a[i][j] = xx_[i][j] / (weight_ * unit[i] * unit[j]);
    a[i][i] += kPrior;
    b[i] = xy_[i] / (weight_ * unit[i] * time);
  }
  b[1] += kPrior;  // all of it is rows
  std::array<bool, 3> used = {true, true, true};
  Vector x = Solve(a, b, used);
  // Time never shrinks with load: what comes out negative is 0, the worst one first.
  while (*std::ranges::min_element(x) < 0) {
    used[std::ranges::min_element(x) - x.begin()] = false;
    x = Solve(a, b, used);
  }
  for (int i = 0; i < 3; ++i) fit_[i] = x[i] * time / unit[i];
}

double StepTimeModel::Predict(const StepLoad& load) const {
  return fit_[0] + fit_[1] * static_cast<double>(load.rows) +
         fit_[2] * static_cast<double>(load.keys);
}

int64_t StepTimeModel::RowsWithin(double budget_us, int64_t keys_per_row) const {
  if (budget_us <= 0) return 0;
  constexpr double kMany = 1e9;  // a slope of zero means no limit
  const double slope = Extra({1, keys_per_row});
  return static_cast<int64_t>(slope * kMany <= budget_us ? kMany : budget_us / slope);
}

}  // namespace cuvil::scheduler
