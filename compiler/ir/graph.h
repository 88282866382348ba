// CU-IR, graph level: SSA nodes over typed values, addressed by 32-bit ids that stay valid for the
// graph's life. A Graph is a plain copyable value with one owner at a time (no locks).
//
//   symbols ── dims of types          inputs  (named: tensors, KV state, the step header)
//   body: nodes in execution order    weights (named, typed; payload lives outside the graph)
//   outputs: named values             constants (named, payload inline, at most 4 KiB)
//
// Invariants, checked by Verify (verify.h) and not by the mutators here: every use is defined
// earlier, types equal what the op's shape rule infers, names are unique, state is used linearly.
// Erasing a node only takes it out of the body; its slot and its values' slots remain.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/attr.h"
#include "compiler/ir/ops.h"
#include "compiler/ir/type.h"

namespace cuvil::ir {

struct NodeId {
  int32_t value = -1;
  bool valid() const { return value >= 0; }
  friend auto operator<=>(NodeId, NodeId) = default;
};

struct ValueId {
  int32_t value = -1;
  bool valid() const { return value >= 0; }
  friend auto operator<=>(ValueId, ValueId) = default;
};

// An interned set of source locations; 0 is the empty set (unknown).
struct LocId {
  int32_t value = 0;
  friend auto operator<=>(LocId, LocId) = default;
};

// Larger tensors are weights: bound at load time and never part of the program's key.
inline constexpr int64_t kConstantBytesMax = 4096;

// Nested code of a control-flow node. No op has regions yet; Verify refuses them.
struct Region {
  std::vector<ValueId> parameters;
  std::vector<NodeId> body;
  std::vector<ValueId> results;
};

struct Node {
  OpKind op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
  LocId loc;
  std::vector<Region> regions;
};

enum class Origin : uint8_t { kNode, kInput, kWeight, kConstant };

struct Value {
  Type type;
  Origin origin;
  NodeId node;        // defining node when origin is kNode
  int32_t index = 0;  // position among the node's outputs, or in inputs()/weights()/constants()
  std::string name;   // unique for inputs, weights and constants; only a hint for node outputs
};

struct Output {
  std::string name;
  ValueId value;
};

struct Constant {
  ValueId value;
  std::vector<uint8_t> bytes;  // row-major, little-endian
};

class Graph {
 public:
  explicit Graph(std::string name = "main") : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  // ---- Construction: appends, without inference or checks ----
  SymbolId AddSymbol(Symbol symbol);
  ValueId AddInput(std::string name, Type type);
  ValueId AddWeight(std::string name, TensorType type);
  ValueId AddConstant(std::string name, TensorType type, std::vector<uint8_t> bytes);
  void AddOutput(std::string name, ValueId value);
  // Appends to the body. `hint` names the first output.
  NodeId AddNode(OpKind op, std::vector<ValueId> inputs, Attrs attrs, std::vector<Type> outputs,
                 LocId loc = {}, std::string hint = "");
  // As AddNode, but leaves the node out of the body; the caller places it (rewrite.h).
  NodeId NewNode(OpKind op, std::vector<ValueId> inputs, Attrs attrs, std::vector<Type> outputs,
                 LocId loc = {}, std::string hint = "");

  // ---- Reading. REQUIRES: a valid id of this graph ----
  bool Contains(NodeId id) const { return id.value >= 0 && id.value < node_count(); }
  bool Contains(ValueId id) const { return id.value >= 0 && id.value < value_count(); }
  bool Contains(LocId id) const { return id.value >= 0 && id.value < loc_count(); }
  const Node& node(NodeId id) const;
  Node& node(NodeId id);
  const Value& value(ValueId id) const;
  Value& value(ValueId id);
  const Type& type(ValueId id) const { return value(id).type; }
  // REQUIRES: the value is a tensor.
  const TensorType& tensor_type(ValueId id) const;
  // The node that defines the value, or nullptr for inputs, weights and constants.
  const Node* DefiningNode(ValueId id) const;
  // Payload of a constant, or nullptr.
  const Constant* FindConstant(ValueId id) const;
  // The input, weight or constant of that name; invalid when there is none.
  ValueId FindNamed(std::string_view name) const;
  SymbolId FindSymbol(std::string_view name) const;

  int32_t node_count() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t value_count() const { return static_cast<int32_t>(values_.size()); }
  int32_t loc_count() const { return static_cast<int32_t>(locs_.size()); }

  absl::Span<const Symbol> symbols() const { return symbols_; }
  absl::Span<const ValueId> inputs() const { return inputs_; }
  absl::Span<const ValueId> weights() const { return weights_; }
  absl::Span<const Constant> constants() const { return constants_; }
  absl::Span<const Output> outputs() const { return outputs_; }
  absl::Span<const NodeId> body() const { return body_; }

  // ---- For rewrites: keep the invariants above, or Verify will complain ----
  std::vector<NodeId>& mutable_body() { return body_; }
  std::vector<Output>& mutable_outputs() { return outputs_; }
  // Keeps only the constants and weights for which `keep[value]` holds, in order.
  void KeepNamed(const std::vector<bool>& keep);

  // ---- Locations ----
  // Interns a set of source texts such as "blk.3.attn_q.weight" or "model.py:12".
  LocId Loc(std::string_view source) { return Loc(std::vector<std::string>{std::string(source)}); }
  LocId Loc(std::vector<std::string> sources);
  LocId UnionLoc(LocId a, LocId b);
  // Sorted, without duplicates.
  absl::Span<const std::string> sources(LocId id) const;

 private:
  ValueId AddNamed(Origin origin, std::string name, Type type, size_t index);

  std::string name_;
  std::vector<Symbol> symbols_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> weights_;
  std::vector<Constant> constants_;
  std::vector<Output> outputs_;
  std::vector<NodeId> body_;
  std::vector<std::vector<std::string>> locs_ = {{}};
  std::map<std::vector<std::string>, LocId> loc_ids_;  // inverse of locs_, without the empty set
};

}  // namespace cuvil::ir
