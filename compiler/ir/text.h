// The text form of CU-IR graphs. Deterministic, and it round-trips: Print(*Parse(Print(g))) equals
// Print(g). The grammar (`//` starts a comment; order of the four sections is fixed):
//
//   graph @name(S{1..512, prefer 1, 8, 64}, T{1..4096}) {
//     input %x : f32[S, 64]                       named values: bare identifiers or %"any name"
//     input %kv0 : kv<heads 3, dim 64, f32>
//     input %step : step
//     weight %"blk.0.q.weight" : q4_0[96, 64]
//     constant %c0 : f32[2] = [1, 2.5]            numbers, or raw bytes as x"0000c07f..."
//     %0 = matmul %x, %"blk.0.q.weight" {transpose_b = true} : f32[S, 96] loc("blk.0.q.weight")
//     %1.hint = reshape %0 {shape = dims[2*S, 48]} : f32[2*S, 48]
//     %2, %3 = quantise_dynamic %1 {group = 16} : i8[2*S, 48], f32[2*S, 3]
//     output "q" %2
//   }
//
// Attribute values: 3, 0.5, true, "text", f16, [1, 2], floats[1.0, 2.0], dims[S, 4]. An extent is a
// sum of products: `S`, `64`, `2*S*T - 3`.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "compiler/ir/graph.h"

namespace cuvil::ir {

// Prints any graph, even one Verify refuses (bad ids show as %?7).
std::string Print(const Graph& graph);

// What the compile cache hashes: as Print, without the graph's name, locations, name hints and the
// names of constants. Equal texts mean equal programs; it is not meant to be parsed.
std::string PrintCanonical(const Graph& graph);

// A parsed and verified graph. Errors: InvalidArgument with line and column.
absl::StatusOr<Graph> Parse(std::string_view text);

// As Parse, without Verify: for tests of the verifier and for looking at broken graphs.
absl::StatusOr<Graph> ParseUnverified(std::string_view text);

// More text than any model of ours prints by two orders of magnitude.
inline constexpr size_t kTextBytesMax = size_t{64} << 20;

}  // namespace cuvil::ir
