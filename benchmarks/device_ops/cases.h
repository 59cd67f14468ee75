#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "infini_train/core/tensor.h"

/// What the program device_ops measures: one call each, with tensors of its own.
namespace infini_train::device_ops {

/// A call that may be repeated, and the least that it must do.
struct Measured {
  std::function<void()> call;
  double flops = 0;
  double bytes = 0;
};

struct Case {
  /// "group/op/shape"; --filter matches a part of it.
  std::string name;
  /// Makes the tensors on the device.
  std::function<Measured(Device)> make;
};

/// Normal numbers of standard deviation 0.02, made on the device.
Tensor Random(const Dims& shape, DataType dtype, Device device);

/// Random indices below `limit`.
Tensor Indices(const Dims& shape, std::int64_t limit, Device device);

/// Bytes of the tensors together.
double Bytes(std::initializer_list<Tensor> tensors);

// The groups of cases, each in a source of its own.
void AppendAttentionCases(std::vector<Case>& cases);
void AppendDecodeCases(std::vector<Case>& cases);
void AppendExpertCases(std::vector<Case>& cases);
void AppendGemmCases(std::vector<Case>& cases);
void AppendFp8Cases(std::vector<Case>& cases);
void AppendMemoryCases(std::vector<Case>& cases);

}  // namespace infini_train::device_ops
