#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/core/device/device.h"
#include "infini_train/core/dims.h"
#include "infini_train/core/tensor.h"

namespace infini_train::test {

/// What a function under test gives: one tensor or several. Those that are not floating (indices)
/// take no part in backward.
struct Outputs {
  Outputs(Tensor tensor) { tensors.push_back(std::move(tensor)); }            // NOLINT
  Outputs(std::vector<Tensor> several) : tensors(std::move(several)) {}       // NOLINT
  Outputs(std::pair<Tensor, Tensor> two) : tensors{two.first, two.second} {}  // NOLINT

  std::vector<Tensor> tensors;
};

using Inputs = std::vector<Tensor>;

/// A differentiable input: random numbers in [low, high), or the given ones.
struct GradInput {
  Dims shape;
  double low = -2;
  double high = 2;
  std::vector<double> values = {};
};

struct GradCheck {
  std::string name;
  std::function<Outputs(const Inputs&)> function;
  std::vector<GradInput> inputs;
  /// Whether the inputs are also passed with stride 0 in their first dimension. Not for functions
  /// that have a kink where elements are equal.
  bool expanded = true;
  /// Roundings between an input and a result or gradient, for the check in float32, float16 and
  /// bfloat16; 0 leaves that check out.
  double operations = 8;
  /// Whether values in between may be stored in the type of the inputs.
  bool stores_between = false;
};

/// Compares the gradients of all inputs with central differences in float64: from contiguous and
/// strided inputs and incoming gradients, for each input alone and all together, and over two
/// backwards through one graph. Then compares results and gradients in the other floating types
/// with those in float64, and their types with the inputs'.
void CheckGradients(Device device, const GradCheck& check);

}  // namespace infini_train::test
