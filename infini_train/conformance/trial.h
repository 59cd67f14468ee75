#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infini_train/conformance/layout.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::conformance {

/// The tensors of one call of an op. A suite's body asks for them in a fixed order, twice: once on
/// the device under test, in the dtype and layout under test, and once as the reference, on the CPU
/// in float64 with the values that the first call's tensors had after rounding. So the same few
/// lines make the call and its reference.
class Trial {
 public:
  struct Setting {
    Device device;
    DataType dtype = DataType::kFloat32;
    Layout layout = Layout::kContiguous;
    /// The reference computes in `dtype` too: for random numbers and for integers.
    bool reference_in_same_dtype = false;
    /// False where the call is only timed.
    bool has_reference = true;
  };

  explicit Trial(const Setting& setting) : setting_(setting) {}

  DataType dtype() const { return IsReference() ? reference_dtype() : setting_.dtype; }
  /// The dtype of statistics beside data of dtype().
  DataType stat_dtype() const {
    return dtype() == DataType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32;
  }

  /// Uniform in [low, high) (small integers where dtype() is an integer, both values of bool), of
  /// dtype() and the layout under test.
  Tensor Input(const Dims& shape, double low = -1, double high = 1);
  /// The same, of stat_dtype() and contiguous.
  Tensor StatInput(const Dims& shape, double low = -1, double high = 1);
  /// Values that the caller chose, contiguous: of dtype(), of stat_dtype(), or of a type that the
  /// op fixes, which the reference keeps.
  Tensor DataValues(const Dims& shape, const std::vector<double>& values);
  Tensor StatValues(const Dims& shape, const std::vector<double>& values);
  Tensor FixedValues(const Dims& shape, DataType dtype, const std::vector<double>& values);
  /// int64 in [0, limit), contiguous.
  Tensor Indices(const Dims& shape, std::int64_t limit);
  /// bool, of the layout under test.
  Tensor Mask(const Dims& shape);
  /// To be written and compared: of dtype(), the layout under test (contiguous for kExpanded).
  Tensor Output(const Dims& shape);
  /// The same of a type that the op fixes, which the reference keeps.
  Tensor FixedOutput(const Dims& shape, DataType dtype);
  Tensor StatOutput(const Dims& shape);
  /// To be updated in place and compared.
  Tensor InOut(const Dims& shape, double low = -1, double high = 1);
  Tensor StatInOut(const Dims& shape, double low = -1, double high = 1);
  /// The float32 copy of a low-precision parameter, updated in place and compared; undefined where
  /// the parameters are float32 or float64, and in the reference.
  Tensor Master(const Tensor& parameter);

  /// The fewest bytes that the call must move, where that is not each tensor once.
  void SetLeastBytes(std::size_t bytes) { least_bytes_ = bytes; }
  std::size_t least_bytes() const { return least_bytes_; }

  /// The magnitude of the values that results are differences of, where it may exceed theirs:
  /// errors are measured against it.
  void SetMagnitude(double magnitude) { magnitude_ = magnitude; }
  double magnitude() const { return magnitude_; }

  /// From now on the same requests give the reference's tensors.
  void BecomeReference();
  bool IsReference() const { return is_reference_; }

  /// A tensor that was written, and what it should hold.
  struct Comparison {
    const Tensor& actual;
    const Tensor& expected;
  };
  std::vector<Comparison> Comparisons() const;

 private:
  struct Item {
    Tensor actual;
    Tensor reference;
    bool written = false;
  };

  std::vector<double> DrawValues(const Dims& shape, double low, double high) const;
  DataType reference_dtype() const {
    return IsFloatingPoint(setting_.dtype) && !setting_.reference_in_same_dtype ? DataType::kFloat64
                                                                                : setting_.dtype;
  }
  enum class Role : std::uint8_t { kData, kStat, kFixed };

  Tensor Make(const Dims& shape, Role role, DataType fixed_dtype, Layout layout,
              const std::function<std::vector<double>()>& values, bool written);
  Layout writable_layout() const {
    return setting_.layout == Layout::kExpanded ? Layout::kContiguous : setting_.layout;
  }

  Setting setting_;
  bool is_reference_ = false;
  std::size_t next_ = 0;
  std::size_t least_bytes_ = 0;
  double magnitude_ = 0;
  std::vector<Item> items_;
  std::vector<Item> masters_;
};

/// Makes the arguments of a call and returns the call itself, which may be repeated.
using TrialBody = std::function<void()> (*)(Trial& trial, const Dims& shape);

/// A number that depends on the shape of a trial.
using ShapeFunction = double (*)(const Dims& shape);

/// One op, the calls that are tried, and how exact they must be.
struct OpSuite {
  OpId op;
  std::span<const DataType> dtypes;
  std::span<const Layout> layouts;
  /// What the numbers of a shape mean is up to the body.
  std::vector<Dims> shapes;
  TrialBody body;
  /// Roundings in a chain behind one element of the result: the number of terms of a sum, 5 for a
  /// function of the mathematical library.
  ShapeFunction operations;
  /// Measured with its first number grown until the time can be measured; empty: not measured.
  Dims benchmark_shape = {};
  /// Floating-point operations of a call, for ops that are bound by them.
  ShapeFunction flops = nullptr;
  bool reference_in_same_dtype = false;
  /// Kernels may round intermediate values to the half types.
  bool rounds_intermediates = false;
};

/// Suites for every op of ops/op_list.h, in its order; an op may have several.
INFINI_TRAIN_API const std::vector<OpSuite>& OpSuites();

}  // namespace infini_train::conformance
