#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "infini_train/kernels/cpu/indices.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/row.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

void ExpertSort(const KernelContext&, Tensor& rows, Tensor& counts, const Tensor& experts) {
  const std::int64_t num_experts = counts.numel();
  CheckIndices("ExpertSort", "expert", experts, num_experts);
  DispatchIndex("ExpertSort", experts.dtype(), [&](auto tag) {
    const auto* expert = experts.data<typename decltype(tag)::type>();
    auto* row = rows.data<std::int64_t>();
    auto* count = counts.data<std::int64_t>();
    std::fill_n(count, num_experts, 0);
    for (std::int64_t i = 0; i < experts.numel(); ++i)
      ++count[expert[i]];
    std::vector<std::int64_t> next(static_cast<std::size_t>(num_experts), 0);
    for (std::size_t e = 1; e < next.size(); ++e)
      next[e] = next[e - 1] + count[e - 1];
    for (std::int64_t i = 0; i < experts.numel(); ++i)
      row[i] = next[static_cast<std::size_t>(expert[i])]++;
  });
}

/// The extents of a permutation, whose rows have been checked.
struct Geometry {
  Geometry(std::string_view op, const Tensor& tokens, const Tensor& permuted, const Tensor& rows)
      : hidden(tokens.size(-1)), num_tokens(tokens.size(0)), choices(rows.size(-1)) {
    CheckIndices(op, "row", rows, permuted.size(0), -1);
  }
  std::int64_t hidden;
  std::int64_t num_tokens;
  std::int64_t choices;
};

void ExpertPermute(const KernelContext&, Tensor& out, const Tensor& x, const Tensor& rows,
                   const Tensor& weights) {
  const Geometry g("ExpertPermute", x, out, rows);
  DispatchFloating("ExpertPermute", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const T* x_data = x.data<T>();
    T* out_data = out.data<T>();
    const auto* row = rows.data<std::int64_t>();
    const C* weight = weights.defined() ? weights.data<C>() : nullptr;
    ParallelFor(0, g.num_tokens, RowGrain(g.hidden * g.choices),
                [=](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t i = begin * g.choices; i < end * g.choices; ++i) {
                    if (row[i] < 0) continue;
                    const T* source = x_data + i / g.choices * g.hidden;
                    T* target = out_data + row[i] * g.hidden;
                    if (weight == nullptr) {
                      std::copy_n(source, g.hidden, target);
                      continue;
                    }
                    const C factor = weight[i];
#pragma omp simd
                    for (std::int64_t c = 0; c < g.hidden; ++c)
                      Store(target[c], C(source[c]) * factor);
                  }
                });
  });
}

void ExpertUnpermute(const KernelContext&, Tensor& out, const Tensor& y, const Tensor& rows,
                     const Tensor& weights) {
  const Geometry g("ExpertUnpermute", out, y, rows);
  DispatchFloating("ExpertUnpermute", y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const T* y_data = y.data<T>();
    T* out_data = out.data<T>();
    const auto* row = rows.data<std::int64_t>();
    const C* weight = weights.defined() ? weights.data<C>() : nullptr;
    ParallelFor(0, g.num_tokens, RowGrain(g.hidden * g.choices),
                [=](std::int64_t begin, std::int64_t end) {
                  constexpr std::int64_t kColumns = 128;
                  for (std::int64_t t = begin; t < end; ++t) {
                    for (std::int64_t first = 0; first < g.hidden; first += kColumns) {
                      const std::int64_t columns = std::min(kColumns, g.hidden - first);
                      C sums[kColumns] = {};
                      for (std::int64_t i = t * g.choices; i < (t + 1) * g.choices; ++i) {
                        if (row[i] < 0) continue;
                        const T* source = y_data + row[i] * g.hidden + first;
                        const C factor = weight == nullptr ? C(1) : weight[i];
#pragma omp simd
                        for (std::int64_t c = 0; c < columns; ++c)
                          sums[c] += C(source[c]) * factor;
                      }
                      T* target = out_data + t * g.hidden + first;
#pragma omp simd
                      for (std::int64_t c = 0; c < columns; ++c)
                        Store(target[c], sums[c]);
                    }
                  }
                });
  });
}

void ExpertWeightsBackward(const KernelContext&, Tensor& grad_weights, const Tensor& grad_out,
                           const Tensor& y, const Tensor& rows) {
  const Geometry g("ExpertWeightsBackward", grad_out, y, rows);
  DispatchFloating("ExpertWeightsBackward", y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const T* grad_out_data = grad_out.data<T>();
    const T* y_data = y.data<T>();
    const auto* row = rows.data<std::int64_t>();
    C* grad_weight = grad_weights.data<C>();
    ParallelFor(0, g.num_tokens, RowGrain(g.hidden * g.choices),
                [=](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t i = begin * g.choices; i < end * g.choices; ++i) {
                    if (row[i] < 0) {
                      grad_weight[i] = C(0);
                      continue;
                    }
                    const T* a = grad_out_data + i / g.choices * g.hidden;
                    const T* b = y_data + row[i] * g.hidden;
                    const auto [sum] =
                        Sums<C>(0, g.hidden, [=](std::int64_t c) { return C(a[c]) * C(b[c]); });
                    grad_weight[i] = static_cast<C>(sum);
                  }
                });
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, ExpertSort, &ExpertSort);
REGISTER_KERNEL(kCPU, ExpertPermute, &ExpertPermute);
REGISTER_KERNEL(kCPU, ExpertUnpermute, &ExpertUnpermute);
REGISTER_KERNEL(kCPU, ExpertWeightsBackward, &ExpertWeightsBackward);

}  // namespace infini_train::cpu
