#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "infini_train/core/tensor.h"
#include "tests/common/device_test.h"

namespace infini_train::test {

/// A matrix product in float64.
struct Product {
  std::vector<double> values;
  std::vector<double> scales;  ///< sums of the terms' magnitudes
};

/// The definition of Gemm, for operands of one batch shape (or none for b). `former` and `bias` may
/// be empty.
inline Product Multiply(const Tensor& a, const Tensor& b, const std::vector<double>& bias,
                        const std::vector<double>& former) {
  const std::int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  const std::int64_t batch = a.rank() == 2 ? 1 : a.numel() / std::max<std::int64_t>(1, m * k);
  const std::vector<double> av = ToDoubles(a), bv = ToDoubles(b);
  Product result;
  for (std::int64_t row = 0; row < batch * m; ++row) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = bias.empty() ? 0 : bias[j];
      double scale = std::abs(sum);
      for (std::int64_t x = 0; x < k; ++x) {
        const double term = av[row * k + x] * bv[(row / m * k + x) * n + j];
        sum += term;
        scale += std::abs(term);
      }
      if (!former.empty()) {
        sum += former[row * n + j];
        scale += std::abs(former[row * n + j]);
      }
      result.values.push_back(sum);
      result.scales.push_back(scale);
    }
  }
  return result;
}

}  // namespace infini_train::test
