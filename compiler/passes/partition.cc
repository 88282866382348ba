#include "compiler/passes/partition.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

namespace cuvil::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

class Partitioner {
 public:
  explicit Partitioner(const ir::Graph& graph)
      : g_(graph),
        users_(graph.value_count()),
        owner_(graph.node_count(), -1),
        position_(graph.node_count(), 0) {
    int next = 0;
    for (const NodeId id : g_.body()) {
      position_[id.value] = next++;
      for (const ValueId v : g_.node(id).inputs) users_[v.value].push_back(id);
    }
    for (const ir::Output& out : g_.outputs()) is_output_.push_back(out.value);
  }

  absl::StatusOr<std::vector<Group>> Run() {
    // Anchors in body order; each match claims the nodes it covers.
    for (const NodeId id : g_.body()) {
      const Node& node = g_.node(id);
      if (node.op == OpKind::kGather && MatchEmbed(id)) continue;
      if (node.op == OpKind::kKvAppend && MatchHeads(id)) continue;
      if (node.op == OpKind::kAttention && MatchAttention(id)) continue;
      if (node.op == OpKind::kMul && MatchGated(id)) continue;
      if (node.op == OpKind::kAdd && MatchResidual(id)) continue;
    }
    for (const ir::Output& out : g_.outputs()) MatchLogits(out.value);
    RETURN_IF_ERROR(CheckAllClaimed());
    std::stable_sort(groups_.begin(), groups_.end(), [&](const Group& a, const Group& b) {
      return LastPosition(a) < LastPosition(b);
    });
    return std::move(groups_);
  }

 private:
  const Node* Def(ValueId v) const { return v.valid() ? g_.DefiningNode(v) : nullptr; }
  NodeId DefId(ValueId v) const { return g_.value(v).node; }
  bool Is(ValueId v, OpKind op) const {
    const Node* n = Def(v);
    return n != nullptr && n->op == op;
  }
  bool IsWeight(ValueId v) const { return g_.value(v).origin == ir::Origin::kWeight; }
  bool UsedOnce(ValueId v) const {
    return users_[v.value].size() == 1 &&
           std::find(is_output_.begin(), is_output_.end(), v) == is_output_.end();
  }
  std::optional<double> ScalarConstant(ValueId v) const {
    const ir::Constant* c = g_.FindConstant(v);
    const ir::TensorType* t = ir::AsTensor(g_.type(v));
    if (c == nullptr || t->dtype != DType::kF32 || t->rank() != 0) return std::nullopt;
    float f;
    std::memcpy(&f, c->bytes.data(), 4);
    return f;
  }

  void Claim(Group& group, NodeId id) {
    group.nodes.push_back(id);
    for (const std::string& source : g_.sources(g_.node(id).loc)) {
      if (std::find(group.sources.begin(), group.sources.end(), source) == group.sources.end()) {
        group.sources.push_back(source);
      }
    }
  }

  // Takes the group: its nodes now belong to it.
  bool Take(Group group) {
    for (const NodeId id : group.nodes) owner_[id.value] = static_cast<int>(groups_.size());
    groups_.push_back(std::move(group));
    return true;
  }

  struct Linear {
    ValueId input, weight, bias;
    std::vector<NodeId> nodes;
  };

  // v = matmul(input, weight^T) [+ bias], single uses inside.
  std::optional<Linear> AsLinear(ValueId v) const {
    Linear out;
    if (Is(v, OpKind::kAdd)) {
      const Node* add = Def(v);
      if (!IsWeight(add->inputs[1]) || !Is(add->inputs[0], OpKind::kMatMul) ||
          !UsedOnce(add->inputs[0]))
        return std::nullopt;
      out.bias = add->inputs[1];
      out.nodes.push_back(DefId(v));
      v = add->inputs[0];
    }
    const Node* n = Def(v);
    if (n == nullptr || n->op != OpKind::kMatMul || !n->attrs.Bool("transpose_b") ||
        !IsWeight(n->inputs[1])) {
      return std::nullopt;
    }
    out.input = n->inputs[0];
    out.weight = n->inputs[1];
    out.nodes.push_back(DefId(v));
    return out;
  }

