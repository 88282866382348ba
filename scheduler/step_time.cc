#include "scheduler/step_time.h"

#include <algorithm>

namespace cuvil::scheduler {
namespace {

// A sample's weight halves every 22 steps or so: quick enough for a changed batch of contexts, slow
// enough to ride over noise.
constexpr double kFade = 0.97;
// A step that took this much longer than predicted was held up by something else (a stolen core, a
// page fault storm): counted, but not in full.
constexpr double kOutlier = 4;

}  // namespace

void StepTimeModel::Add(int64_t rows, int64_t elapsed_us) {
  const double x = static_cast<double>(rows);
  double y = static_cast<double>(std::max<int64_t>(elapsed_us, 1));
  if (known()) y = std::min(y, kOutlier * std::max(Predict(rows), 1.0));
  weight_ = weight_ * kFade + 1;
  x_ = x_ * kFade + x;
  y_ = y_ * kFade + y;
  xx_ = xx_ * kFade + x * x;
  xy_ = xy_ * kFade + x * y;
}

double StepTimeModel::per_row_us() const {
  if (!known()) return 0;
  const double mean_x = x_ / weight_, mean_y = y_ / weight_;
  const double variance = xx_ / weight_ - mean_x * mean_x;
  const double proportional = mean_y / std::max(mean_x, 1.0);
  // Steps that were all of a size say nothing about the slope: then all of it is rows, the careful
  // guess.
  if (variance < 0.01 * mean_x * mean_x) return proportional;
  const double slope = (xy_ / weight_ - mean_x * mean_y) / variance;
  return std::clamp(slope, 0.0, proportional);
}

double StepTimeModel::base_us() const {
  return known() ? std::max(0.0, y_ / weight_ - per_row_us() * x_ / weight_) : 0;
}

int64_t StepTimeModel::RowsWithin(int64_t target_us) const {
  const double left = static_cast<double>(target_us) - base_us();
  if (left <= 0) return 0;
  constexpr double kMany = 1e9;  // a slope of zero means no limit
  const double slope = per_row_us();
  return static_cast<int64_t>(slope * kMany <= left ? kMany : left / slope);
}

}  // namespace cuvil::scheduler
