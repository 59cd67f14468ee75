#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"

namespace infini_train::autograd {

class Node;

/// Where a gradient goes: input `index` of `node`; no node where none is needed.
struct Edge {
  std::shared_ptr<Node> node;
  int index = 0;
};

/// A gradient on its way from node to node.
struct Gradient {
  Tensor value;
  /// The sums of value over all but its last dimension, float32 or of value's type: the gradient of
  /// a bias that was added last. Undefined unless the node that made the value was asked for them
  /// (BackwardContext::WantsColumnSums), and where values of several nodes were added.
  Tensor column_sums;
};

/// What a backward function reads and writes: gradients of the outputs in, gradients of the inputs
/// out.
class INFINI_TRAIN_API BackwardContext {
 public:
  BackwardContext(const Node& node, std::vector<Gradient> grad_outputs, bool retain_graph,
                  bool grad_output_is_one = false);

  /// Undefined when nothing depends on that output.
  const Tensor& grad_output(int i = 0) const { return grad_outputs_[i].value; }
  /// Gives the gradient up, so that its memory can be reused once the caller is done with it.
  Tensor TakeGradOutput(int i = 0) { return std::move(grad_outputs_[i].value); }
  /// The sums of the columns of that gradient, where they are known.
  const Tensor& grad_output_column_sums(int i = 0) const { return grad_outputs_[i].column_sums; }

  /// Whether the one gradient is known to be 1 on the host: backward starts at this loss.
  bool GradOutputIsOne() const { return grad_output_is_one_; }

  bool NeedsGrad(int input) const;
  /// Whether the node that made the input has a use for the sums of its gradient's columns.
  bool WantsColumnSums(int input) const;
  void SetGrad(int input, Tensor grad, Tensor column_sums = {}) {
    grad_inputs_[input] = {std::move(grad), std::move(column_sums)};
  }

  /// Where input is a leaf that already has a gradient and nobody watches it (no hooks), that
  /// gradient: the backward function may add to it in place instead of calling SetGrad. Else
  /// undefined.
  Tensor AccumulationTarget(int input) const;

  /// Whether backward may run again, so that kept values must stay as they are.
  bool retain_graph() const { return retain_graph_; }

  std::vector<Gradient> TakeGradInputs() { return std::move(grad_inputs_); }

 private:
  const Node& node_;
  bool retain_graph_;
  bool grad_output_is_one_;
  std::vector<Gradient> grad_outputs_;
  std::vector<Gradient> grad_inputs_;
};

using TensorHook = std::function<Tensor(const Tensor&)>;

/// One recorded operation: the edges to its inputs' origins and how to compute their gradients.
class INFINI_TRAIN_API Node {
 public:
  Node(std::string_view name, int num_outputs);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Runs the backward function. Throws Error when the saved values are gone.
  virtual void Backward(BackwardContext& context) = 0;
  /// Drops the saved values, so that their memory is free during the rest of backward.
  virtual void ReleaseSaved() = 0;
  /// The leaf that this node accumulates into; null for operations.
  virtual const Tensor* leaf() const { return nullptr; }

  std::string_view name() const { return name_; }
  int num_outputs() const { return num_outputs_; }
  /// Grows with time on each thread; backward runs later nodes first.
  std::uint64_t sequence() const { return sequence_; }
  std::vector<Edge>& edges() { return edges_; }
  const std::vector<Edge>& edges() const { return edges_; }
  /// Whether Backward reads grad_output_column_sums, or hands them on.
  bool uses_column_sums() const { return uses_column_sums_; }
  void set_uses_column_sums(bool value) { uses_column_sums_ = value; }
  /// Hooks on gradients arriving for an output, in order of registration.
  std::vector<std::vector<std::pair<int, TensorHook>>>& output_hooks() { return output_hooks_; }

 private:
  std::string_view name_;
  int num_outputs_;
  bool uses_column_sums_ = false;
  std::uint64_t sequence_;
  std::vector<Edge> edges_;
  std::vector<std::vector<std::pair<int, TensorHook>>> output_hooks_;
};

/// A value kept from forward for backward: the memory without history, and the version it had.
/// Passes through the saved-tensor hooks in force when it is made.
class INFINI_TRAIN_API SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& tensor);

  /// The value. Throws Error when it was modified in place since it was saved.
  Tensor Unpack() const;
  bool defined() const { return tensor_.defined() || packed_ != nullptr; }

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
  std::shared_ptr<void> packed_;
  std::function<Tensor(const std::shared_ptr<void>&)> unpack_;
};

