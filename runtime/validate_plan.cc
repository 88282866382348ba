#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "runtime/validate.h"

namespace cuvil::runtime {
namespace {

class PlanCheck {
 public:
  PlanCheck(const Program& program, const Plan& plan) : program_(program), plan_(plan) {}

  absl::Status Check() {
    if (plan_.arena_bytes < 0 || plan_.arena_bytes > kRegionBytesMax) {
      return Bad(absl::StrCat("has an arena of ", plan_.arena_bytes, " bytes"));
    }
    if (plan_.row_block < 1 || plan_.partial_slots < 0) {
      return Bad(absl::StrCat("has row blocks of ", plan_.row_block, " and ", plan_.partial_slots,
                              " partial slots"));
    }
    for (size_t i = 0; i < plan_.launches.size(); ++i) {
      const Launch& launch = plan_.launches[i];
      where_ = absl::StrCat("launch ", i, " (", launch.label, ") ");
      RETURN_IF_ERROR(CheckLaunch(launch));
    }
    where_.clear();
    RETURN_IF_ERROR(CheckSlots());
    return CheckSlotsApart();
  }

 private:
  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("the program is malformed: plan '", plan_.name,
                                                   "' ", where_, what, "; compile it again"));
  }

  absl::Status CheckLaunch(const Launch& launch) {
    if (launch.kernel < 0 || static_cast<size_t>(launch.kernel) >= program_.kernels.size()) {
      return Bad(absl::StrCat("runs kernel ", launch.kernel, " of ", program_.kernels.size()));
    }
    const KernelDecl& kernel = program_.kernels[launch.kernel];
    if (launch.buffers.size() != static_cast<size_t>(kernel.buffers) ||
        launch.scalars.size() != static_cast<size_t>(kernel.scalars)) {
      return Bad(absl::StrCat("passes ", launch.buffers.size(), " buffers and ",
                              launch.scalars.size(), " scalars, kernel '", kernel.symbol,
                              "' wants ", kernel.buffers, " and ", kernel.scalars));
    }
    if (launch.segment < -1 || launch.segment >= program_.segments) {
      return Bad(absl::StrCat("waits for segment ", launch.segment, " of ", program_.segments));
    }
    if (launch.decision < -1 || (launch.decision >= 0 && static_cast<size_t>(launch.decision) >=
                                                             program_.decisions.size())) {
      return Bad(
          absl::StrCat("names decision ", launch.decision, " of ", program_.decisions.size()));
    }
    segment_ = std::max(segment_, launch.segment);
    RETURN_IF_ERROR(CheckExpr(launch.grid));
    // Header scalars are never negative, so neither is the grid.
    if (launch.grid.constant < 0 || launch.grid.multiply < 0) return Bad("has a negative grid");
    for (const Expr& expr : launch.scalars) RETURN_IF_ERROR(CheckExpr(expr));
    for (const Arg& arg : launch.buffers) RETURN_IF_ERROR(CheckArg(arg));
    return absl::OkStatus();
  }

  absl::Status CheckExpr(const Expr& expr) const {
    if (expr.scalar < -1 || expr.scalar >= static_cast<int>(program_.header.size())) {
      return Bad(absl::StrCat("reads header scalar ", expr.scalar, " of ", program_.header.size()));
    }
    if (expr.scalar < 0) return absl::OkStatus();
    // So that constant + multiply * scalar cannot overflow for scalars up to 2^30.
    constexpr int64_t factor_max = int64_t{1} << 32;
    if (expr.divide < 1 || expr.divide > factor_max || expr.multiply > factor_max ||
        expr.multiply < -factor_max || expr.constant > kRegionBytesMax ||
        expr.constant < -kRegionBytesMax) {
      return Bad(absl::StrCat("computes ", expr.constant, " + ", expr.multiply, " * ceil(scalar / ",
                              expr.divide, "), out of range"));
    }
    return absl::OkStatus();
  }

