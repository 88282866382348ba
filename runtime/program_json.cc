#include "runtime/program_json.h"

#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/json_fields.h"
#include "runtime/pack.h"
#include "runtime/validate.h"

namespace cuvil::runtime {
namespace {

// Bounds on what a file may make us allocate; far above any real program.
constexpr size_t kTextMax = 4096;
constexpr int32_t kRopeDimMax = 4096;  // far above any head
constexpr size_t kItemsMax = 1 << 20;  // launches, weights, slots, runs, decisions
constexpr size_t kKernelsMax = 1 << 16;
constexpr size_t kPlansMax = 256;
constexpr size_t kArgumentsMax = 256;  // buffers or scalars of a launch, header scalars
constexpr int64_t kIntMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kIntMax = std::numeric_limits<int64_t>::max();

constexpr std::string_view kRegionNames[] = {"arena", "weights", "state", "input", "output"};
constexpr std::string_view kPrepNames[] = {"strips", "floats"};
constexpr WeightLayout kLayouts[] = {WeightLayout::kQ4_0, WeightLayout::kQ4_1, WeightLayout::kQ8_0,
                                     WeightLayout::kF32,  WeightLayout::kF16,  WeightLayout::kBf16};

Json Write(const std::string& text) { return text; }
Json Write(const Expr& expr);
Json Write(const Arg& arg);
Json Write(const RowRun& run);
Json Write(const Launch& launch);
Json Write(const Slot& slot);
Json Write(const Plan& plan);
Json Write(const KernelDecl& kernel);
Json Write(const WeightDecl& weight);
Json Write(const BufferDecl& buffer);
Json Write(const StateDecl& state);
Json Write(const Decision& decision);
Json Write(const RopeDecl& rope);

template <typename Items>
Json WriteAll(const Items& items) {
  Json out = Json::array();
  for (const auto& item : items) out.push_back(Write(item));
  return out;
}

// A constant is a bare number, anything else [scalar, constant, multiply, divide].
Json Write(const Expr& expr) {
  if (expr == Expr{.constant = expr.constant}) return expr.constant;
  return Json::array({expr.scalar, expr.constant, expr.multiply, expr.divide});
}

Json Write(const Arg& arg) {
  return Json::array({kRegionNames[static_cast<int>(arg.region)], arg.index, arg.offset});
}

Json Write(const RowRun& run) { return Json::array({run.tensor, run.row, run.rows}); }

Json Write(const Launch& launch) {
  return {{"kernel", launch.kernel},
          {"grid", Write(launch.grid)},
          {"buffers", WriteAll(launch.buffers)},
          {"scalars", WriteAll(launch.scalars)},
          {"segment", launch.segment},
          {"decision", launch.decision},
          {"label", launch.label}};
}

Json Write(const Slot& slot) {
  return {{"name", slot.name},
          {"offset", slot.offset},
          {"bytes", slot.bytes},
          {"first", slot.first},
          {"last", slot.last}};
}

Json Write(const Plan& plan) {
  return {{"name", plan.name},
          {"rows_max", plan.rows_max},
          {"row_block", plan.row_block},
          {"partial_slots", plan.partial_slots},
          {"arena_bytes", plan.arena_bytes},
          {"slots", WriteAll(plan.slots)},
          {"launches", WriteAll(plan.launches)}};
}

Json Write(const KernelDecl& kernel) {
  return {{"symbol", kernel.symbol},      {"scratch_bytes", kernel.scratch_bytes},
          {"buffers", kernel.buffers},    {"scalars", kernel.scalars},
          {"ir_ops", kernel.ir_ops},      {"code_bytes", kernel.code_bytes},
          {"compile_s", kernel.compile_s}};
}

Json Write(const WeightDecl& weight) {
  return {{"name", weight.name},           {"prep", kPrepNames[static_cast<int>(weight.prep)]},
          {"layout", Name(weight.layout)}, {"k", weight.k},
          {"runs", WriteAll(weight.runs)}, {"bytes", weight.bytes},
          {"offset", weight.offset},       {"segment", weight.segment}};
}

Json Write(const BufferDecl& buffer) {
  return {{"name", buffer.name}, {"dtype", Info(buffer.dtype).name}};
}

Json Write(const StateDecl& state) {
  return {
      {"name", state.name}, {"page_bytes", state.page_bytes}, {"page_tokens", state.page_tokens}};
}

Json Write(const RopeDecl& rope) {
  return {{"input", rope.input},
          {"half", rope.half},
          {"dim", rope.dim},
          {"scale", rope.scale},
          {"freqs", rope.freqs}};
}

Json Write(const Decision& decision) {
  return {{"rule", decision.rule},
          {"applied", decision.applied},
          {"reason", decision.reason},
          {"trust", decision.trust},
          {"sources", WriteAll(decision.sources)}};
}

template <size_t count>
int IndexOf(const std::string_view (&names)[count], std::string_view name) {
  for (size_t i = 0; i < count; ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  return -1;
}

// Reads elements of fields.Array(key) with read(element, path, status) -> Item.
template <typename Read>
auto ReadArray(JsonFields& fields, const char* key, size_t count_max, absl::Status* status,
               Read read) {
  using Item = std::invoke_result_t<Read, const Json&, std::string, absl::Status*>;
  std::vector<Item> items;
  const Json& array = fields.Array(key, count_max);
  items.reserve(array.size());
  for (size_t i = 0; i < array.size() && status->ok(); ++i) {
    items.push_back(read(
        array[i], absl::StrCat(fields.path(), fields.path().empty() ? "" : ".", key, "[", i, "]"),
        status));
  }
  return items;
}

void FailAt(const std::string& path, std::string_view what, absl::Status* status) {
  static const Json object = Json::object();
  JsonFields(object, path, status).Fail("", what);
}

std::string ReadText(const Json& json, std::string path, absl::Status* status) {
  if (json.is_string() && json.get_ref<const std::string&>().size() <= kTextMax) {
    return json.get<std::string>();
  }
  FailAt(path, "is not a text of at most 4096 bytes", status);
  return "";
}

Expr ReadExpr(const Json& json, std::string path, absl::Status* status) {
  Expr expr;
  if (ReadInt(json, kIntMin, kIntMax, &expr.constant)) return expr;
  int64_t scalar;
  if (json.is_array() && json.size() == 4 &&
      ReadInt(json[0], -1, static_cast<int64_t>(kArgumentsMax), &scalar) &&
      ReadInt(json[1], kIntMin, kIntMax, &expr.constant) &&
      ReadInt(json[2], kIntMin, kIntMax, &expr.multiply) &&
      ReadInt(json[3], kIntMin, kIntMax, &expr.divide)) {
    expr.scalar = static_cast<int>(scalar);
    return expr;
  }
  FailAt(path, "is not a number or [scalar, constant, multiply, divide]", status);
  return expr;
}

Arg ReadArg(const Json& json, std::string path, absl::Status* status) {
  int64_t index = 0;
  Arg arg;
  if (json.is_array() && json.size() == 3 && json[0].is_string() &&
      ReadInt(json[1], 0, std::numeric_limits<int32_t>::max(), &index) &&
      ReadInt(json[2], 0, kIntMax, &arg.offset)) {
    const int region = IndexOf(kRegionNames, json[0].get_ref<const std::string&>());
    if (region >= 0) {
      arg.region = static_cast<Region>(region);
      arg.index = static_cast<int32_t>(index);
      return arg;
    }
  }
  FailAt(path, "is not [region, index, offset]", status);
  return arg;
}

RowRun ReadRun(const Json& json, std::string path, absl::Status* status) {
  RowRun run;
  if (json.is_array() && json.size() == 3 && ReadInt(json[1], 0, kIntMax, &run.row) &&
      ReadInt(json[2], 0, kIntMax, &run.rows)) {
    run.tensor = ReadText(json[0], path, status);
    return run;
  }
  FailAt(path, "is not [tensor, row, rows]", status);
  return run;
}

Launch ReadLaunch(const Json& json, std::string path, absl::Status* status) {
  JsonFields fields(json, path, status);
  Launch launch;
  launch.kernel = fields.Int32("kernel", 0);
  if (const Json* grid = fields.Value("grid")) launch.grid = ReadExpr(*grid, path, status);
  launch.buffers = ReadArray(fields, "buffers", kArgumentsMax, status, ReadArg);
  launch.scalars = ReadArray(fields, "scalars", kArgumentsMax, status, ReadExpr);
  launch.segment = fields.Int32("segment", -1);
  launch.decision = fields.Int32("decision", -1);
  launch.label = fields.Text("label", kTextMax);
  fields.Done();
  return launch;
}

Slot ReadSlot(const Json& json, std::string path, absl::Status* status) {
  JsonFields fields(json, std::move(path), status);
  Slot slot;
  slot.name = fields.Text("name", kTextMax);
  slot.offset = fields.Int("offset", 0, kIntMax);
  slot.bytes = fields.Int("bytes", 0, kIntMax);
  slot.first = fields.Int32("first", 0);
  slot.last = fields.Int32("last", 0);
  fields.Done();
  return slot;
}

Plan ReadPlan(const Json& json, std::string path, absl::Status* status) {
  JsonFields fields(json, std::move(path), status);
  Plan plan;
  plan.name = fields.Text("name", kTextMax);
  plan.rows_max = fields.Int("rows_max", 0, kIntMax);
  plan.row_block = fields.Int32("row_block", 1, 64);
  plan.partial_slots = fields.Int32("partial_slots", 0, 1 << 20);
  plan.arena_bytes = fields.Int("arena_bytes", 0, kIntMax);
  plan.slots = ReadArray(fields, "slots", kItemsMax, status, ReadSlot);
  plan.launches = ReadArray(fields, "launches", kItemsMax, status, ReadLaunch);
  fields.Done();
  return plan;
}

KernelDecl ReadKernel(const Json& json, std::string path, absl::Status* status) {
  JsonFields fields(json, std::move(path), status);
  KernelDecl kernel;
  kernel.symbol = fields.Text("symbol", kTextMax);
  kernel.scratch_bytes = fields.Int("scratch_bytes", 0, kIntMax);
  kernel.buffers = fields.Int32("buffers", 0);
  kernel.scalars = fields.Int32("scalars", 0);
  kernel.ir_ops = fields.Int32("ir_ops", 0);
  kernel.code_bytes = fields.Int("code_bytes", 0, kIntMax);
  kernel.compile_s = fields.Number("compile_s");
  fields.Done();
  return kernel;
}

WeightDecl ReadWeight(const Json& json, std::string path, absl::Status* status) {
  JsonFields fields(json, std::move(path), status);
  WeightDecl weight;
  weight.name = fields.Text("name", kTextMax);
  const int prep = IndexOf(kPrepNames, fields.Text("prep", kTextMax));
  if (prep < 0) fields.Fail("prep", "is not 'strips' or 'floats'");
  weight.prep = static_cast<Prep>(prep < 0 ? 0 : prep);
  const std::string layout_name = fields.Text("layout", kTextMax);
  bool known = false;
  for (const WeightLayout layout : kLayouts) {
    if (Name(layout) != layout_name) continue;
    weight.layout = layout;
    known = true;
  }
  if (!known) fields.Fail("layout", "is not a weight layout");
  weight.k = fields.Int("k", 0, kIntMax);
  weight.runs = ReadArray(fields, "runs", kItemsMax, status, ReadRun);
  weight.bytes = fields.Int("bytes", 0, kIntMax);
  weight.offset = fields.Int("offset", 0, kIntMax);
  weight.segment = fields.Int32("segment", 0);
  fields.Done();
  return weight;
}

BufferDecl ReadBuffer(const Json& json, std::string path, absl::Status* status) {
  JsonFields fields(json, std::move(path), status);
  BufferDecl buffer;
  buffer.name = fields.Text("name", kTextMax);
  const std::optional<DType> dtype = ParseDType(fields.Text("dtype", kTextMax));
  if (!dtype) fields.Fail("dtype", "is not an element type");
  buffer.dtype = dtype.value_or(DType::kF32);
  fields.Done();
  return buffer;
}

StateDecl ReadState(const Json& json, std::string path, absl::Status* status) {
  JsonFields fields(json, std::move(path), status);
  StateDecl state;
  state.name = fields.Text("name", kTextMax);
  state.page_bytes = fields.Int("page_bytes", 0, kIntMax);
  state.page_tokens = fields.Int32("page_tokens", 0);
  fields.Done();
  return state;
}

Decision ReadDecision(const Json& json, std::string path, absl::Status* status) {
  JsonFields fields(json, std::move(path), status);
  Decision decision;
  decision.rule = fields.Text("rule", kTextMax);
  decision.applied = fields.Bool("applied");
  decision.reason = fields.Text("reason", kTextMax);
  decision.trust = fields.Number("trust");
  decision.sources = ReadArray(fields, "sources", kItemsMax, status, ReadText);
  fields.Done();
  return decision;
}

RopeDecl ReadRope(const Json& json, std::string path, absl::Status* status) {
  JsonFields fields(json, std::move(path), status);
  RopeDecl rope;
  rope.input = fields.Text("input", kTextMax);
  rope.half = fields.Bool("half");
  rope.dim = fields.Int32("dim", 0, kRopeDimMax);
  rope.scale = fields.Number("scale");
  for (const Json& f : fields.Array("freqs", kRopeDimMax)) {
    if (f.is_number()) {
      rope.freqs.push_back(f.get<double>());
    } else {
      fields.Fail("freqs", "holds something that is not a number");
    }
  }
  if (static_cast<int64_t>(rope.freqs.size()) * 2 != rope.dim)
    fields.Fail("freqs", "is not half of dim long");
  fields.Done();
  return rope;
}

}  // namespace

Json ToJson(const Program& program) {
  return {{"format", program.format},
          {"key", program.key},
          {"target", program.target},
          {"header", WriteAll(program.header)},
          {"inputs", WriteAll(program.inputs)},
          {"outputs", WriteAll(program.outputs)},
          {"states", WriteAll(program.states)},
          {"weights", WriteAll(program.weights)},
          {"weights_bytes", program.weights_bytes},
          {"segments", program.segments},
          {"kernels", WriteAll(program.kernels)},
          {"plans", WriteAll(program.plans)},
          {"decisions", WriteAll(program.decisions)},
          {"ropes", WriteAll(program.ropes)}};
}

absl::StatusOr<Program> FromJson(const Json& json) {
  absl::Status status;
  JsonFields fields(json, "", &status);
  Program program;
  program.format = fields.Int32("format");
  program.key = fields.Text("key", kTextMax);
  program.target = fields.Text("target", kTextMax);
  program.header = ReadArray(fields, "header", kArgumentsMax, &status, ReadText);
  program.inputs = ReadArray(fields, "inputs", kArgumentsMax, &status, ReadBuffer);
  program.outputs = ReadArray(fields, "outputs", kArgumentsMax, &status, ReadBuffer);
  program.states = ReadArray(fields, "states", kItemsMax, &status, ReadState);
  program.weights = ReadArray(fields, "weights", kItemsMax, &status, ReadWeight);
  program.weights_bytes = fields.Int("weights_bytes", 0, kIntMax);
  program.segments = fields.Int32("segments", 0);
  program.kernels = ReadArray(fields, "kernels", kKernelsMax, &status, ReadKernel);
  program.plans = ReadArray(fields, "plans", kPlansMax, &status, ReadPlan);
  program.decisions = ReadArray(fields, "decisions", kItemsMax, &status, ReadDecision);
  program.ropes = ReadArray(fields, "ropes", kArgumentsMax, &status, ReadRope);
  fields.Done();
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(Validate(program));
  return program;
}

}  // namespace cuvil::runtime