  // Looks through a norm: the linear's real input is the norm's input when every user of the norm
  // is in this group (each worker recomputes it).
  void TakePrologueNorm(Group& group, ValueId activations, size_t users) {
    group.input = activations;
    const Node* n = Def(activations);
    if (n == nullptr || n->op != OpKind::kRmsNorm || n->inputs.size() != 2 ||
        users_[activations.value].size() != users)
      return;
    group.norm = n->inputs[1];
    group.norm_eps = n->attrs.Float("eps");
    group.input = n->inputs[0];
    Claim(group, DefId(activations));
  }

  bool MatchEmbed(NodeId id) {
    const Node& n = g_.node(id);
    if (!IsWeight(n.inputs[0]) || n.attrs.Int("axis") != 0 ||
        g_.value(n.inputs[1]).origin != ir::Origin::kInput)
      return false;
    Group group{.kind = GroupKind::kEmbed, .rule = "embed.rows"};
    group.input = n.inputs[1];
    group.weights = {n.inputs[0]};
    group.output = n.outputs[0];
    Claim(group, id);
    // Rows are decoded to f32 in any case.
    if (UsedOnce(group.output)) {
      const NodeId user = users_[group.output.value][0];
      const Node& cast = g_.node(user);
      if (cast.op == OpKind::kCast && cast.attrs.Type("to") == DType::kF32) {
        group.output = cast.outputs[0];
        Claim(group, user);
      }
    }
    if (UsedOnce(group.output)) {
      const NodeId user = users_[group.output.value][0];
      const Node& mul = g_.node(user);
      if (mul.op == OpKind::kMul && mul.inputs[0] == group.output) {
        if (const auto scale = ScalarConstant(mul.inputs[1])) {
          group.scale = *scale;
          group.output = mul.outputs[0];
          Claim(group, user);
        }
      }
    }
    return Take(std::move(group));
  }

  struct Head {
    Linear linear;
    ValueId norm;
    double norm_eps = 0;
    std::optional<Rope> rope;
    std::vector<NodeId> nodes;
    int64_t heads = 0, dim = 0;
  };

  // [rope]([rms_norm](reshape(linear)))
  std::optional<Head> AsHead(ValueId v) const {
    Head h;
    if (Is(v, OpKind::kRope)) {
      const Node* n = Def(v);
      Rope rope{
          n->attrs.String("kind") == "half", n->attrs.Int("dim"), {}, n->attrs.Float("scale", 1)};
      const auto freqs = n->attrs.Floats("freqs");
      rope.freqs.assign(freqs.begin(), freqs.end());
      h.rope = std::move(rope);
      h.nodes.push_back(DefId(v));
      v = n->inputs[0];
      if (!UsedOnce(v)) return std::nullopt;
    }
    if (Is(v, OpKind::kRmsNorm) && Def(v)->inputs.size() == 2) {
      h.norm = Def(v)->inputs[1];
      h.norm_eps = Def(v)->attrs.Float("eps");
      h.nodes.push_back(DefId(v));
      v = Def(v)->inputs[0];
      if (!UsedOnce(v)) return std::nullopt;
    }
    if (!Is(v, OpKind::kReshape) || !UsedOnce(Def(v)->inputs[0])) return std::nullopt;
    const ir::TensorType& t = g_.tensor_type(v);
    if (t.rank() != 3 || !t.dims[1].constant() || !t.dims[2].constant()) return std::nullopt;
    h.heads = *t.dims[1].constant();
    h.dim = *t.dims[2].constant();
    h.nodes.push_back(DefId(v));
    const auto linear = AsLinear(Def(v)->inputs[0]);
    if (!linear) return std::nullopt;
    h.linear = *linear;
    h.nodes.insert(h.nodes.end(), linear->nodes.begin(), linear->nodes.end());
    return h;
  }

  // The attention that reads what this append wrote.
  const Node* AttentionOf(ValueId state) const {
    for (const NodeId user : users_[state.value]) {
      if (g_.node(user).op == OpKind::kAttention) return &g_.node(user);
    }
    return nullptr;
  }

