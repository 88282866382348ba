#include "runtime/validate.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/checked.h"

namespace cuvil::runtime {
namespace {

constexpr int32_t kFormat = 1;
// As the executor: a kernel that asks for more scratch is a planning mistake.
constexpr int64_t kScratchBytesMax = int64_t{1} << 30;
constexpr size_t kHeaderMax = 256;
// Segments are layers or parts of layers.
constexpr int32_t kSegmentsMax = 1 << 16;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the program is malformed: ", what, "; compile it again"));
}

// The rows of all runs, or a number below zero when they are out of range.
int64_t CountRows(const WeightDecl& weight) {
  int64_t total = 0;
  for (const RowRun& run : weight.runs) {
    if (run.row < 0 || run.rows < 0 || run.row > kRegionBytesMax) return -1;
    if (!CheckedAdd(total, run.rows, &total) || total > kRegionBytesMax) return -1;
  }
  return total;
}

absl::Status ValidateWeight(const WeightDecl& weight, const Program& program) {
  const auto bad = [&weight](absl::string_view what) {
    return Bad(absl::StrCat("weight '", weight.name, "' ", what));
  };
  if (weight.segment < 0 || weight.segment >= program.segments) {
    return bad(absl::StrCat("is in segment ", weight.segment, " of ", program.segments));
  }
  if (weight.offset < 0 || weight.offset % 64 != 0 || weight.bytes < 0 ||
      weight.bytes > program.weights_bytes ||
      weight.offset > program.weights_bytes - weight.bytes) {
    return bad(absl::StrCat("of ", weight.bytes, " bytes at ", weight.offset,
                            " leaves the region of ", program.weights_bytes,
                            " bytes or is not 64-byte aligned"));
  }
  const int64_t rows = CountRows(weight);
  if (rows < 0 || weight.k < 1 || weight.k > kRegionBytesMax) {
    return bad(absl::StrCat("has impossible rows or k = ", weight.k));
  }
  int64_t elements;
  if (!CheckedMul(rows, weight.k, &elements) || elements > kRegionBytesMax) {
    return bad(absl::StrCat("of ", rows, " x ", weight.k, " elements is too large"));
  }
  if (weight.prep == Prep::kFloats) {
    if (weight.bytes % 4 != 0 || elements > weight.bytes / 4) {
      return bad(
          absl::StrCat("of ", elements, " floats does not fit its ", weight.bytes, " bytes"));
    }
    return absl::OkStatus();
  }
  if (rows % kStripRows != 0 || weight.k % kBlockK != 0) {
    return bad(absl::StrCat("of ", rows, " x ", weight.k, " does not fill strips of ", kStripRows,
                            " rows and blocks of ", kBlockK));
  }
  const int64_t want = rows / kStripRows * WeightStripBytes(weight.layout, weight.k);
  if (weight.bytes != want) {
    return bad(absl::StrCat("has ", weight.bytes, " bytes, its strips need ", want));
  }
  return absl::OkStatus();
}

absl::Status CheckApart(const std::vector<WeightDecl>& weights) {
  std::vector<const WeightDecl*> order;
  for (const WeightDecl& weight : weights) {
    if (weight.bytes > 0) order.push_back(&weight);
  }
  std::sort(order.begin(), order.end(),
            [](const WeightDecl* a, const WeightDecl* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
      return Bad(
          absl::StrCat("weights '", order[i - 1]->name, "' and '", order[i]->name, "' overlap"));
    }
  }
  return absl::OkStatus();
}

// Symbols reach a linker: nothing but what a C identifier or LLVM suffix has.
bool IsSymbol(const std::string& text) {
  if (text.empty() || text.size() > 256) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '$';
  });
}

absl::Status ValidateKernels(const Program& program) {
  std::unordered_set<std::string> symbols;
  for (const KernelDecl& kernel : program.kernels) {
    if (!IsSymbol(kernel.symbol)) {
      return Bad(absl::StrCat("kernel symbol '", absl::CEscape(kernel.symbol), "' is no symbol"));
    }
    if (!symbols.insert(kernel.symbol).second) {
      return Bad(absl::StrCat("kernel '", kernel.symbol, "' is there twice"));
    }
    if (kernel.scratch_bytes < 0 || kernel.scratch_bytes > kScratchBytesMax || kernel.buffers < 0 ||
        kernel.scalars < 0) {
      return Bad(absl::StrCat("kernel '", kernel.symbol, "' wants ", kernel.scratch_bytes,
                              " bytes of scratch, ", kernel.buffers, " buffers and ",
                              kernel.scalars, " scalars"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateNames(const Program& program) {
  if (program.header.size() > kHeaderMax) {
    return Bad(absl::StrCat(program.header.size(), " header scalars; the limit is ", kHeaderMax));
  }
  std::unordered_set<std::string> names;
  for (const std::string& name : program.header) {
    if (!names.insert(name).second)
      return Bad(absl::StrCat("header scalar '", name, "' is there twice"));
  }
  for (const StateDecl& state : program.states) {
    if (state.page_bytes < 1 || state.page_bytes > kRegionBytesMax || state.page_tokens < 1) {
      return Bad(absl::StrCat("state '", state.name, "' has pages of ", state.page_bytes,
                              " bytes and ", state.page_tokens, " tokens"));
    }
  }
  for (const Decision& decision : program.decisions) {
    if (!(decision.trust >= 0 && decision.trust <= 1)) {
      return Bad(absl::StrCat("decision '", decision.rule, "' has trust ", decision.trust,
                              ", outside 0..1"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateRopes(const Program& program) {
  for (const RopeDecl& rope : program.ropes) {
    const bool known =
        std::any_of(program.inputs.begin(), program.inputs.end(),
                    [&rope](const BufferDecl& input) { return input.name == rope.input; });
    if (!known)
      return Bad(absl::StrCat("a rotation table goes to unknown input '", rope.input, "'"));
    if (rope.dim < 0 || rope.dim % 2 != 0 ||
        rope.freqs.size() * 2 != static_cast<size_t>(rope.dim)) {
      return Bad(absl::StrCat("the rotation of '", rope.input, "' has dim ", rope.dim, " and ",
                              rope.freqs.size(), " frequencies"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const Program& program) {
  if (program.format != kFormat) {
    return Bad(absl::StrCat("format ", program.format, ", this version reads ", kFormat));
  }
  RETURN_IF_ERROR(ValidateNames(program));
  RETURN_IF_ERROR(ValidateKernels(program));
  RETURN_IF_ERROR(ValidateWeights(program));
  RETURN_IF_ERROR(ValidateRopes(program));
  int64_t rows_before = 0;
  for (const Plan& plan : program.plans) {
    if (plan.rows_max <= rows_before) {
      return Bad(absl::StrCat("plan '", plan.name, "' serves ", plan.rows_max, " rows after ",
                              rows_before, "; plans ascend from 1"));
    }
    rows_before = plan.rows_max;
    RETURN_IF_ERROR(ValidatePlan(program, plan));
  }
  return absl::OkStatus();
}

absl::Status ValidateWeights(const Program& program) {
  if (program.segments < 0 || program.segments > kSegmentsMax) {
    return Bad(absl::StrCat(program.segments, " segments; the limit is ", kSegmentsMax));
  }
  if (program.weights_bytes < 0 || program.weights_bytes > kRegionBytesMax) {
    return Bad(absl::StrCat("a weights region of ", program.weights_bytes, " bytes"));
  }
  for (const WeightDecl& weight : program.weights) {
    RETURN_IF_ERROR(ValidateWeight(weight, program));
  }
  return CheckApart(program.weights);
}

}  // namespace cuvil::runtime
