// StepTimeModel: how long a step of so many rows takes, learned from the steps that ran.
// time = base + per_row * rows, a least-squares line through samples that fade by age.
#pragma once

#include <cstdint>

namespace cuvil::scheduler {

class StepTimeModel {
 public:
  void Add(int64_t rows, int64_t elapsed_us);
  bool known() const { return weight_ > 0; }
  double base_us() const;
  double per_row_us() const;
  double Predict(int64_t rows) const { return base_us() + per_row_us() * rows; }
  // Most rows that stay within `target_us`; 0 when not even one does. REQUIRES: known().
  int64_t RowsWithin(int64_t target_us) const;

 private:
  double weight_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;  // faded sums
};

}  // namespace cuvil::scheduler
