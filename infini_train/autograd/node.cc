#include "infini_train/autograd/node.h"

#include <fmt/format.h>

#include "infini_train/autograd/edge.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/autograd_meta.h"
#include "infini_train/core/error.h"

namespace infini_train::autograd {
namespace {

thread_local std::uint64_t next_sequence = 0;
thread_local SavedTensorHooks* innermost_hooks = nullptr;

/// Adds arriving gradients to a leaf; see backward.cc.
class AccumulateNode final : public Node {
 public:
  explicit AccumulateNode(Tensor leaf) : Node("Accumulate", 1), leaf_(std::move(leaf)) {}

  void Backward(BackwardContext&) override {}
  void ReleaseSaved() override {}
  const Tensor* leaf() const override { return &leaf_; }

 private:
  Tensor leaf_;
};

/// Throws Error when the tensor is no longer what its grad_fn made.
void CheckHistory(const Tensor& tensor, const AutogradMeta& meta) {
  if (meta.grad_fn_version == tensor.version()) return;
  throw Error(fmt::format(
      "a tensor of shape {} made by {} was modified in place through another tensor that shares "
      "its memory (version {}, expected {}); its gradient would be wrong",
      tensor.shape().ToString(), meta.grad_fn->name(), tensor.version(), meta.grad_fn_version));
}

}  // namespace

Edge EdgeTo(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return {};
  AutogradMeta& meta = tensor.EnsureAutogradMeta();
  if (meta.grad_fn) {
    CheckHistory(tensor, meta);
    return {meta.grad_fn, meta.output_index};
  }
  std::shared_ptr<Node> accumulator = meta.grad_accumulator.lock();
  if (!accumulator) {
    accumulator = std::make_shared<AccumulateNode>(tensor);
    meta.grad_accumulator = accumulator;
  }
  return {std::move(accumulator), 0};
}

BackwardContext::BackwardContext(const Node& node, std::vector<Gradient> grad_outputs,
                                 bool retain_graph, bool grad_output_is_one)
    : node_(node),
      retain_graph_(retain_graph),
      grad_output_is_one_(grad_output_is_one),
      grad_outputs_(std::move(grad_outputs)),
      grad_inputs_(node.edges().size()) {}

bool BackwardContext::NeedsGrad(int input) const {
  return node_.edges()[input].node != nullptr;
}

bool BackwardContext::WantsColumnSums(int input) const {
  const std::shared_ptr<Node>& origin = node_.edges()[input].node;
  return origin != nullptr && origin->uses_column_sums();
}

Tensor BackwardContext::AccumulationTarget(int input) const {
  const std::shared_ptr<Node>& target = node_.edges()[input].node;
  if (!target || target->leaf() == nullptr) return {};
  const Tensor& leaf = *target->leaf();
  return leaf.autograd_meta()->hooks.empty() ? leaf.grad() : Tensor();
}

Node::Node(std::string_view name, int num_outputs)
    : name_(name), num_outputs_(num_outputs), sequence_(next_sequence++) {}

Node::~Node() {
  // A long chain of nodes must not recurse once per node: edges are moved to a list that the
  // outermost destructor works off.
  thread_local std::vector<Edge>* pending = nullptr;
  if (pending != nullptr) {
    for (Edge& edge : edges_) {
      if (edge.node) pending->push_back(std::move(edge));
    }
    return;
  }
  std::vector<Edge> list;
  pending = &list;
  for (Edge& edge : edges_) {
    if (edge.node) list.push_back(std::move(edge));
  }
  while (!list.empty()) {
    const Edge edge = std::move(list.back());
    list.pop_back();
  }
  pending = nullptr;
}

SavedTensor::SavedTensor(const Tensor& tensor) {
  if (!tensor.defined()) return;
  if (innermost_hooks != nullptr) {
    packed_ = innermost_hooks->pack_(tensor.Detach());
    unpack_ = innermost_hooks->unpack_;
    return;
  }
  tensor_ = tensor.Detach();
  version_ = tensor.version();
}

Tensor SavedTensor::Unpack() const {
  if (unpack_) return unpack_(packed_);
  if (tensor_.defined() && tensor_.version() != version_) {
    throw Error(fmt::format(
        "a tensor of shape {} needed for backward was modified in place (version {}, expected {})",
        tensor_.shape().ToString(), tensor_.version(), version_));
  }
  return tensor_;
}

SavedTensorHooks::SavedTensorHooks(Pack pack, Unpack unpack)
    : pack_(std::move(pack)), unpack_(std::move(unpack)), previous_(innermost_hooks) {
  innermost_hooks = this;
}

SavedTensorHooks::~SavedTensorHooks() {
  innermost_hooks = previous_;
}

bool ShouldRecord(std::initializer_list<const Tensor*> inputs) {
  if (!GradEnabled()) return false;
  for (const Tensor* input : inputs) {
    if (input->defined() && input->requires_grad()) return true;
  }
  return false;
}

bool ShouldRecord(TensorList inputs) {
  if (!GradEnabled()) return false;
  for (const Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) return true;
  }
  return false;
}

bool UsesColumnSums(const Tensor& tensor) {
  const AutogradMeta* meta = tensor.autograd_meta();
  return meta != nullptr && meta->grad_fn != nullptr && meta->grad_fn->uses_column_sums();
}

void CheckInPlace(std::string_view name, const Tensor& tensor) {
  if (!GradEnabled()) return;
  const AutogradMeta* meta = tensor.autograd_meta();
  if (meta == nullptr) return;
  if (meta->requires_grad && !meta->grad_fn) {
    throw Error(fmt::format(
        "{}: a leaf that requires a gradient cannot be written in place; use NoGrad", name));
  }
  if (meta->is_view) {
    throw Error(fmt::format(
        "{}: a view in a recorded graph cannot be written in place; clone it first", name));
  }
  if (meta->grad_fn) CheckHistory(tensor, *meta);
}

Node& detail::AttachNode(std::shared_ptr<Node> node, std::span<const Tensor* const> outputs,
                         std::span<const Tensor* const> inputs, RecordKind kind) {
  node->edges().reserve(inputs.size());
  for (const Tensor* input : inputs) {
    if (kind == RecordKind::kInPlace && input->IsSameAs(*outputs.front())) {
      // The value before the write; the write itself has moved the version on.
      const AutogradMeta* meta = input->autograd_meta();
      const bool recorded = meta != nullptr && meta->grad_fn != nullptr;
      node->edges().push_back(recorded ? Edge{meta->grad_fn, meta->output_index} : Edge{});
    } else {
      node->edges().push_back(EdgeTo(*input));
    }
  }
  int index = 0;
  for (const Tensor* output : outputs) {
    if (output->defined()) {
      AutogradMeta& meta = output->EnsureAutogradMeta();
      meta.grad_fn = node;
      meta.output_index = index;
      meta.grad_fn_version = output->version();
      meta.is_view = meta.is_view || kind == RecordKind::kView;
    }
    ++index;
  }
  return *node;
}

void detail::ThrowReleased(std::string_view name) {
  throw Error(fmt::format(
      "backward through {} a second time: its saved values were released; pass retain_graph to the "
      "first backward",
      name));
}

}  // namespace infini_train::autograd
