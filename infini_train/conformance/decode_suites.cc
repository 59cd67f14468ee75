#include <cmath>

#include "infini_train/conformance/suites.h"

namespace infini_train::conformance {
namespace {

// Shapes are [rows, outputs, inputs].
template <bool kGated, bool kNorm, bool kResidual>
std::function<void()> NormGemvCall(Trial& trial, const Dims& shape) {
  const std::int64_t products = kGated ? 2 * shape[1] : shape[1];
  const Tensor x = trial.Input({shape[0], shape[2]});
  const Tensor norm_weight = kNorm ? trial.Input({shape[2]}) : Tensor();
  const Tensor weight = trial.Input({products, shape[2]});
  const Tensor bias = kGated ? Tensor() : trial.Input({products});
  const Tensor residual = kResidual ? trial.Input({shape[0], shape[1]}) : Tensor();
  Tensor out = trial.Output({shape[0], shape[1]});
  // Gates and what they let through are sums of products, and so are their roundings.
  trial.SetMagnitude(kGated ? std::sqrt(static_cast<double>(shape[2])) : 1);
  return [=]() mutable {
    Call<op::NormGemv>(out, x, norm_weight, weight, bias, residual, 1e-5, kGated);
  };
}
double NormGemvOperations(const Dims& shape) {
  return 30 + static_cast<double>(shape[2]);
}

// Shapes are [batch, heads, key/value heads, capacity, head size]; sequences of different lengths.
template <bool kRotates, bool kNorm>
std::function<void()> CachedAttentionCall(Trial& trial, const Dims& shape) {
  const std::int64_t size = shape[4];
  std::vector<double> held;
  for (std::int64_t b = 0; b < shape[0]; ++b)
    held.push_back(static_cast<double>((b + 1) * (shape[3] - 1) / shape[0]));
  const Tensor qkv = trial.Input({shape[0], (shape[1] + 2 * shape[2]) * size});
  const Tensor lengths = trial.FixedValues({shape[0]}, DataType::kInt32, held);
  const Tensor cos = kRotates ? trial.StatInput({shape[3], size / 2}) : Tensor();
  const Tensor sin = kRotates ? trial.StatInput({shape[3], size / 2}) : Tensor();
  const Tensor query_norm = kNorm ? trial.Input({size}) : Tensor();
  const Tensor key_norm = kNorm ? trial.Input({size}) : Tensor();
  Tensor keys = trial.InOut({shape[0], shape[2], shape[3], size});
  Tensor values = trial.InOut({shape[0], shape[2], shape[3], size});
  Tensor out = trial.Output({shape[0], shape[1] * size});
  if (kNorm) trial.SetMagnitude(4);
  const AttentionParams params{.scale = 1 / std::sqrt(static_cast<double>(size))};
  return [=]() mutable {
    Call<op::CachedAttention>(out, keys, values, qkv, lengths, cos, sin, query_norm, key_norm, 1e-5,
                              params);
  };
}
double CachedAttentionOperations(const Dims& shape) {
  return 40 + static_cast<double>(shape[3] + shape[4]);
}

}  // namespace

void AppendDecodeSuites(std::vector<OpSuite>& suites) {
  const std::vector<Dims> products = {{1, 1, 1}, {1, 33, 64}, {3, 10, 70}, {5, 9, 520}, {20, 6, 8}};
  const auto gemv = [&](TrialBody body, const Dims& benchmark) {
    suites.push_back({.op = OpId::kNormGemv,
                      .dtypes = kFloatingTypes,
                      .layouts = kRowMajor,
                      .shapes = products,
                      .body = body,
                      .operations = NormGemvOperations,
                      .benchmark_shape = benchmark,
                      .rounds_intermediates = true});
  };
  gemv(&NormGemvCall<false, false, false>, {1, 512, 512});
  gemv(&NormGemvCall<false, true, true>, {});
  gemv(&NormGemvCall<true, true, false>, {});
  gemv(&NormGemvCall<true, false, true>, {});

  const std::vector<Dims> caches = {
      {1, 1, 1, 1, 2}, {1, 4, 2, 70, 16}, {3, 6, 2, 33, 64}, {1, 5, 1, 140, 80}, {2, 3, 1, 9, 256}};
  const auto attention = [&](TrialBody body, const Dims& benchmark) {
    suites.push_back({.op = OpId::kCachedAttention,
                      .dtypes = kFloatingTypes,
                      .layouts = kRowMajor,
                      .shapes = caches,
                      .body = body,
                      .operations = CachedAttentionOperations,
                      .benchmark_shape = benchmark,
                      .rounds_intermediates = true});
  };
  attention(&CachedAttentionCall<true, false>, {1, 8, 2, 256, 64});
  attention(&CachedAttentionCall<false, false>, {});
  attention(&CachedAttentionCall<true, true>, {});
}

}  // namespace infini_train::conformance