  bool MatchHeads(NodeId id) {
    const Node& append = g_.node(id);
    const Node* attention = AttentionOf(append.outputs[0]);
    if (attention == nullptr) return false;
    const auto q = AsHead(attention->inputs[0]), k = AsHead(append.inputs[1]),
               v = AsHead(append.inputs[2]);
    if (!q || !k || !v || v->rope || v->norm.valid()) return false;
    if (q->linear.input != k->linear.input || q->linear.input != v->linear.input) return false;
    if (q->rope != k->rope || q->norm.valid() != k->norm.valid() || q->dim != k->dim ||
        q->dim != v->dim)
      return false;
    Group group{.kind = GroupKind::kHeads, .rule = "heads.qkv_rope_append"};
    group.layer = StateIndex(append.inputs[0]);
    group.weights = {q->linear.weight, k->linear.weight, v->linear.weight};
    group.biases = {q->linear.bias, k->linear.bias, v->linear.bias};
    group.q_norm = q->norm;
    group.k_norm = k->norm;
    group.qk_norm_eps = q->norm_eps;
    if (q->rope) group.rope = *q->rope;
    group.scale = attention->attrs.Float("scale");
    group.heads = q->heads;
    group.kv_heads = k->heads;
    group.head_dim = q->dim;
    group.output = attention->inputs[0];
    for (const Head* h : {&*q, &*k, &*v}) {
      for (const NodeId node : h->nodes) Claim(group, node);
    }
    Claim(group, id);
    TakePrologueNorm(group, q->linear.input, 3);
    return Take(std::move(group));
  }

  // States are inputs; appends thread them, so follow back to the input's position among states.
  int StateIndex(ValueId v) const {
    while (Is(v, OpKind::kKvAppend)) v = Def(v)->inputs[0];
    int index = 0;
    for (const ValueId input : g_.inputs()) {
      if (input == v) return index;
      if (ir::AsKv(g_.type(input)) != nullptr) ++index;
    }
    return -1;
  }

  bool MatchAttention(NodeId id) {
    const Node& n = g_.node(id);
    if (!n.attrs.Bool("causal", true) || n.attrs.Float("softcap") != 0) return false;
    const Node* append = Def(n.inputs[1]);
    if (append == nullptr || append->op != OpKind::kKvAppend ||
        owner_[DefId(n.inputs[1]).value] < 0)
      return false;
    Group group{.kind = GroupKind::kAttention, .rule = "attention.paged"};
    const Group& heads = groups_[owner_[DefId(n.inputs[1]).value]];
    group.layer = heads.layer;
    group.heads = heads.heads;
    group.kv_heads = heads.kv_heads;
    group.head_dim = heads.head_dim;
    group.window = n.attrs.Int("window");
    group.sinks = n.attrs.Int("sinks");
    group.input = n.inputs[0];
    group.output = n.outputs[0];
    Claim(group, id);
    if (UsedOnce(group.output) && g_.node(users_[group.output.value][0]).op == OpKind::kReshape) {
      const NodeId reshape = users_[group.output.value][0];
      group.output = g_.node(reshape).outputs[0];
      Claim(group, reshape);
    }
    return Take(std::move(group));
  }

  bool MatchGated(NodeId id) {
    const Node& mul = g_.node(id);
    const Node* act = Def(mul.inputs[0]);
    if (act == nullptr || (act->op != OpKind::kSilu && act->op != OpKind::kGeluTanh) ||
        !UsedOnce(mul.inputs[0]))
      return false;
    if (!UsedOnce(act->inputs[0]) || !UsedOnce(mul.inputs[1])) return false;
    const auto gate = AsLinear(act->inputs[0]), up = AsLinear(mul.inputs[1]);
    if (!gate || !up || gate->input != up->input) return false;
    Group group{.kind = GroupKind::kGated, .rule = "linear.gated"};
    group.gelu = act->op == OpKind::kGeluTanh;
    group.weights = {gate->weight, up->weight};
    group.biases = {gate->bias, up->bias};
    group.output = mul.outputs[0];
    for (const NodeId node : gate->nodes) Claim(group, node);
    for (const NodeId node : up->nodes) Claim(group, node);
    Claim(group, DefId(mul.inputs[0]));
    Claim(group, id);
    TakePrologueNorm(group, gate->input, 2);
    return Take(std::move(group));
  }

