// StepTimeModel: how long a step takes, learned from the steps that ran:
// time = base + per_row * rows + per_key * keys, least squares over samples that fade by age. Rows
// that look far back cost more: late in a long prompt attention is most of a step.
#pragma once

#include <array>
#include <cstdint>

namespace cuvil::scheduler {

// What a step's time depends on.
struct StepLoad {
  int64_t rows = 0;
  int64_t keys = 0;  // positions that the rows look at, summed over rows

  StepLoad operator+(const StepLoad& o) const { return {rows + o.rows, keys + o.keys}; }
};

class StepTimeModel {
 public:
  void Add(const StepLoad& load, int64_t elapsed_us);
  bool known() const { return weight_ > 0; }
  double base_us() const { return fit_[0]; }
  double per_row_us() const { return fit_[1]; }
  double per_key_us() const { return fit_[2]; }
  double Predict(const StepLoad& load) const;
  // What `load` adds to a step that runs anyway.
  double Extra(const StepLoad& load) const { return Predict(load) - base_us(); }
  // Most rows, each looking at `keys_per_row` positions, that add at most `budget_us`; 0 when not
  // even one does.
  int64_t RowsWithin(double budget_us, int64_t keys_per_row) const;

 private:
  void Fit();

  // Faded sums of products of (1, rows, keys), and of those with the time.
  std::array<std::array<double, 3>, 3> xx_ = {};
  std::array<double, 3> xy_ = {};
  double weight_ = 0;
  std::array<double, 3> fit_ = {};  // base, per row, per key; none is negative
};

}  // namespace cuvil::scheduler
