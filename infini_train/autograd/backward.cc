#include "infini_train/autograd/backward.h"

#include <fmt/format.h>

#include <atomic>
#include <queue>
#include <unordered_map>

#include "infini_train/autograd/edge.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/autograd_meta.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {
namespace autograd {
namespace {

/// sum += term, in place where that is safe.
void AddInto(Tensor& sum, Tensor term) {
  if (!sum.defined()) {
    sum = std::move(term);
  } else if (raw::OwnsItsMemory(sum)) {
    Call<op::Add>(sum, sum, term);
  } else if (raw::OwnsItsMemory(term)) {
    Call<op::Add>(term, sum, term);
    sum = std::move(term);
  } else {
    Tensor fresh = Tensor::EmptyLike(sum);
    Call<op::Add>(fresh, sum, term);
    sum = std::move(fresh);
  }
}

/// Throws Error unless grad can be the gradient of `tensor`.
void CheckGradient(const Tensor& grad, const Tensor& tensor) {
  if (!(grad.shape() == tensor.shape()) || grad.dtype() != tensor.dtype()) {
    throw Error(fmt::format("expected a gradient of shape {} and {}, got {} and {}",
                            tensor.shape().ToString(), ToString(tensor.dtype()),
                            grad.shape().ToString(), ToString(grad.dtype())));
  }
}

void AccumulateIntoLeaf(const Tensor& leaf, Tensor grad) {
  CheckGradient(grad, leaf);
  AutogradMeta& meta = *leaf.autograd_meta();
  if (!meta.grad.defined()) {
    meta.grad = raw::OwnsItsMemory(grad) ? std::move(grad) : raw::Clone(grad);
  } else {
    // In place even where others see it: grad() is one buffer for the life of a step.
    Call<op::Add>(meta.grad, meta.grad, grad);
  }
}

Tensor RunHook(const TensorHook& hook, Tensor grad) {
  Tensor replaced = hook(grad);
  if (!replaced.defined()) return grad;
  CheckGradient(replaced, grad);
  return replaced;
}

/// What arrives at a leaf in total: its hooks see it before it is added.
void FinishLeaf(const Tensor& leaf, Tensor grad) {
  // Of a copy, since a hook may remove itself.
  const auto hooks = leaf.autograd_meta()->hooks;
  for (const auto& [id, hook] : hooks)
    grad = RunHook(hook, std::move(grad));
  AccumulateIntoLeaf(leaf, std::move(grad));
}

/// A backward is done with a leaf.
void RunFinalGradHooks(const Tensor& leaf) {
  const auto& hooks = leaf.autograd_meta()->final_grad_hooks;
  if (hooks.empty()) return;
  const auto copy = hooks;  // A hook may remove itself.
  for (const auto& [id, hook] : copy)
    hook(leaf);
}

/// One backward pass.
class Engine {
 public:
  /// `one`: the only root, whose gradient is 1; null where there is none such.
  Engine(bool retain_graph, const Node* one) : retain_graph_(retain_graph), one_(one) {}

  struct Root {
    Edge edge;
    Gradient grad;
  };

  void Run(std::vector<Root> roots) {
    for (const Root& root : roots)
      CountDependencies(root.edge.node.get());
    for (Root& root : roots)
      Deliver(root.edge, std::move(root.grad));
    for (const Root& root : roots) {
      NodeState& state = states_.at(root.edge.node.get());
      if (state.dependencies == 0 && !state.scheduled) Schedule(root.edge.node);
    }
    while (!ready_.empty()) {
      const std::shared_ptr<Node> node = ready_.top().node;
      ready_.pop();
      RunNode(*node);
    }
  }

 private:
  struct NodeState {
    int dependencies = 0;
    bool scheduled = false;
    std::vector<Gradient> grads;
  };
  struct ReadyNode {
    std::shared_ptr<Node> node;
    bool operator<(const ReadyNode& other) const {
      return node->sequence() < other.node->sequence();
    }
  };

  void CountDependencies(Node* root) {
    if (!states_.try_emplace(root).second) return;
    std::vector<Node*> stack = {root};
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      for (const Edge& edge : node->edges()) {
        if (!edge.node) continue;
        const auto [position, inserted] = states_.try_emplace(edge.node.get());
        ++position->second.dependencies;
        if (inserted) stack.push_back(edge.node.get());
      }
    }
  }

  void Schedule(std::shared_ptr<Node> node) {
    states_.at(node.get()).scheduled = true;
    ready_.push({std::move(node)});
  }

  /// Takes a gradient to an edge. A leaf without hooks gets it at once, so that no two gradients of
  /// a parameter are alive together; everything else collects until all have arrived.
  void Deliver(const Edge& edge, Gradient grad) {
    if (!grad.value.defined()) return;
    if (const Tensor* leaf = edge.node->leaf(); leaf && leaf->autograd_meta()->hooks.empty()) {
      AccumulateIntoLeaf(*leaf, std::move(grad.value));
      return;
    }
    NodeState& state = states_.at(edge.node.get());
    if (state.grads.empty()) state.grads.resize(edge.node->num_outputs());
    Gradient& sum = state.grads[edge.index];
    sum.column_sums = sum.value.defined() ? Tensor() : std::move(grad.column_sums);
    AddInto(sum.value, std::move(grad.value));
  }

