#include "compiler/ir/graph.h"

#include <algorithm>
#include <utility>

namespace cuvil::ir {

SymbolId Graph::AddSymbol(Symbol symbol) {
  symbols_.push_back(std::move(symbol));
  return SymbolId{static_cast<int32_t>(symbols_.size() - 1)};
}

ValueId Graph::AddNamed(Origin origin, std::string name, Type type, size_t index) {
  values_.push_back(Value{.type = std::move(type),
                          .origin = origin,
                          .node = {},
                          .index = static_cast<int32_t>(index),
                          .name = std::move(name)});
  return ValueId{value_count() - 1};
}

ValueId Graph::AddInput(std::string name, Type type) {
  inputs_.push_back(AddNamed(Origin::kInput, std::move(name), std::move(type), inputs_.size()));
  return inputs_.back();
}

ValueId Graph::AddWeight(std::string name, TensorType type) {
  weights_.push_back(AddNamed(Origin::kWeight, std::move(name), std::move(type), weights_.size()));
  return weights_.back();
}

ValueId Graph::AddConstant(std::string name, TensorType type, std::vector<uint8_t> bytes) {
  const ValueId id =
      AddNamed(Origin::kConstant, std::move(name), std::move(type), constants_.size());
  constants_.push_back(Constant{id, std::move(bytes)});
  return id;
}

void Graph::AddOutput(std::string name, ValueId value) {
  outputs_.push_back(Output{std::move(name), value});
}

NodeId Graph::NewNode(OpKind op, std::vector<ValueId> inputs, Attrs attrs,
                      std::vector<Type> outputs, LocId loc, std::string hint) {
  const NodeId id{node_count()};
  Node node{op, std::move(inputs), {}, std::move(attrs), loc, {}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    node.outputs.push_back(ValueId{value_count()});
    values_.push_back(Value{.type = std::move(outputs[i]),
                            .origin = Origin::kNode,
                            .node = id,
                            .index = static_cast<int32_t>(i),
                            .name = i == 0 ? std::move(hint) : std::string()});
  }
  nodes_.push_back(std::move(node));
  return id;
}

NodeId Graph::AddNode(OpKind op, std::vector<ValueId> inputs, Attrs attrs,
                      std::vector<Type> outputs, LocId loc, std::string hint) {
  const NodeId id =
      NewNode(op, std::move(inputs), std::move(attrs), std::move(outputs), loc, std::move(hint));
  body_.push_back(id);
  return id;
}

const Node& Graph::node(NodeId id) const {
  CUVIL_CHECK(Contains(id), absl::StrCat("node id ", id.value, " of ", node_count()));
  return nodes_[id.value];
}

Node& Graph::node(NodeId id) { return const_cast<Node&>(std::as_const(*this).node(id)); }

const Value& Graph::value(ValueId id) const {
  CUVIL_CHECK(Contains(id), absl::StrCat("value id ", id.value, " of ", value_count()));
  return values_[id.value];
}

Value& Graph::value(ValueId id) { return const_cast<Value&>(std::as_const(*this).value(id)); }

const TensorType& Graph::tensor_type(ValueId id) const {
  const TensorType* tensor = AsTensor(value(id).type);
  CUVIL_CHECK(tensor != nullptr, absl::StrCat("value ", id.value, " is not a tensor"));
  return *tensor;
}

const Node* Graph::DefiningNode(ValueId id) const {
  const Value& v = value(id);
  return v.origin == Origin::kNode ? &node(v.node) : nullptr;
}

const Constant* Graph::FindConstant(ValueId id) const {
  const Value& v = value(id);
  if (v.origin != Origin::kConstant || v.index >= static_cast<int32_t>(constants_.size())) {
    return nullptr;
  }
  const Constant& constant = constants_[v.index];
  return constant.value == id ? &constant : nullptr;  // else KeepNamed has dropped it
}

ValueId Graph::FindNamed(std::string_view name) const {
  const auto is_named = [&](ValueId id) { return value(id).name == name; };
  for (ValueId id : inputs_) {
    if (is_named(id)) return id;
  }
  for (ValueId id : weights_) {
    if (is_named(id)) return id;
  }
  for (const Constant& constant : constants_) {
    if (is_named(constant.value)) return constant.value;
  }
  return ValueId{};
}

SymbolId Graph::FindSymbol(std::string_view name) const {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    if (symbols_[i].name == name) return SymbolId{static_cast<int32_t>(i)};
  }
  return SymbolId{};
}

void Graph::KeepNamed(const std::vector<bool>& keep) {
  CUVIL_CHECK(keep.size() == values_.size(), "one flag per value");
  std::erase_if(weights_, [&](ValueId id) { return !keep[id.value]; });
  std::erase_if(constants_, [&](const Constant& c) { return !keep[c.value.value]; });
  for (size_t i = 0; i < weights_.size(); ++i) value(weights_[i]).index = static_cast<int32_t>(i);
  for (size_t i = 0; i < constants_.size(); ++i) {
    value(constants_[i].value).index = static_cast<int32_t>(i);
  }
}

LocId Graph::Loc(std::vector<std::string> sources) {
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  std::erase(sources, "");
  if (sources.empty()) return LocId{};
  const auto [at, added] = loc_ids_.try_emplace(sources, LocId{loc_count()});
  if (added) locs_.push_back(std::move(sources));
  return at->second;
}

LocId Graph::UnionLoc(LocId a, LocId b) {
  if (a == b || b.value == 0) return a;
  if (a.value == 0) return b;
  std::vector<std::string> sources_of_both(sources(a).begin(), sources(a).end());
  sources_of_both.insert(sources_of_both.end(), sources(b).begin(), sources(b).end());
  return Loc(std::move(sources_of_both));
}

absl::Span<const std::string> Graph::sources(LocId id) const {
  CUVIL_CHECK(Contains(id), absl::StrCat("location id ", id.value, " of ", loc_count()));
  return locs_[id.value];
}

}  // namespace cuvil::ir
