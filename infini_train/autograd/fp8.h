#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/params.h"

/// Linear functions whose products run in FP8 with delayed per-tensor scaling (Micikevicius et al.
/// 2022): activations and weights in E4M3, gradients in E5M2. Sums, biases and results keep their
/// types.
namespace infini_train {

/// A matrix in FP8: [M, K], and transposed, each of them where it is wanted.
struct Fp8Matrix {
  Tensor codes;
  Tensor transposed;
  Tensor scale;
  Fp8Format format = Fp8Format::kE4M3;
};

/// One of the ops Fp8Quantize.. with its inputs: called with its outputs, the scale and the format.
using Fp8Pass = std::function<void(Tensor& out, Tensor& transposed, Tensor& column_sums,
                                   Tensor& amax, const Tensor& scale, Fp8Format format)>;

/// A linear layer's input that is there in FP8 alone.
struct Fp8Activation {
  /// What the recorded graph knows it by: of its shape and type, with its gradient, but without
  /// its numbers.
  Tensor handle;
  Fp8Matrix matrix;  ///< of the rows
};

/// Which copies of a matrix are wanted, and where the sums of its columns go, if anywhere.
struct Fp8Wanted {
  bool codes = true;
  bool transposed = true;
  Tensor column_sums = {};
};

/// The scale to quantise a tensor with, and where its magnitudes are recorded, if anywhere.
struct Fp8ScaleUse {
  Tensor scale;
  Tensor amax;
  Fp8Format format = Fp8Format::kE4M3;
};

/// What the scales of some tensors have come from, for checkpoints.
struct Fp8ScalesState {
  Tensor scale;     ///< [T] float32: what numbers are multiplied by, powers of two
  Tensor amax;      ///< [T] float32: largest magnitudes since the last Update
  Tensor history;   ///< [T, Fp8Scales::kHistoryLength] float32: those of earlier steps
  Tensor has_past;  ///< [T] uint8, 0 or 1: whether the tensor was ever recorded
};

/// The scales of the tensors that a model quantises, on one device. A scale follows the largest
/// magnitude that its tensor had in the last steps; a tensor without a past is measured first.
/// Nothing waits for the device.
class INFINI_TRAIN_API Fp8Scales {
 public:
  /// Steps that a scale looks back on.
  static constexpr std::int64_t kHistoryLength = 16;

  /// For the tensors 0, 1, … of these formats.
  Fp8Scales(const std::vector<Fp8Format>& formats, Device device);

  /// How tensor number `tensor` is quantised by someone else; `pass` measures it where it has no
  /// past. Where not `record`, the scale is the one that recording would have used, but nothing is
  /// remembered.
  Fp8ScaleUse Use(std::int64_t tensor, const Fp8Pass& pass, bool record);
  /// Quantises it, of `shape` [M, K].
  Fp8Matrix Quantize(std::int64_t tensor, const Dims& shape, const Fp8Wanted& wanted,
                     const Fp8Pass& pass, bool record);

  /// What Update goes by: the largest magnitudes since the last one, and in the steps before it.
  /// Ranks that share a step take the largest of all of them first, and so keep equal scales.
  std::vector<Tensor> Magnitudes() const { return {all_.amax, all_.history}; }

  /// Ends a step, after its last backward pass: scales follow what was recorded.
  void Update();
  /// Number of calls of Update and LoadState.
  std::uint64_t num_updates() const { return num_updates_; }

  /// On the CPU. Waits for the device.
  Fp8ScalesState State() const;
  /// Goes on where `state` was taken. Throws Error unless it is of as many tensors.
  void LoadState(const Fp8ScalesState& state);

 private:
  /// What belongs to some of the tensors.
  struct Rows {
    Tensor scales;   ///< [T, 2]
    Tensor amax;     ///< [T]
    Tensor history;  ///< [T, kHistoryLength]
    Tensor largest;  ///< [T]

    void Update();
  };
  struct Entry {
    Rows rows;     ///< of the one tensor
    Tensor scale;  ///< [2]
    Tensor amax;   ///< []
    Fp8Format format = Fp8Format::kE4M3;
    bool has_past = false;
  };

  Rows all_;
  std::vector<Entry> entries_;
  std::uint64_t num_updates_ = 0;
};

/// One linear layer's places among the scales of its model, and its quantised weight.
class INFINI_TRAIN_API Fp8LinearState {
 public:
  /// Formats of what a layer quantises: its input, its weight, and its output's gradient.
  static constexpr Fp8Format kFormats[] = {Fp8Format::kE4M3, Fp8Format::kE4M3, Fp8Format::kE5M2};