  void RunNode(Node& node) {
    std::vector<Gradient> grads = std::move(states_.at(&node).grads);
    bool any = false;
    for (const Gradient& grad : grads)
      any |= grad.value.defined();
    if (node.leaf() != nullptr) {
      if (any) FinishLeaf(*node.leaf(), std::move(grads[0].value));
      RunFinalGradHooks(*node.leaf());
      return;
    }
    std::vector<Gradient> grad_inputs(node.edges().size());
    if (any) {
      const auto hooks = node.output_hooks();
      const bool is_one = &node == one_ && hooks.empty();
      for (std::size_t i = 0; i < hooks.size(); ++i) {
        for (const auto& [id, hook] : hooks[i]) {
          // A hook may give another gradient, or write this one.
          if (grads[i].value.defined()) grads[i] = {RunHook(hook, std::move(grads[i].value)), {}};
        }
      }
      BackwardContext context(node, std::move(grads), retain_graph_, is_one);
      node.Backward(context);
      grad_inputs = context.TakeGradInputs();
    }
    if (!retain_graph_) node.ReleaseSaved();
    for (std::size_t i = 0; i < node.edges().size(); ++i) {
      const Edge& edge = node.edges()[i];
      if (!edge.node) continue;
      Deliver(edge, std::move(grad_inputs[i]));
      if (--states_.at(edge.node.get()).dependencies == 0) Schedule(edge.node);
    }
  }

  bool retain_graph_;
  const Node* one_;
  std::unordered_map<Node*, NodeState> states_;
  std::priority_queue<ReadyNode> ready_;
};

void Run(TensorList outputs, std::span<const Gradient> grad_outputs, bool retain_graph,
         const Node* one) {
  if (outputs.size() != grad_outputs.size()) {
    throw Error(fmt::format("backward: expected {} gradients, got {}", outputs.size(),
                            grad_outputs.size()));
  }
  NoGrad no_grad;
  Autocast no_autocast(std::nullopt);
  std::vector<Engine::Root> roots;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    if (!output.requires_grad()) {
      throw Error("backward: the tensor does not depend on anything that requires a gradient");
    }
    CheckGradient(grad_outputs[i].value, output);
    const AutogradMeta& meta = *output.autograd_meta();
    if (meta.grad_fn) {
      roots.push_back({{meta.grad_fn, meta.output_index}, grad_outputs[i]});
    } else {
      // More may arrive at it from other outputs.
      roots.push_back({EdgeTo(output), grad_outputs[i]});
    }
  }
  Engine(retain_graph, one).Run(std::move(roots));
}

}  // namespace

void BackwardFrom(TensorList outputs, std::span<const Gradient> grad_outputs) {
  Run(outputs, grad_outputs, false, nullptr);
}

}  // namespace autograd

void Backward(TensorList outputs, TensorList grad_outputs, bool retain_graph) {
  std::vector<autograd::Gradient> gradients;
  for (const Tensor& grad : grad_outputs)
    gradients.push_back({grad, {}});
  autograd::Run(outputs, gradients, retain_graph, nullptr);
}

void Backward(const Tensor& loss, bool retain_graph) {
  if (loss.numel() != 1) {
    throw Error(fmt::format("backward: expected a loss of one element, got shape {}",
                            loss.shape().ToString()));
  }
  autograd::Gradient one = {Tensor::EmptyLike(loss), {}};
  Call<op::Fill>(one.value, Scalar(1));
  const AutogradMeta* meta = loss.autograd_meta();
  autograd::Run({&loss, 1}, {&one, 1}, retain_graph,
                meta != nullptr ? meta->grad_fn.get() : nullptr);
}

namespace {

int NextHookId() {
  static std::atomic<int> next_id{0};
  return next_id++;
}

}  // namespace

int RegisterHook(const Tensor& tensor, autograd::TensorHook hook) {
  if (!tensor.requires_grad()) throw Error("a hook needs a tensor that requires a gradient");
  const int id = NextHookId();
  AutogradMeta& meta = *tensor.autograd_meta();
  if (meta.grad_fn) {
    auto& hooks = meta.grad_fn->output_hooks();
    hooks.resize(meta.grad_fn->num_outputs());
    hooks[meta.output_index].emplace_back(id, std::move(hook));
  } else {
    meta.hooks.emplace(id, std::move(hook));
  }
  return id;
}

int RegisterFinalGradHook(const Tensor& leaf, std::function<void(const Tensor&)> hook) {
  if (!leaf.requires_grad() || !leaf.is_leaf())
    throw Error("a hook for final gradients needs a leaf that requires a gradient");
  const int id = NextHookId();
  leaf.autograd_meta()->final_grad_hooks.emplace(id, std::move(hook));
  return id;
}

void RemoveHook(const Tensor& tensor, int id) {
  AutogradMeta* meta = tensor.autograd_meta();
  if (meta == nullptr) return;
  meta->hooks.erase(id);
  meta->final_grad_hooks.erase(id);
  if (meta->grad_fn) {
    for (auto& hooks : meta->grad_fn->output_hooks()) {
      std::erase_if(hooks, [&](const auto& entry) { return entry.first == id; });
    }
  }
}

void RetainGrad(const Tensor& tensor) {
  if (tensor.is_leaf()) return;
  // Without the handle a tensor would keep itself alive through its own graph.
  RegisterHook(tensor, [weak = WeakTensor(tensor)](const Tensor& grad) {
    const Tensor alive = weak.Lock();
    if (!alive.defined()) return Tensor();
    Tensor sum = raw::Clone(grad);
    if (alive.grad().defined()) Call<op::Add>(sum, sum, alive.grad());
    alive.set_grad(sum);
    return Tensor();
  });
}

}  // namespace infini_train
