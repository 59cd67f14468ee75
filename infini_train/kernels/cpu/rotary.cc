#include <fmt/format.h>

#include <cstdint>

#include "infini_train/core/error.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/row.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// One head at one position: (a, b) -> (a cos - b sin, a sin + b cos), b times -sin when inverse.
template <typename T, bool interleaved>
void RotateRow(T* out, const T* x, const ComputeType<T>* cos, const ComputeType<T>* sin,
               ComputeType<T> direction, std::int64_t pairs) {
  using C = ComputeType<T>;
#pragma omp simd
  for (std::int64_t j = 0; j < pairs; ++j) {
    const std::int64_t first = interleaved ? 2 * j : j;
    const std::int64_t second = interleaved ? 2 * j + 1 : j + pairs;
    const C a = C(x[first]);
    const C b = C(x[second]);
    const C s = direction * sin[j];
    Store(out[first], a * cos[j] - b * s);
    Store(out[second], a * s + b * cos[j]);
  }
}

template <typename T, bool interleaved>
void RotateAll(Tensor& out, const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse) {
  using C = ComputeType<T>;
  const Dims& shape = x.shape();
  const Dims& xs = x.strides();
  const Dims& os = out.strides();
  const std::int64_t pairs = shape[3] / 2;
  // Heads inside of positions or positions inside of heads, as x lies in memory.
  const int inner = xs[1] < xs[2] ? 1 : 2;
  const int outer = 3 - inner;
  const std::int64_t inner_size = shape[inner];
  const std::int64_t outer_size = shape[outer];
  const std::int64_t cos_stride = cos.strides()[0];
  const std::int64_t sin_stride = sin.strides()[0];
  const T* x_data = x.data<T>();
  T* out_data = out.data<T>();
  const C* cos_data = cos.data<C>();
  const C* sin_data = sin.data<C>();
  const C direction = inverse ? C(-1) : C(1);
  const std::int64_t grain = RowGrain(inner_size * shape[3]);
  ParallelFor(0, shape[0] * outer_size, grain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t batch = i / outer_size;
      const std::int64_t o = i % outer_size;
      const T* x_row = x_data + batch * xs[0] + o * xs[outer];
      T* out_row = out_data + batch * os[0] + o * os[outer];
      for (std::int64_t k = 0; k < inner_size; ++k) {
        const std::int64_t position = inner == 2 ? k : o;
        RotateRow<T, interleaved>(out_row + k * os[inner], x_row + k * xs[inner],
                                  cos_data + position * cos_stride,
                                  sin_data + position * sin_stride, direction, pairs);
      }
    }
  });
}

void CheckLastStride(const char* name, const Tensor& tensor) {
  if (tensor.size(-1) > 1 && tensor.strides().back() != 1) {
    throw Error(fmt::format("Rotary: expected last stride 1 of {}, got strides {}", name,
                            tensor.strides().ToString()));
  }
}

void Rotary(const KernelContext&, Tensor& out, const Tensor& x, const Tensor& cos,
            const Tensor& sin, bool interleaved, bool inverse) {
  if (x.numel() == 0) return;
  CheckLastStride("x", x);
  CheckLastStride("out", out);
  CheckLastStride("cos", cos);
  CheckLastStride("sin", sin);
  DispatchFloating("Rotary", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto run = interleaved ? &RotateAll<T, true> : &RotateAll<T, false>;
    run(out, x, cos, sin, inverse);
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, Rotary, &Rotary);

}  // namespace infini_train::cpu
