#include "backends/simt/kernels/sequence/rotary.h"

#include <cstdint>

#include "backends/simt/strided.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

template <typename T>
struct RotaryArguments {
  StridedIndex<4> vectors;  ///< of pairs: the first of each in out, x, cos and sin
  T* out;
  const T* x;
  const ComputeType<T>* cos;
  const ComputeType<T>* sin;
  std::int64_t pairs;
  bool inverse;
};

// (a, b) -> (a cos - b sin, a sin + b cos), kWidth pairs of a row per lane.
template <typename T, int kWidth, bool kInterleaved>
SIMT_KERNEL void RotaryKernel(RotaryArguments<T> args) {
  using C = ComputeType<T>;
  // Between the two vectors that hold the pairs.
  const std::int64_t apart = kInterleaved ? kWidth : args.pairs;
  for (std::int64_t i = GlobalThreadIndex(); i < args.vectors.numel; i += GlobalThreadCount()) {
    std::int64_t offsets[4];
    args.vectors.Locate(i, offsets);
    Vec<T, kWidth> low = Load<kWidth>(args.x + offsets[1]);
    Vec<T, kWidth> high = Load<kWidth>(args.x + offsets[1] + apart);
    C cos[kWidth], sin[kWidth];
    LoadNumbers(cos, args.cos + offsets[2]);
    LoadNumbers(sin, args.sin + offsets[3]);
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
    Store(args.out + offsets[0], low);
    Store(args.out + offsets[0] + apart, high);
  }
}

void Rotary(const Context& context, Tensor& out, const Tensor& x, const Tensor& cos,
            const Tensor& sin, bool interleaved, bool inverse) {
  if (x.numel() == 0) return;
  CheckRotaryStrides("Rotary", {{"x", &x}, {"out", &out}, {"cos", &cos}, {"sin", &sin}});
  DispatchFloating("Rotary", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    constexpr int kWidth = kMaxVectorWidth<T>;
    RotaryArguments<T> args{};
    args.out = out.data<T>();
    args.x = x.data<T>();
    args.cos = cos.data<C>();
    args.sin = sin.data<C>();
    args.pairs = x.size(3) / 2;
    args.inverse = inverse;
    const bool vector = HasRotaryVectors<T>(args.pairs, {&x, &out}, {&cos, &sin});
    const auto launch = [&](auto kernel, int width) {
      const std::int64_t step = interleaved ? 2 * width : width;
      const auto strides = [&](const Tensor& tensor) {
        return Dims{tensor.strides()[0], tensor.strides()[1], tensor.strides()[2], step};
      };
      const Dims out_strides = strides(out);
      const Dims x_strides = strides(x);
      const Dims cos_strides = {0, 0, cos.strides()[0], width};
      const Dims sin_strides = {0, 0, sin.strides()[0], width};
      args.vectors =
          StridedIndex<4>(MergedDims({x.size(0), x.size(1), x.size(2), args.pairs / width},
                                     {&out_strides, &x_strides, &cos_strides, &sin_strides}));
      Launch(context, Linear(args.vectors.numel), kernel, args);
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
