#include "compiler/lower/packed.h"

namespace cuvil::lower {

using kernel::OpCode;
using kernel::Scalar;
using kernel::Type;
using kernel::Value;

bool CanDecode(DType dtype) {
  return dtype == DType::kQ4_0 || dtype == DType::kQ4_1 || dtype == DType::kQ8_0;
}

Value DecodePacked(kernel::Builder& b, DType dtype, kernel::Buf buf, Value element) {
  CUVIL_CHECK(CanDecode(dtype), Info(dtype).name);
  const Type wide = b.type(element);
  const uint16_t n = wide.lanes;
  const int bytes = Info(dtype).bytes;
  Value block = b.Shr(element, 5);  // 32 elements each
  Value in_block = b.And(element, b.Int(31, wide));
  Value zero = b.Int(0);
  const auto half = [&](int64_t at) {
    Value index = b.MulImm(block, bytes / 2);
    return b.Cvt(b.Gather({Scalar::kF16, n}, buf, zero, index, at), Scalar::kF32);
  };
  Value d = half(0);
  Value start = b.MulImm(block, bytes);
  if (dtype == DType::kQ8_0) {
    Value q = b.Gather({Scalar::kS8, n}, buf, zero, b.Add(start, in_block), 2);
    return b.Mul(d, b.Cvt(b.Cvt(q, Scalar::kS32), Scalar::kF32));
  }
  const bool has_min = dtype == DType::kQ4_1;
  Value at = b.Add(start, b.And(in_block, b.Int(15, wide)));
  Value byte = b.Cvt(b.Gather({Scalar::kU8, n}, buf, zero, at, has_min ? 4 : 2), Scalar::kS32);
  Value high = b.Cmp(OpCode::kCmpLe, b.Int(16, wide), in_block);
  Value q = b.Select(high, b.Shr(byte, 4), b.And(byte, b.Int(15, b.type(byte))));
  if (!has_min) q = b.Sub(q, b.Int(8, b.type(q)));
  Value x = b.Mul(d, b.Cvt(q, Scalar::kF32));
  return has_min ? b.Add(x, half(2)) : x;
}

}  // namespace cuvil::lower