  /// Layer `index` of those that share `scales`, which were made for kFormats of each layer.
  Fp8LinearState(std::shared_ptr<Fp8Scales> scales, std::int64_t index);

  Fp8Scales& scales() const { return *scales_; }

  Fp8ScaleUse UseInput(const Fp8Pass& pass, bool record) const;
  Fp8Matrix QuantizeInput(const Dims& shape, const Fp8Wanted& wanted, const Fp8Pass& pass,
                          bool record) const;
  /// Both copies where `record`, else at least the first; kept until the weight or the scales
  /// change.
  Fp8Matrix QuantizeWeight(const Tensor& weight, bool record);
  /// The second copy alone, recorded, for a layer that asks for nothing else.
  Fp8Matrix QuantizeTransposedWeight(const Tensor& weight);
  Fp8Matrix QuantizeGradient(const Dims& shape, const Fp8Wanted& wanted, const Fp8Pass& pass) const;

 private:
  bool IsCurrent(const Tensor& weight) const;
  Fp8Matrix KeepWeight(const Tensor& weight, const Fp8Wanted& wanted, bool record);

  std::shared_ptr<Fp8Scales> scales_;
  std::int64_t first_;
  Fp8Matrix weight_;
  // What weight_ is the copy of, and whether it was recorded.
  const void* weight_data_ = nullptr;
  std::uint64_t weight_version_ = 0;
  std::uint64_t weight_updates_ = 0;
  bool weight_recorded_ = false;
};

/// Linear(x, weight, bias) in FP8, of Linear's result type, which must be float32 or bfloat16.
/// While nothing is recorded (NoGrad) the scales stay as they are. Backward throws Error when the
/// scales were updated since. An Fp8Activation x was made for `state`.
INFINI_TRAIN_API Tensor Fp8Linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                  const std::shared_ptr<Fp8LinearState>& state);
INFINI_TRAIN_API Tensor Fp8Linear(const Fp8Activation& x, const Tensor& weight, const Tensor& bias,
                                  const std::shared_ptr<Fp8LinearState>& state);

/// Fp8Linear(Gelu(Fp8Linear(x, fc_weight, fc_bias)), proj_weight, proj_bias): GELU and its gradient
/// are computed while they are quantised.
INFINI_TRAIN_API Tensor Fp8GeluMlp(const Tensor& x, const Tensor& fc_weight, const Tensor& fc_bias,
                                   const Tensor& proj_weight, const Tensor& proj_bias,
                                   bool tanh_approximation,
                                   const std::shared_ptr<Fp8LinearState>& fc,
                                   const std::shared_ptr<Fp8LinearState>& proj);
INFINI_TRAIN_API Tensor Fp8GeluMlp(const Fp8Activation& x, const Tensor& fc_weight,
                                   const Tensor& fc_bias, const Tensor& proj_weight,
                                   const Tensor& proj_bias, bool tanh_approximation,
                                   const std::shared_ptr<Fp8LinearState>& fc,
                                   const std::shared_ptr<Fp8LinearState>& proj);

/// AddLayerNorm and AddRmsNorm whose norm is quantised at once, as the input of `consumer`: no
/// other numbers of it are written. `transposed`: whether the consumer's weight needs a gradient.
INFINI_TRAIN_API std::pair<Tensor, Fp8Activation> Fp8AddLayerNorm(
    const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps,
    const Fp8LinearState& consumer, bool transposed);
INFINI_TRAIN_API std::pair<Tensor, Fp8Activation> Fp8AddRmsNorm(const Tensor& x,
                                                                const Tensor& residual,
                                                                const Tensor& weight, double eps,
                                                                const Fp8LinearState& consumer,
                                                                bool transposed);

/// LinearCrossEntropy whose gradients come from products in FP8. Logits and loss are those of
/// LinearCrossEntropy. `state` is of the head: its input's and its weight's scales follow what is
/// recorded, and the gradient of the logits, which is bounded, needs none.
INFINI_TRAIN_API Tensor Fp8LinearCrossEntropy(const Tensor& hidden, const Tensor& weight,
                                              const Tensor& targets, double scale,
                                              Fp8LinearState& state, std::int64_t ignore_index);

}  // namespace infini_train
