// Memory ops: bounds on every access, and the race check on written buffers.
#include <cstring>

#include "compiler/kernel/interp_machine.h"

namespace cuvil::kernel::interp {
namespace {

std::string NameOf(const Step& s, const Machine& m) {
  const std::vector<BufferArg>& buffers = m.kernel->buffers;
  return s.region < buffers.size() ? absl::StrCat("buffer '", buffers[s.region].name, "'")
                                   : "scratch";
}

bool Race(const Step& s, Machine& m, const char* verb, int64_t at, uint32_t other,
          const char* did) {
  const std::string who = other == kMany ? "several tiles" : absl::StrCat("tile ", other - 1);
  return m.Fail(s, absl::StrCat(verb, " byte ", at, " of ", NameOf(s, m), ", which ", who, " ", did,
                                " in the same launch"));
}

bool NoteRead(const Step& s, Machine& m, Region& r, int64_t at, int64_t size) {
  const uint32_t self = m.tile + 1;
  for (int64_t i = at; i < at + size; ++i) {
    if (r.writer[i] != 0 && r.writer[i] != self)
      return Race(s, m, "reads", i, r.writer[i], "wrote");
    r.reader[i] = r.reader[i] == 0 || r.reader[i] == self ? self : kMany;
  }
  return true;
}

bool NoteWrite(const Step& s, Machine& m, Region& r, int64_t at, int64_t size) {
  const uint32_t self = m.tile + 1;
  for (int64_t i = at; i < at + size; ++i) {
    if (r.writer[i] != 0 && r.writer[i] != self)
      return Race(s, m, "writes", i, r.writer[i], "wrote");
    if (r.reader[i] != 0 && r.reader[i] != self)
      return Race(s, m, "writes", i, r.reader[i], "read");
    r.writer[i] = self;
  }
  return true;
}

// The bytes [offset + index * size + imm, + size), or null with the error set. `index` is at most
// 64 bits and size at most 512, so the sum fits 128 bits.
uint8_t* Access(const Step& s, Machine& m, int64_t offset, int64_t index, int64_t size,
                bool write) {
  Region& r = m.regions[s.region];
  const __int128 at = static_cast<__int128>(offset) + s.imm + static_cast<__int128>(index) * size;
  if (at < 0 || at + size > r.size) {
    m.Fail(s, absl::StrCat(write ? "writes " : "reads ", size, " bytes at offset ", offset, " + ",
                           s.imm, index != 0 ? absl::StrCat(" + ", index, " * ", size) : "", " of ",
                           NameOf(s, m), ", which has ", r.size, " bytes"));
    return nullptr;
  }
  const int64_t begin = static_cast<int64_t>(at);
  if (!r.writer.empty() &&
      !(write ? NoteWrite(s, m, r, begin, size) : NoteRead(s, m, r, begin, size))) {
    return nullptr;
  }
  return r.data + begin;
}

bool Load(const Step& s, Machine& m) {
  const int bytes = s.lanes * s.lane_bytes;
  const uint8_t* from = Access(s, m, *m.at<int64_t>(s.in[0]), 0, bytes, false);
  if (from == nullptr) return false;
  std::memcpy(m.at<uint8_t>(s.out), from, bytes);
  return true;
}

bool Store(const Step& s, Machine& m) {
  const int bytes = s.lanes * s.lane_bytes;
  uint8_t* to = Access(s, m, *m.at<int64_t>(s.in[1]), 0, bytes, true);
  if (to == nullptr) return false;
  std::memcpy(to, m.at<uint8_t>(s.in[0]), bytes);
  return true;
}

template <typename Index>
bool Gather(const Step& s, Machine& m) {
  const int64_t offset = *m.at<int64_t>(s.in[0]);
  for (int i = 0; i < s.lanes; ++i) {
    const int64_t index = static_cast<int64_t>(m.at<Index>(s.in[1])[i]);
    const uint8_t* from = Access(s, m, offset, index, s.lane_bytes, false);
    if (from == nullptr) return false;
    std::memcpy(m.at<uint8_t>(s.out + i * s.lane_bytes), from, s.lane_bytes);
  }
  return true;
}

bool Prefetch(const Step&, Machine&) { return true; }

}  // namespace

Exec MemoryExecOf(const Op& op, Type index) {
  if (op.code == OpCode::kLoad) return &Load;
  if (op.code == OpCode::kStore) return &Store;
  if (op.code == OpCode::kPrefetch) return &Prefetch;
  switch (index.scalar) {
    case Scalar::kS8:
      return &Gather<int8_t>;
    case Scalar::kU8:
      return &Gather<uint8_t>;
    case Scalar::kS16:
      return &Gather<int16_t>;
    case Scalar::kU16:
      return &Gather<uint16_t>;
    case Scalar::kS32:
      return &Gather<int32_t>;
    case Scalar::kU32:
      return &Gather<uint32_t>;
    default:
      return &Gather<int64_t>;
  }
}

}  // namespace cuvil::kernel::interp