/// While in scope, every saved tensor of the calling thread is handed to `pack`, and `unpack` must
/// give back an equal tensor in backward (to offload, compress or log activations; as PyTorch's
/// torch.autograd.graph.saved_tensors_hooks). Scopes nest; the innermost applies.
class INFINI_TRAIN_API SavedTensorHooks {
 public:
  using Pack = std::function<std::shared_ptr<void>(const Tensor&)>;
  using Unpack = std::function<Tensor(const std::shared_ptr<void>&)>;

  SavedTensorHooks(Pack pack, Unpack unpack);
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

 private:
  friend class SavedTensor;
  Pack pack_;
  Unpack unpack_;
  SavedTensorHooks* previous_;
};

/// Whether an operation on these inputs must be recorded. Undefined inputs are ignored.
INFINI_TRAIN_API bool ShouldRecord(std::initializer_list<const Tensor*> inputs);
INFINI_TRAIN_API bool ShouldRecord(TensorList inputs);

enum class RecordKind : std::uint8_t {
  kNewOutputs,  ///< the outputs are fresh memory
  kView,        ///< the output is a view of the first input
  kInPlace,     ///< the output is the first input, written in place
};

namespace detail {

INFINI_TRAIN_API Node& AttachNode(std::shared_ptr<Node> node,
                                  std::span<const Tensor* const> outputs,
                                  std::span<const Tensor* const> inputs, RecordKind kind);

[[noreturn]] INFINI_TRAIN_API void ThrowReleased(std::string_view name);

template <typename Function>
class FunctionNode final : public Node {
 public:
  FunctionNode(std::string_view name, int num_outputs, Function function)
      : Node(name, num_outputs), function_(std::move(function)) {}

  void Backward(BackwardContext& context) override {
    if (!function_) ThrowReleased(name());
    (*function_)(context);
  }
  void ReleaseSaved() override { function_.reset(); }

 private:
  std::optional<Function> function_;
};

}  // namespace detail

/// Records an operation: `backward(BackwardContext&)` computes the gradients of `inputs` (in that
/// order) from those of `outputs`. It captures what it needs as SavedTensor. Call it after the op
/// ran and only if ShouldRecord(inputs). Returns the new node, which the outputs hold.
///
///   Tensor y = Tensor::EmptyLike(x);
///   Call<op::Exp>(y, x);
///   if (ShouldRecord({&x})) {
///     Record("Exp", {&y}, {&x}, [y = SavedTensor(y)](BackwardContext& context) {
///       ...
///     });
///   }
///
/// Throws Error when an input was modified in place through another tensor since it was recorded.
template <typename Function>
Node& Record(std::string_view name, std::span<const Tensor* const> outputs,
             std::span<const Tensor* const> inputs, Function backward,
             RecordKind kind = RecordKind::kNewOutputs) {
  return detail::AttachNode(std::make_shared<detail::FunctionNode<Function>>(
                                name, static_cast<int>(outputs.size()), std::move(backward)),
                            outputs, inputs, kind);
}

template <typename Function>
Node& Record(std::string_view name, std::initializer_list<const Tensor*> outputs,
             std::initializer_list<const Tensor*> inputs, Function backward,
             RecordKind kind = RecordKind::kNewOutputs) {
  return Record(name, std::span(outputs.begin(), outputs.size()),
                std::span(inputs.begin(), inputs.size()), std::move(backward), kind);
}

/// Whether the node that made `tensor` has a use for the sums of its gradient's columns: a node
/// that hands gradients on unchanged says the same of itself.
INFINI_TRAIN_API bool UsesColumnSums(const Tensor& tensor);

/// Throws Error when writing `tensor` in place would give wrong gradients: a leaf that requires a
/// gradient, a view in a recorded graph, or a tensor that was modified through another one since it
/// was recorded. In-place functions call it before they write.
INFINI_TRAIN_API void CheckInPlace(std::string_view name, const Tensor& tensor);

}  // namespace infini_train::autograd
