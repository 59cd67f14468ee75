#include <algorithm>
#include <cstdint>
#include <string>

#include "backends/simt/dialect.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

template <typename T>
struct RotaryArguments {
  T* out;
  const T* x;
  const ComputeType<T>* cos;
  const ComputeType<T>* sin;
  std::int64_t heads, length, pairs;
  std::int64_t rows;  // batch * heads * length
  std::int64_t out_strides[3], x_strides[3];
  std::int64_t cos_stride, sin_stride;
  bool inverse;
};

// (a, b) -> (a cos - b sin, a sin + b cos), kWidth pairs of a row per lane.
template <typename T, int kWidth, bool kInterleaved>
SIMT_KERNEL void RotaryKernel(RotaryArguments<T> args) {
  using C = ComputeType<T>;
  const std::int64_t per_row = args.pairs / kWidth;
  for (std::int64_t i = GlobalThreadIndex(); i < args.rows * per_row; i += GlobalThreadCount()) {
    const std::int64_t row = i / per_row;
    const std::int64_t j = (i - row * per_row) * kWidth;
    const std::int64_t head = row / args.length;
    const std::int64_t t = row - head * args.length;
    const std::int64_t b = head / args.heads;
    const std::int64_t h = head - b * args.heads;
    const T* x = args.x + b * args.x_strides[0] + h * args.x_strides[1] + t * args.x_strides[2];
    T* out = args.out + b * args.out_strides[0] + h * args.out_strides[1] + t * args.out_strides[2];
    // Where the two vectors that hold the pairs lie.
    const std::int64_t low_at = kInterleaved ? 2 * j : j;
    const std::int64_t high_at = kInterleaved ? 2 * j + kWidth : j + args.pairs;
    Vec<T, kWidth> low = Load<kWidth>(x + low_at);
    Vec<T, kWidth> high = Load<kWidth>(x + high_at);
    const Vec<C, kWidth> cos = Load<kWidth>(args.cos + t * args.cos_stride + j);
    const Vec<C, kWidth> sin = Load<kWidth>(args.sin + t * args.sin_stride + j);
    for (int p = 0; p < kWidth; ++p) {
      T& first = kInterleaved ? (2 * p < kWidth ? low[2 * p] : high[2 * p - kWidth]) : low[p];
      T& second =
          kInterleaved ? (2 * p + 1 < kWidth ? low[2 * p + 1] : high[2 * p + 1 - kWidth]) : high[p];
      const C a_value = ToCompute(first);
      const C b_value = ToCompute(second);
      const C s = args.inverse ? -sin[p] : sin[p];
      first = FromCompute<T>(a_value * cos[p] - b_value * s);
      second = FromCompute<T>(a_value * s + b_value * cos[p]);
    }
    Store(out + low_at, low);
    Store(out + high_at, high);
  }
}

void CheckLastStride(const char* name, const Tensor& tensor) {
  if (tensor.size(-1) > 1 && tensor.strides().back() != 1) {
    throw Error(std::string("Rotary: expected last stride 1 of ") + name + ", got strides " +
                tensor.strides().ToString());
  }
}

/// The widest vector in which all rows of an array may be read.
template <typename T>
int RowWidth(const T* data, const Dims& strides) {
  int width = VectorWidth(data);
  for (int i = 0; i < strides.size() - 1; ++i)
    width = std::min(width, VectorWidth(strides[i]));
  return width;
}

void Rotary(const Context& context, Tensor& out, const Tensor& x, const Tensor& cos,
            const Tensor& sin, bool interleaved, bool inverse) {
  if (x.numel() == 0) return;
  CheckLastStride("x", x);
  CheckLastStride("out", out);
  CheckLastStride("cos", cos);
  CheckLastStride("sin", sin);
  DispatchFloating("Rotary", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    constexpr int kWidth = kMaxVectorWidth<C>;
    RotaryArguments<T> args{};
    args.out = out.data<T>();
    args.x = x.data<T>();
    args.cos = cos.data<C>();
    args.sin = sin.data<C>();
    args.heads = x.size(1);
    args.length = x.size(2);
    args.pairs = x.size(3) / 2;
    args.rows = x.size(0) * args.heads * args.length;
    std::copy_n(out.strides().begin(), 3, args.out_strides);
    std::copy_n(x.strides().begin(), 3, args.x_strides);
    args.cos_stride = cos.strides()[0];
    args.sin_stride = sin.strides()[0];
    args.inverse = inverse;
    const bool vector =
        std::min({VectorWidth(args.pairs), RowWidth(args.x, x.strides()),
                  RowWidth(args.out, out.strides()), RowWidth(args.cos, cos.strides()),
                  RowWidth(args.sin, sin.strides())}) >= kWidth;
    const auto launch = [&](auto kernel, int width) {
      Launch(context, Linear(args.rows * args.pairs, width), kernel, args);
    };
    if (vector) {
      launch(interleaved ? &RotaryKernel<T, kWidth, true> : &RotaryKernel<T, kWidth, false>,
             kWidth);
    } else {
      launch(interleaved ? &RotaryKernel<T, 1, true> : &RotaryKernel<T, 1, false>, 1);
    }
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(Rotary, &Rotary);

}  // namespace infini_train::simt
