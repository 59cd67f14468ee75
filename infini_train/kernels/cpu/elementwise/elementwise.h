#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "infini_train/core/scalar.h"
#include "infini_train/kernels/cpu/elementwise/strided.h"
#include "infini_train/kernels/cpu/parallel.h"

/// Element-wise kernels are loops over contiguous arrays of a compute type. The engine here brings
/// every layout and stored type to them: operands that are contiguous along the innermost dimension
/// and stored in the compute type are used in place, others pass through tiles in the first-level
/// cache. So a loop is compiled for the compute types only: float (which also serves the half
/// types), double and the integers (uint8 also serves bool).
namespace infini_train::cpu {

/// The type in which a loop sees elements of `dtype`.
constexpr DataType ComputeDataType(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return DataType::kFloat32;
    case DataType::kBool:
      return DataType::kUInt8;
    default:
      return dtype;
  }
}

/// Computes `n` elements of the operands (outputs first), each contiguous in its compute type. An
/// output may be one of the inputs.
using ElementwiseLoop = void (*)(std::byte* const* operands, std::int64_t n);

/// An op's loops by the type of its inputs.
class LoopTable {
 public:
  /// `loop` sees elements of the compute type of T; the one for float serves the half types too.
  template <typename T>
  constexpr LoopTable& Set(ElementwiseLoop loop) {
    loops_[static_cast<int>(DataTypeOf<T>())] = loop;
    if (DataTypeOf<T>() == DataType::kFloat32) {
      loops_[static_cast<int>(DataType::kFloat16)] = loop;
      loops_[static_cast<int>(DataType::kBFloat16)] = loop;
    }
    return *this;
  }
  /// The loops write bool, whatever they read.
  constexpr LoopTable& SetPredicate() {
    is_predicate_ = true;
    return *this;
  }
  bool is_predicate() const { return is_predicate_; }
  /// Throws Error naming the op when it has no loop for the type.
  ElementwiseLoop Find(std::string_view op, DataType dtype) const {
    const ElementwiseLoop loop = loops_[static_cast<int>(dtype)];
    if (loop == nullptr) ThrowUnsupported(op, dtype);
    return loop;
  }

 private:
  [[noreturn]] void ThrowUnsupported(std::string_view op, DataType dtype) const;

  std::array<ElementwiseLoop, kNumDataTypes> loops_ = {};
  bool is_predicate_ = false;
};

/// Below this many elements of an elementary function a second thread costs more than it saves.
inline constexpr std::int64_t kFunctionGrain = 4 * 1024;

/// Runs a loop over operands of one shape; the first `num_outputs` are written. Each operand's
/// compute_dtype must be ComputeDataType(dtype).
void RunElementwise(const Dims& shape, std::span<const Operand> operands, int num_outputs,
                    ElementwiseLoop loop, std::int64_t grain = kElementGrain);

/// A tensor seen in its compute type. Throws Error naming the op when that is not `compute_dtype`.
Operand ComputeOperand(std::string_view op, const Tensor& tensor, DataType compute_dtype);

/// An input of an element-wise op: a tensor, or one number for all elements (exact in the compute
/// type, not rounded to a half type).
class ElementwiseInput {
 public:
  ElementwiseInput(const Tensor& tensor) : tensor_(&tensor) {}  // NOLINT: that is what it is for
  ElementwiseInput(Scalar number) : number_(number) {}          // NOLINT

  const Tensor* tensor() const { return tensor_; }
  Scalar number() const { return number_; }

 private:
  const Tensor* tensor_ = nullptr;
  Scalar number_ = 0;
};

/// Writes a number in the representation of `dtype` to `bytes`.
void StoreScalar(Scalar number, DataType dtype, std::byte* bytes);

/// Runs `table`'s loop for the type of the first input, a tensor. Throws Error naming the op when
/// an operand's type does not fit.
void RunElementwise(std::string_view op, const LoopTable& table, const Tensor& out,
                    std::initializer_list<ElementwiseInput> inputs,
                    std::int64_t grain = kElementGrain);

}  // namespace infini_train::cpu
