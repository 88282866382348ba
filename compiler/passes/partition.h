// Partition: cuts the graph of a transformer step into groups, each of which one kernel template
// serves. It matches data flow, not architecture names: whatever an importer builds from norms,
// linears, rope, paged attention, gated activations and residual adds is recognised. Every group
// carries the union of its nodes' locations and the reason it was formed; a node that no group
// takes is an error naming the op and its location, never a silent fallback. Pure, any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/ir/graph.h"

namespace cuvil::passes {

enum class GroupKind : uint8_t {
  kEmbed,      // output = weights[0][ids] * scale
  kHeads,      // q, k, v from norm(input); rotated; k and v appended to the state
  kAttention,  // softmax(q k) v
  kLinear,     // output = input W^T + b; residual: added to `residual`
  kNormAdd,    // output = residual + norm(input)
  kGated,      // output = act(norm(input) Wg^T) * (norm(input) Wu^T)
  kLogits,     // output = cap(norm(input[rows]) W^T)
};

struct Rope {
  bool half = false;          // pairs (i, i + dim/2) instead of (2i, 2i+1)
  int64_t dim = 0;            // elements of a head that rotate; 0: none
  std::vector<double> freqs;  // dim / 2, radians per position
  double scale = 1;           // of cosines and sines
  bool operator==(const Rope&) const = default;
};

struct Group {
  GroupKind kind;
  int layer = -1;  // kHeads, kAttention: which state
  ir::ValueId input, residual, output;
  ir::ValueId norm;  // weight of the norm before the linear; invalid: none
  double norm_eps = 0;
  std::vector<ir::ValueId> weights, biases;  // q, k, v | gate, up | one; a bias may be invalid
  ir::ValueId q_norm, k_norm;
  double qk_norm_eps = 0;
  Rope rope;
  double scale = 1;  // kEmbed: of rows; kAttention and kHeads: of scores
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0, sinks = 0;
  bool gelu = false;   // kGated: gelu_tanh instead of silu
  double softcap = 0;  // kLogits
  std::vector<ir::NodeId> nodes;
  std::vector<std::string> sources;  // locations of all nodes, in order, each once
  const char* rule = "";
};

// Groups in execution order; every node of the graph's body is in one. Unimplemented when a node is
// left over. REQUIRES: a verified graph.
absl::StatusOr<std::vector<Group>> Partition(const ir::Graph& graph);

}  // namespace cuvil::passes
