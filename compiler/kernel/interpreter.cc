#include "compiler/kernel/interpreter.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <utility>

#include "compiler/kernel/interp_machine.h"
#include "compiler/kernel/text.h"
#include "compiler/kernel/verify.h"

namespace cuvil::kernel {
namespace interp {

bool Machine::Fail(const Step& step, const std::string& why) {
  error = absl::StrCat("kernel '", kernel->name, "' op ", step.op, " (", PrintOp(*kernel, step.op),
                       ") tile ", tile, ": ", why);
  return false;
}

namespace {

bool RunBlock(const Code& code, Machine& m) {
  m.steps_left -= static_cast<int64_t>(code.steps.size()) + 1;
  for (const Step& s : code.steps) {
    if (!s.exec(s, m)) return false;
  }
  return true;
}

void Copy(Machine& m, uint32_t to, uint32_t from, uint32_t bytes) {
  std::memcpy(m.at<uint8_t>(to), m.at<uint8_t>(from), bytes);
}

bool For(const Step& s, Machine& m) {
  const Code& body = m.blocks[s.body];
  int64_t i = *m.at<int64_t>(s.in[0]);
  const int64_t end = *m.at<int64_t>(s.in[1]);
  for (const Carry& c : body.carries) Copy(m, c.param, c.init, c.bytes);
  while (i < end) {
    if (m.steps_left < 0) return m.Fail(s, "ran more steps than Launch::steps_max");
    *m.at<int64_t>(body.iv) = i;
    if (!RunBlock(body, m)) return false;
    // In two moves: a yield may be another carried value's parameter.
    uint8_t* moving = m.moving.data();
    for (const Carry& c : body.carries) {
      std::memcpy(moving, m.at<uint8_t>(c.yield), c.bytes);
      moving += c.bytes;
    }
    moving = m.moving.data();
    for (const Carry& c : body.carries) {
      std::memcpy(m.at<uint8_t>(c.param), moving, c.bytes);
      moving += c.bytes;
    }
    if (__builtin_add_overflow(i, s.imm, &i)) break;  // past any end
  }
  for (const Carry& c : body.carries) Copy(m, c.out, c.param, c.bytes);
  return true;
}

bool If(const Step& s, Machine& m) {
  return *m.at<uint8_t>(s.in[0]) == 0 || RunBlock(m.blocks[s.body], m);
}

bool Once(const Step& s, Machine& m) { return !m.first || RunBlock(m.blocks[s.body], m); }

bool Tile(const Step& s, Machine& m) {
  *m.at<int64_t>(s.out) = m.tile;
  return true;
}

// Decodes a verified kernel: places values in the arena and ops into steps. Constants, iotas and
// launch scalars are written once, here.
class Decoder {
 public:
  Decoder(const Kernel& k, const Launch& launch, Machine* m) : k_(k), launch_(launch), m_(*m) {}

  void Run() {
    uint32_t size = 0;
    for (const Type t : k_.types) {
      offset_.push_back(size);
      size += (static_cast<uint32_t>(Bytes(t)) + 7) / 8 * 8;  // 512 MiB at most: kValuesMax * 512
    }
    m_.values.resize(size);
    m_.blocks.resize(k_.blocks.size());
    size_t moving = 0;
    for (size_t b = 0; b < k_.blocks.size(); ++b) {
      for (const int i : k_.blocks[b].ops) DecodeOp(i, &m_.blocks[b]);
    }
    for (const Op& op : k_.ops) {
      if (op.code == OpCode::kFor) moving = std::max(moving, DecodeCarries(op));
    }
    m_.moving.resize(moving);
  }

 private:
  static int Bytes(Type t) { return LaneBytes(t.scalar) * t.lanes; }
  uint32_t At(Value v) const { return offset_[v.id]; }

  void DecodeOp(int index, Code* code) {
    const Op& op = k_.ops[index];
    if (WriteOnce(op)) return;
    Step s{.op = index, .lanes = op.type.lanes, .lane_bytes = LaneBytes(op.type.scalar)};
    if (!op.out.empty()) s.out = At(op.out[0]);
    for (size_t i = 0; i < op.in.size() && i < 3; ++i) s.in[i] = At(op.in[i]);
    if (!op.in.empty()) s.in_lanes = k_.type(op.in[0]).lanes;
    s.imm = op.imm;
    s.table = op.table.data();
    s.body = op.block;
    if (UsesMemory(op.code)) {
      s.region = op.buf.index == kScratch ? static_cast<uint32_t>(k_.buffers.size()) : op.buf.index;
      s.exec = MemoryExecOf(op, k_.type(op.in.back()));
    } else if (op.code == OpCode::kFor) {
      s.exec = &For;
    } else if (op.code == OpCode::kIf) {
      s.exec = &If;
    } else if (op.code == OpCode::kOnce) {
      s.exec = &Once;
    } else if (op.code == OpCode::kTile) {
      s.exec = &Tile;
    } else {
      s.exec = LaneExecOf(op, k_.type(op.in[0]));
      if (s.exec == nullptr) s.exec = ArithmeticExecOf(op, k_.type(op.in[0]));
    }
    CUVIL_CHECK(s.exec != nullptr, absl::StrCat("no meaning for ", Sv(OpName(op.code))));
    code->steps.push_back(s);
  }