  // add(x, [rms_norm](linear)): x is updated in place, so nothing may read the old x afterwards.
  bool MatchResidual(NodeId id) {
    const Node& add = g_.node(id);
    const ValueId x = add.inputs[0];
    ValueId y = add.inputs[1];
    if (IsWeight(y) || !LastUse(x, id) || !UsedOnce(y)) return false;
    Group post{.kind = GroupKind::kNormAdd, .rule = "norm.post_residual"};
    const bool has_norm = Is(y, OpKind::kRmsNorm) && Def(y)->inputs.size() == 2;
    if (has_norm) {
      post.norm = Def(y)->inputs[1];
      post.norm_eps = Def(y)->attrs.Float("eps");
      Claim(post, DefId(y));
      y = Def(y)->inputs[0];
      if (!UsedOnce(y)) return false;
    }
    const auto linear = AsLinear(y);
    if (!linear) return false;
    Group group{.kind = GroupKind::kLinear, .rule = has_norm ? "linear.store" : "linear.residual"};
    group.weights = {linear->weight};
    group.biases = {linear->bias};
    group.input = linear->input;
    for (const NodeId node : linear->nodes) Claim(group, node);
    group.output = y;
    if (!has_norm) {
      group.residual = x;
      group.output = add.outputs[0];
      Claim(group, id);
      return Take(std::move(group));
    }
    Take(std::move(group));
    post.input = y;
    post.residual = x;
    post.output = add.outputs[0];
    Claim(post, id);
    return Take(std::move(post));
  }

  bool LastUse(ValueId v, NodeId at) const {
    if (std::find(is_output_.begin(), is_output_.end(), v) != is_output_.end()) return false;
    return users_[v.value].back() == at;  // users are recorded in body order
  }

  bool MatchLogits(ValueId v) {
    if (ir::AsTensor(g_.type(v)) == nullptr) return false;
    Group group{.kind = GroupKind::kLogits, .rule = "linear.logits"};
    group.output = v;
    // mul(tanh(mul(y, 1/cap)), cap)
    if (Is(v, OpKind::kMul) && Is(Def(v)->inputs[0], OpKind::kTanh)) {
      const Node* outer = Def(v);
      const Node* tanh = Def(outer->inputs[0]);
      const auto cap = ScalarConstant(outer->inputs[1]);
      const Node* inner = Def(tanh->inputs[0]);
      if (!cap || inner == nullptr || inner->op != OpKind::kMul ||
          !ScalarConstant(inner->inputs[1]))
        return false;
      group.softcap = *cap;
      Claim(group, DefId(v));
      Claim(group, DefId(outer->inputs[0]));
      Claim(group, DefId(tanh->inputs[0]));
      v = inner->inputs[0];
    }
    const auto linear = AsLinear(v);
    if (!linear || linear->bias.valid() || !Is(linear->input, OpKind::kRmsNorm)) return false;
    for (const NodeId node : linear->nodes) Claim(group, node);
    group.weights = {linear->weight};
    group.biases = {linear->bias};
    TakePrologueNorm(group, linear->input, 1);
    if (!group.norm.valid() || !Is(group.input, OpKind::kGather)) return false;
    Claim(group, DefId(group.input));
    group.input = Def(group.input)->inputs[0];
    return Take(std::move(group));
  }

  // An op of a kind that no group takes is why its neighbours stand alone too: it is named first.
  absl::Status CheckAllClaimed() const {
    std::set<OpKind> taken;
    for (const NodeId id : g_.body()) {
      if (owner_[id.value] >= 0) taken.insert(g_.node(id).op);
    }
    NodeId left;
    for (const NodeId id : g_.body()) {
      if (owner_[id.value] >= 0) continue;
      const bool strange = !taken.contains(g_.node(id).op);
      if (!left.valid() || (strange && taken.contains(g_.node(left).op))) left = id;
    }
    if (!left.valid()) return absl::OkStatus();
    const Node& n = g_.node(left);
    const auto sources = g_.sources(n.loc);
    return absl::UnimplementedError(
        absl::StrCat("no step kernel takes '", Sv(ir::NameOf(n.op)), "'",
                     sources.empty() ? std::string() : absl::StrCat(" (from ", sources[0], ")"),
                     "; the step compiler knows decoder-only transformers of norms, linears, rope, "
                     "causal attention and gated "
                     "feed-forwards"));
  }

  int LastPosition(const Group& g) const {
    int last = 0;
    for (const NodeId id : g.nodes) last = std::max(last, position_[id.value]);
    return last;
  }

  const ir::Graph& g_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<ValueId> is_output_;
  std::vector<int> owner_;     // node -> group, -1: none yet
  std::vector<int> position_;  // node -> place in the body
  std::vector<Group> groups_;
};

}  // namespace

absl::StatusOr<std::vector<Group>> Partition(const ir::Graph& graph) {
  return Partitioner(graph).Run();
}

}  // namespace cuvil::passes
