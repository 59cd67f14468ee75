#pragma once

#include <vector>

#include "infini_train/conformance/trial.h"

namespace infini_train::conformance {

inline constexpr DataType kFloatingTypes[] = {DataType::kFloat32, DataType::kBFloat16,
                                              DataType::kFloat16, DataType::kFloat64};
inline constexpr DataType kAllTypes[] = {
    DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16,
    DataType::kFloat64, DataType::kInt64,    DataType::kInt32,
    DataType::kUInt8,   DataType::kUInt16,   DataType::kBool};
inline constexpr DataType kArithmeticTypes[] = {DataType::kFloat32, DataType::kBFloat16,
                                                DataType::kFloat16, DataType::kFloat64,
                                                DataType::kInt64,   DataType::kInt32};
inline constexpr DataType kBoolOnly[] = {DataType::kBool};
inline constexpr DataType kIndexTypes[] = {DataType::kInt64, DataType::kInt32};
inline constexpr DataType kFloat32Only[] = {DataType::kFloat32};

inline constexpr Layout kAnyStrides[] = {Layout::kContiguous, Layout::kShifted, Layout::kTransposed,
                                         Layout::kSliced,     Layout::kStepped, Layout::kExpanded};
/// For ops whose callers pass row-major tensors.
inline constexpr Layout kRowMajor[] = {Layout::kContiguous, Layout::kShifted};
inline constexpr Layout kContiguousOnly[] = {Layout::kContiguous};

/// The extents at which kernels break: around groups of lanes, odd tails, vocabularies.
inline constexpr std::int64_t kRowLengths[] = {1, 31, 32, 33, 63, 64, 65, 1000, 50257};

inline double One(const Dims&) {
  return 1;
}
/// A function of the mathematical library.
inline double Five(const Dims&) {
  return 5;
}
/// Two functions, or an optimizer step.
inline double Ten(const Dims&) {
  return 10;
}
/// Exact results.
inline double Zero(const Dims&) {
  return 0;
}
/// A sum over the last number of the shape, with a few functions around it.
inline double LastExtent(const Dims& shape) {
  return 10 + static_cast<double>(shape.back());
}

// The suites of the groups of op_list.h, each in a source of its own.
void AppendElementwiseSuites(std::vector<OpSuite>& suites);
void AppendReductionSuites(std::vector<OpSuite>& suites);
void AppendMatmulSuites(std::vector<OpSuite>& suites);
void AppendIndexSuites(std::vector<OpSuite>& suites);
void AppendSequenceSuites(std::vector<OpSuite>& suites);
void AppendFp8Suites(std::vector<OpSuite>& suites);
void AppendExpertSuites(std::vector<OpSuite>& suites);
void AppendOptimizerSuites(std::vector<OpSuite>& suites);
void AppendDecodeSuites(std::vector<OpSuite>& suites);

}  // namespace infini_train::conformance
