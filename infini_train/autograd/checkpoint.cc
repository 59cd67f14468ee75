#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/generator.h"

namespace infini_train {
namespace {

/// The calling thread's random state and autocast type for a scope.
class ReplayGuard {
 public:
  ReplayGuard(Generator::State random, std::optional<DataType> autocast_dtype)
      : previous_(DefaultGenerator().state()), autocast_(autocast_dtype) {
    DefaultGenerator().set_state(random);
  }
  ~ReplayGuard() { DefaultGenerator().set_state(previous_); }
  ReplayGuard(const ReplayGuard&) = delete;
  ReplayGuard& operator=(const ReplayGuard&) = delete;

 private:
  Generator::State previous_;
  Autocast autocast_;
};

}  // namespace

std::vector<Tensor> Checkpoint(
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> function,
    const std::vector<Tensor>& inputs) {
  if (!autograd::GradEnabled()) return function(inputs);
  const Generator::State random = DefaultGenerator().state();
  const std::optional<DataType> autocast_dtype = autocast::ComputeDataType();
  std::vector<Tensor> outputs;
  {
    NoGrad no_grad;
    outputs = function(inputs);
  }
  std::vector<autograd::SavedTensor> saved;
  std::vector<const Tensor*> input_pointers;
  for (const Tensor& input : inputs) {
    saved.emplace_back(input);
    input_pointers.push_back(&input);
  }
  std::vector<const Tensor*> output_pointers;
  for (Tensor& output : outputs) {
    // An output that is an input, or memory that others hold, gets a history of its own.
    output = output.Detach();
    output_pointers.push_back(&output);
  }
  auto backward = [function = std::move(function), saved = std::move(saved), random, autocast_dtype,
                   num_outputs = outputs.size()](autograd::BackwardContext& context) {
    std::vector<Tensor> replay_inputs;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const int index = static_cast<int>(i);
      Tensor input = saved[i].Unpack();
      if (input.defined() && context.NeedsGrad(index)) {
        input = input.Detach();
        // Not a leaf: a gradient goes on just as it arrives.
        auto& node = autograd::Record(
            "CheckpointInput", {&input}, {}, [&context, index](autograd::BackwardContext& replay) {
              context.SetGrad(index, replay.TakeGradOutput(), replay.grad_output_column_sums());
            });
        node.set_uses_column_sums(context.WantsColumnSums(index));
      }
      replay_inputs.push_back(std::move(input));
    }
    std::vector<Tensor> replay_outputs;
    {
      ReplayGuard replay(random, autocast_dtype);
      GradModeGuard grad(true);
      replay_outputs = function(replay_inputs);
    }
    replay_inputs.clear();
    std::vector<Tensor> roots;
    std::vector<autograd::Gradient> grads;
    for (std::size_t i = 0; i < num_outputs; ++i) {
      const int index = static_cast<int>(i);
      const Tensor& grad = context.grad_output(index);
      if (!grad.defined() || !replay_outputs[i].requires_grad()) continue;
      roots.push_back(replay_outputs[i]);
      grads.push_back({grad, context.grad_output_column_sums(index)});
    }
    replay_outputs.clear();
    autograd::BackwardFrom(roots, grads);
  };
  auto& node = autograd::Record("Checkpoint", output_pointers, input_pointers, std::move(backward));
  // What made the outputs is known in backward only.
  node.set_uses_column_sums(true);
  return outputs;
}

}  // namespace infini_train