  // Places a buffer may start: [0, bytes), and 0 in an empty region.
  absl::Status CheckOffset(const Arg& arg, absl::string_view region, size_t count,
                           int64_t bytes) const {
    if (arg.index < 0 || static_cast<size_t>(arg.index) >= count) {
      return Bad(absl::StrCat("reads ", region, " ", arg.index, " of ", count));
    }
    if (arg.offset < 0 || (arg.offset > 0 && arg.offset >= bytes)) {
      return Bad(absl::StrCat("reads ", region, " at byte ", arg.offset, " of ", bytes));
    }
    return absl::OkStatus();
  }

  absl::Status CheckArg(const Arg& arg) const {
    switch (arg.region) {
      case Region::kArena:
        return CheckOffset(arg, "arena", 1, plan_.arena_bytes);
      case Region::kInput:
        return CheckOffset(arg, "input", program_.inputs.size(), kRegionBytesMax);
      case Region::kOutput:
        return CheckOffset(arg, "output", program_.outputs.size(), kRegionBytesMax);
      case Region::kState:
        return CheckOffset(arg, "state", program_.states.size(), kRegionBytesMax);
      case Region::kWeights: {
        const size_t count = program_.weights.size();
        const bool known = arg.index >= 0 && static_cast<size_t>(arg.index) < count;
        RETURN_IF_ERROR(
            CheckOffset(arg, "weight", count, known ? program_.weights[arg.index].bytes : 0));
        const WeightDecl& weight = program_.weights[arg.index];
        // Segments land in order and launches run in order: any earlier wait counts.
        if (weight.segment <= segment_) return absl::OkStatus();
        return Bad(absl::StrCat("reads weight '", weight.name, "' of segment ", weight.segment,
                                " before waiting for it"));
      }
    }
    return Bad("reads an unknown region");
  }

  absl::Status CheckSlots() const {
    const int64_t launches = static_cast<int64_t>(plan_.launches.size());
    for (const Slot& slot : plan_.slots) {
      if (slot.offset < 0 || slot.bytes < 0 || slot.bytes > plan_.arena_bytes ||
          slot.offset > plan_.arena_bytes - slot.bytes) {
        return Bad(absl::StrCat("has slot '", slot.name, "' of ", slot.bytes, " bytes at ",
                                slot.offset, " in an arena of ", plan_.arena_bytes));
      }
      if (slot.first < 0 || slot.last < slot.first || slot.last >= launches) {
        return Bad(absl::StrCat("has slot '", slot.name, "' alive ", slot.first, "..", slot.last,
                                " of ", launches, " launches"));
      }
    }
    return absl::OkStatus();
  }

  // Sweeps over the launches with the live slots ordered by offset: a slot that starts must fit
  // between its neighbours. O(n log n).
  absl::Status CheckSlotsApart() const {
    std::vector<std::vector<const Slot*>> starts(plan_.launches.size()), ends(starts.size());
    for (const Slot& slot : plan_.slots) {
      if (slot.bytes == 0) continue;
      starts[slot.first].push_back(&slot);
      ends[slot.last].push_back(&slot);
    }
    std::map<int64_t, const Slot*> live;
    for (size_t launch = 0; launch < starts.size(); ++launch) {
      for (const Slot* slot : starts[launch]) {
        const auto next = live.lower_bound(slot->offset);
        if (next != live.end() && next->first < slot->offset + slot->bytes) {
          return Overlap(*slot, *next->second, launch);
        }
        if (next != live.begin()) {
          const Slot& before = *std::prev(next)->second;
          if (before.offset + before.bytes > slot->offset) return Overlap(*slot, before, launch);
        }
        live.emplace(slot->offset, slot);
      }
      for (const Slot* slot : ends[launch]) live.erase(slot->offset);
    }
    return absl::OkStatus();
  }

  absl::Status Overlap(const Slot& a, const Slot& b, size_t launch) const {
    return Bad(absl::StrCat("keeps slots '", b.name, "' and '", a.name,
                            "' in the same bytes at launch ", launch));
  }

  const Program& program_;
  const Plan& plan_;
  std::string where_;
  int32_t segment_ = -1;  // the latest segment waited for so far
};

}  // namespace

absl::Status ValidatePlan(const Program& program, const Plan& plan) {
  return PlanCheck(program, plan).Check();
}

}  // namespace cuvil::runtime
