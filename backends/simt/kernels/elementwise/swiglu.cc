#include <cstddef>
#include <cstdint>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

struct SwiGluOp {
  template <typename T>
  SIMT_DEVICE T operator()(T gate, T up) const {
    return Silu(gate) * up;
  }
};

template <typename T>
struct SwiGluGradients {
  T gate;
  T up;
  T out;
};

template <typename T>
SIMT_DEVICE SwiGluGradients<T> SwiGluSlopes(T grad, T gate, T up) {
  const T sigmoid = Sigmoid(gate);
  const T silu = AtLeast(gate, -kSiluLimit<T>) * sigmoid;
  return {grad * up * SiluSlope(gate, sigmoid), grad * silu, silu * up};
}

/// The arrays of the loop; kOut is kGradY again where it is not asked for.
enum BackwardArray : std::uint8_t { kGradGate, kGradUp, kGradY, kGate, kUp, kOut, kArrays };
using BackwardLoop = StridedLoop<kArrays>;

/// N neighbours of an item, from its element i on: rows are contiguous.
template <typename T, int N, bool with_out>
SIMT_DEVICE void WriteGradients(const BackwardLoop& loop, const std::int64_t (&offsets)[kArrays],
                                int i) {
  const Vec<T, N> grad = Load<N>(loop.At<const T>(kGradY, offsets[kGradY] + i));
  const Vec<T, N> gate = Load<N>(loop.At<const T>(kGate, offsets[kGate] + i));
  const Vec<T, N> up = Load<N>(loop.At<const T>(kUp, offsets[kUp] + i));
  Vec<T, N> grad_gate;
  Vec<T, N> grad_up;
  Vec<T, N> out;
  for (int k = 0; k < N; ++k) {
    const auto slopes = SwiGluSlopes(ToCompute(grad[k]), ToCompute(gate[k]), ToCompute(up[k]));
    grad_gate[k] = FromResult<T>(slopes.gate);
    grad_up[k] = FromResult<T>(slopes.up);
    out[k] = FromResult<T>(slopes.out);
  }
  Store(loop.At<T>(kGradGate, offsets[kGradGate] + i), grad_gate);
  Store(loop.At<T>(kGradUp, offsets[kGradUp] + i), grad_up);
  if constexpr (with_out) Store(loop.At<T>(kOut, offsets[kOut] + i), out);
}

template <typename T, bool with_out>
SIMT_KERNEL void SwiGluBackwardKernel(BackwardLoop loop) {
  constexpr int kWidth = VectorElements<T>();
  for (std::int64_t item = GlobalThreadIndex(); item < loop.items.numel;
       item += GlobalThreadCount()) {
    std::int64_t offsets[kArrays];
    const std::int64_t first = loop.items.Locate(item, offsets) * loop.width;
    if (loop.width == kWidth && first + kWidth <= loop.inner_size) {
      WriteGradients<T, kWidth, with_out>(loop, offsets, 0);
      continue;
    }
    for (int i = 0; i < loop.width && first + i < loop.inner_size; ++i)
      WriteGradients<T, 1, with_out>(loop, offsets, i);
  }
}

/// One half of packed rows [.., 2F] as an array of shape [.., F].
Array PackedHalf(const Tensor& packed, int half) {
  Array array = Array::Of(packed, packed.shape());
  array.data =
      static_cast<std::byte*>(array.data) + half * packed.size(-1) / 2 * array.element_size;
  return array;
}

void SwiGlu(const Context& context, Tensor& out, const Tensor& x) {
  DispatchTypes(FloatingTypes{}, "SwiGlu", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType("SwiGlu", x, out.dtype());
    const StridedLoop<3> loop(out.shape(),
                              {Array::Of(out, out.shape()), PackedHalf(x, 0), PackedHalf(x, 1)},
                              VectorElements<T>());
    LaunchElementwise<T, T, T>(context, SwiGluOp(), loop);
  });
}

void SwiGluBackward(const Context& context, Tensor& grad_x, Tensor& out, const Tensor& grad_y,
                    const Tensor& x) {
  DispatchTypes(FloatingTypes{}, "SwiGluBackward", grad_x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType("SwiGluBackward", grad_y, grad_x.dtype());
    CheckDataType("SwiGluBackward", x, grad_x.dtype());
    if (out.defined()) CheckDataType("SwiGluBackward", out, grad_x.dtype());
    const Dims& shape = grad_y.shape();
    const BackwardLoop loop(
        shape,
        {PackedHalf(grad_x, 0), PackedHalf(grad_x, 1), Array::Of(grad_y, shape), PackedHalf(x, 0),
         PackedHalf(x, 1), Array::Of(out.defined() ? out : grad_y, shape)},
        VectorElements<T>());
    Launch(context, Linear(loop.items.numel),
           out.defined() ? &SwiGluBackwardKernel<T, true> : &SwiGluBackwardKernel<T, false>, loop);
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(SwiGlu, &SwiGlu);
SIMT_REGISTER_KERNEL(SwiGluBackward, &SwiGluBackward);

}  // namespace infini_train::simt
