#include <cstdint>

#include "backends/simt/dialect.h"
#include "infini_train/core/dtype.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// One vector of a token's values by number: choices of a token are neighbours.
template <typename T, int N>
SIMT_KERNEL void ExpertPermuteKernel(T* out, const T* x, const std::int64_t* rows,
                                     const ComputeType<T>* weights, std::int64_t num_choices,
                                     std::int64_t choices, std::int64_t hidden) {
  const std::int64_t vectors = hidden / N;
  for (std::int64_t i = GlobalThreadIndex(); i < num_choices * vectors; i += GlobalThreadCount()) {
    const std::int64_t choice = i / vectors;
    const std::int64_t column = i % vectors * N;
    const std::int64_t row = Load(rows + choice);
    if (row < 0 || row >= num_choices) continue;
    Vec<T, N> values = Load<N>(x + choice / choices * hidden + column);
    if (weights != nullptr) {
      const ComputeType<T> weight = Load(weights + choice);
      for (int k = 0; k < N; ++k)
        values[k] = FromCompute<T>(ToCompute(values[k]) * weight);
    }
    Store(out + row * hidden + column, values);
  }
}

template <typename T, int N>
SIMT_KERNEL void ExpertUnpermuteKernel(T* out, const T* y, const std::int64_t* rows,
                                       const ComputeType<T>* weights, std::int64_t num_tokens,
                                       std::int64_t choices, std::int64_t hidden) {
  using C = ComputeType<T>;
  const std::int64_t vectors = hidden / N;
  for (std::int64_t i = GlobalThreadIndex(); i < num_tokens * vectors; i += GlobalThreadCount()) {
    const std::int64_t token = i / vectors;
    const std::int64_t column = i % vectors * N;
    C sums[N] = {};
    for (std::int64_t choice = token * choices; choice < (token + 1) * choices; ++choice) {
      const std::int64_t row = Load(rows + choice);
      if (row < 0 || row >= num_tokens * choices) continue;
      const C weight = weights == nullptr ? C(1) : Load(weights + choice);
      const Vec<T, N> values = Load<N>(y + row * hidden + column);
      for (int k = 0; k < N; ++k)
        sums[k] += ToCompute(values[k]) * weight;
    }
    Vec<T, N> result;
    for (int k = 0; k < N; ++k)
      result[k] = FromCompute<T>(sums[k]);
    Store(out + token * hidden + column, result);
  }
}

/// A group of lanes for each dot product.
template <typename T, int N>
SIMT_KERNEL void ExpertWeightsBackwardKernel(ComputeType<T>* grad_weights, const T* grad_out,
                                             const T* y, const std::int64_t* rows,
                                             std::int64_t num_choices, std::int64_t choices,
                                             std::int64_t hidden) {
  using C = ComputeType<T>;
  const int lane = GroupLane<kGroupWidth>();
  for (std::int64_t choice = GlobalThreadIndex() / kGroupWidth; choice < num_choices;
       choice += GlobalThreadCount() / kGroupWidth) {
    const std::int64_t row = Load(rows + choice);
    const bool is_kept = row >= 0 && row < num_choices;
    C sum = 0;
    for (std::int64_t column = lane * N; is_kept && column < hidden; column += kGroupWidth * N) {
      const Vec<T, N> a = Load<N>(grad_out + choice / choices * hidden + column);
      const Vec<T, N> b = Load<N>(y + row * hidden + column);
      for (int k = 0; k < N; ++k)
        sum += ToCompute(a[k]) * ToCompute(b[k]);
    }
    sum = ReduceGroup<kGroupWidth>(sum, SumOp());
    if (lane == 0) Store(grad_weights + choice, sum);
  }
}

/// Calls `body(tag of T, width)` with the widest vector that two matrices of rows allow.
template <typename Body>
void DispatchVectors(const char* op, const Tensor& a, const Tensor& b, const Body& body) {
  DispatchFloating(op, a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    DispatchWidth<kMaxVectorWidth<T>, 1>(VectorWidth(a.data<T>(), b.data<T>(), a.size(-1)),
                                         [&](auto width) { body(tag, width); });
  });
}

template <typename T>
const ComputeType<T>* WeightsOf(const Tensor& weights) {
  return weights.defined() ? weights.data<ComputeType<T>>() : nullptr;
}

void ExpertPermute(const Context& context, Tensor& out, const Tensor& x, const Tensor& rows,
                   const Tensor& weights) {
  DispatchVectors("ExpertPermute", out, x, [&](auto tag, auto width) {
    using T = typename decltype(tag)::type;
    Launch(context, Linear(out.numel() / width()), &ExpertPermuteKernel<T, width()>, out.data<T>(),
           x.data<T>(), rows.data<std::int64_t>(), WeightsOf<T>(weights), rows.numel(),
           rows.size(-1), x.size(-1));
  });
}

void ExpertUnpermute(const Context& context, Tensor& out, const Tensor& y, const Tensor& rows,
                     const Tensor& weights) {
  DispatchVectors("ExpertUnpermute", out, y, [&](auto tag, auto width) {
    using T = typename decltype(tag)::type;
    Launch(context, Linear(out.numel() / width()), &ExpertUnpermuteKernel<T, width()>,
           out.data<T>(), y.data<T>(), rows.data<std::int64_t>(), WeightsOf<T>(weights),
           out.size(0), rows.size(-1), y.size(-1));
  });
}

void ExpertWeightsBackward(const Context& context, Tensor& grad_weights, const Tensor& grad_out,
                           const Tensor& y, const Tensor& rows) {
  DispatchVectors("ExpertWeightsBackward", grad_out, y, [&](auto tag, auto width) {
    using T = typename decltype(tag)::type;
    Launch(context, Linear(rows.numel() * kGroupWidth), &ExpertWeightsBackwardKernel<T, width()>,
           grad_weights.data<ComputeType<T>>(), grad_out.data<T>(), y.data<T>(),
           rows.data<std::int64_t>(), rows.numel(), rows.size(-1), y.size(-1));
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(ExpertPermute, &ExpertPermute);
SIMT_REGISTER_KERNEL(ExpertUnpermute, &ExpertUnpermute);
SIMT_REGISTER_KERNEL(ExpertWeightsBackward, &ExpertWeightsBackward);

}  // namespace infini_train::simt
