#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"
#include "infini_train/nn/packed_samples.h"

namespace infini_train::nn {

class KeyValueCache;
class RouterStatistics;

/// A sequence of a cache that holds nothing yet, and the number of tokens that it begins with.
struct CachedPrompt {
  std::int64_t sequence = 0;
  std::int64_t tokens = 0;
};

/// What all modules of one forward pass share.
struct ForwardContext {
  /// Keys and values of earlier positions, for generation; null in training.
  KeyValueCache* cache = nullptr;
  /// Position of the first token of the input.
  std::int64_t position_offset = 0;
  /// Where defined, what the input [1, T] holds; without a cache and an offset.
  PackedSamples samples = {};
  /// Where not empty, what the input [1, T] holds: prompts of sequences of the cache, one after
  /// another; without packed samples.
  std::span<const CachedPrompt> prompts = {};
  /// Cosines and sines [T, D/2] of the angles that queries and keys are rotated by; undefined: they
  /// are not. A Transformer sets them for its blocks.
  Tensor rotary_cos = {};
  Tensor rotary_sin = {};
  /// Whether the input [B, 1] is a token of each sequence of the cache, of lengths that only the
  /// device need know: attention is the op CachedAttention, and the angles are those of positions
  /// from 0 on. A Transformer sets it for its blocks.
  bool by_cached_attention = false;
  /// Where the routers of a mixture of experts note what they do; null: nowhere.
  RouterStatistics* routers = nullptr;
  /// Where defined, [B, T] of 0 and 1 (any type): tokens of 0 are padding, which router statistics
  /// and the load-balancing loss leave out. Defined by default behind the last packed sample.
  Tensor token_mask = {};
  /// The share of this pass in the load-balancing loss of a step.
  double auxiliary_weight = 1.0;
};

/// A node in a tree of layers with named parameters, buffers and children. Names are dotted paths
/// from the root ("h.0.attn.c_attn.weight"), in order of registration.
class INFINI_TRAIN_API Module {
 public:
  using ForwardPreHook = std::function<Tensor(Module&, const Tensor& input)>;
  using ForwardHook = std::function<Tensor(Module&, const Tensor& input, const Tensor& output)>;

  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Runs hooks and Forward.
  Tensor operator()(const Tensor& x, const ForwardContext& context = {});

  /// All parameters of the tree. One that is registered twice (tied) is listed once, at its first
  /// name, unless `with_ties`.
  NamedTensors NamedParameters(bool with_ties = false) const;
  std::vector<Tensor> Parameters() const;
  NamedTensors NamedBuffers() const;
  /// Parameters and persistent buffers.
  NamedTensors StateDict() const;
  /// Copies values by name, converting dtype and device. Throws Error that lists every missing,
  /// unexpected and misshapen tensor, before anything is written.
  void LoadStateDict(const NamedTensors& state) const;

  /// Direct children, in order of registration.
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const {
    return children_;
  }
  /// This module ("") and all below it.
  std::vector<std::pair<std::string, Module*>> NamedModules();

  /// Training mode (dropout on) or evaluation mode, for the whole tree.
  void Train(bool training = true);
  bool training() const { return training_; }

  void ZeroGrad() const;

  /// Called before Forward; a defined result replaces the input. Returns a number for RemoveHook.
  int RegisterForwardPreHook(ForwardPreHook hook);
  /// Called after Forward; a defined result replaces the output.
  int RegisterForwardHook(ForwardHook hook);
  void RemoveHook(int id);
  /// Whether somebody watches Forward: then no caller may fuse this module with its neighbours.
  bool HasForwardHooks() const { return !forward_pre_hooks_.empty() || !forward_hooks_.empty(); }

 protected:
  /// Shapes as the derived class says.
  virtual Tensor Forward(const Tensor& x, const ForwardContext& context) = 0;

  // Parameters, buffers and children share one space of names: each throws Error for a taken one.

  /// Takes part in training: requires a gradient. Returns the tensor.
  Tensor RegisterParameter(std::string name, Tensor tensor);
  /// State that is not trained; in the state dict if persistent.
  Tensor RegisterBuffer(std::string name, Tensor tensor, bool persistent = true);
  template <typename T>
  std::shared_ptr<T> RegisterModule(std::string name, std::shared_ptr<T> module) {
    AddChild(std::move(name), module);
    return module;
  }

 private:
  struct Buffer {
    std::string name;
    Tensor tensor;
    bool persistent;
  };

  void AddChild(std::string name, std::shared_ptr<Module> module);
  void CheckNewName(const std::string& name) const;
  void Visit(const std::string& prefix,
             const std::function<void(const std::string& prefix, const Module&)>& visitor) const;

  NamedTensors parameters_;
  std::vector<Buffer> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::map<int, ForwardPreHook> forward_pre_hooks_;
  std::map<int, ForwardHook> forward_hooks_;
  bool training_ = true;
};

}  // namespace infini_train::nn