  // Values that do not change during a launch.
  bool WriteOnce(const Op& op) {
    if (op.code == OpCode::kConst) {
      WriteConst(op, m_.at<uint8_t>(At(op.out[0])));
    } else if (op.code == OpCode::kScalarArg) {
      *m_.at<int64_t>(At(op.out[0])) = launch_.scalars[op.imm];
    } else if (op.code == OpCode::kIota) {
      const int bytes = ScalarBytes(op.type.scalar);
      for (int64_t i = 0; i < op.type.lanes; ++i) {
        std::memcpy(m_.at<uint8_t>(At(op.out[0]) + i * bytes), &i, bytes);
      }
    } else {
      return false;
    }
    return true;
  }

  size_t DecodeCarries(const Op& op) {
    const Block& body = k_.blocks[op.block];
    Code& code = m_.blocks[op.block];
    code.iv = At(body.params[0]);
    size_t total = 0;
    for (size_t i = 0; i < op.out.size(); ++i) {
      const uint32_t bytes = Bytes(k_.type(op.out[i]));
      code.carries.push_back(
          {At(op.in[i + 2]), At(body.params[i + 1]), At(body.yields[i]), At(op.out[i]), bytes});
      total += bytes;
    }
    return total;
  }

  const Kernel& k_;
  const Launch& launch_;
  Machine& m_;
  std::vector<uint32_t> offset_;
};

absl::Status CheckLaunch(const Kernel& k, const Launch& launch) {
  const auto fail = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("launch of kernel '", k.name, "': ", why));
  };
  if (launch.buffers.size() != k.buffers.size()) {
    return fail(absl::StrCat(launch.buffers.size(), " buffers for ", k.buffers.size()));
  }
  if (launch.scalars.size() != k.scalars.size()) {
    return fail(absl::StrCat(launch.scalars.size(), " scalars for ", k.scalars.size()));
  }
  if (launch.tiles < 0 || launch.tiles > kTilesMax)
    return fail(absl::StrCat(launch.tiles, " tiles"));
  if (launch.workers < 1 || launch.workers > 1024) {
    return fail(absl::StrCat(launch.workers, " workers; give 1 to 1024"));
  }
  const std::less<const uint8_t*> before;
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    const absl::Span<uint8_t> a = launch.buffers[i];
    for (size_t j = 0; j < k.buffers.size(); ++j) {
      const absl::Span<uint8_t> b = launch.buffers[j];
      if (i == j || a.empty() || b.empty() || !k.buffers[i].written) continue;
      if (before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size())) {
        return fail(absl::StrCat("written buffer '", k.buffers[i].name, "' overlaps '",
                                 k.buffers[j].name, "'"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace interp

absl::Status Run(const Kernel& kernel, const Launch& launch) {
  RETURN_IF_ERROR(Verify(kernel));
  RETURN_IF_ERROR(interp::CheckLaunch(kernel, launch));
  interp::Machine m;
  m.kernel = &kernel;
  m.steps_left = launch.steps_max;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    interp::Region r{launch.buffers[i].data(), static_cast<int64_t>(launch.buffers[i].size())};
    if (kernel.buffers[i].written) {
      r.writer.resize(r.size);
      r.reader.resize(r.size);
    }
    m.regions.push_back(std::move(r));
  }
  m.regions.push_back({nullptr, kernel.scratch_bytes});
  interp::Decoder(kernel, launch, &m).Run();

  struct Worker {
    std::vector<uint8_t> scratch;
    bool used = false;
  };
  std::vector<Worker> workers(launch.workers);
  std::mt19937_64 random(launch.seed);
  std::vector<uint32_t> order(launch.tiles);
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<uint32_t>(i);
    std::swap(order[i], order[random() % (i + 1)]);
  }
  for (const uint32_t tile : order) {
    Worker& w = workers[random() % workers.size()];
    if (!w.used) w.scratch.assign(kernel.scratch_bytes, launch.seed % 2 == 0 ? 0xff : 0xa5);
    m.regions.back().data = w.scratch.data();
    m.first = !std::exchange(w.used, true);
    m.tile = tile;
    if (m.steps_left < 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("kernel '", kernel.name, "' ran more than ", launch.steps_max, " steps"));
    }
    if (!interp::RunBlock(m.blocks[0], m)) return absl::FailedPreconditionError(m.error);
  }
  return absl::OkStatus();
}

}  // namespace cuvil::kernel
