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
};

template <typename T>
SIMT_DEVICE SwiGluGradients<T> SwiGluSlopes(T grad, T gate, T up) {
  const T sigmoid = Sigmoid(gate);
  return {grad * up * SiluSlope(gate, sigmoid), grad * AtLeast(gate, -kSiluLimit<T>) * sigmoid};
}

/// The arrays of the loop: grad_gate, grad_up, grad_y, gate, up.
template <typename T>
SIMT_KERNEL void SwiGluBackwardKernel(StridedLoop<5> loop) {
  constexpr int kWidth = VectorElements<T>();
  for (std::int64_t item = GlobalThreadIndex(); item < loop.items.numel;
       item += GlobalThreadCount()) {
    std::int64_t offsets[5];
    const std::int64_t first = loop.items.Locate(item, offsets) * loop.width;
    if (loop.width == kWidth && first + kWidth <= loop.inner_size) {
      const Vec<T, kWidth> grad = Load<kWidth>(loop.At<const T>(2, offsets[2]));
      const Vec<T, kWidth> gate = Load<kWidth>(loop.At<const T>(3, offsets[3]));
      const Vec<T, kWidth> up = Load<kWidth>(loop.At<const T>(4, offsets[4]));
      Vec<T, kWidth> grad_gate;
      Vec<T, kWidth> grad_up;
      for (int i = 0; i < kWidth; ++i) {
        const auto grads = SwiGluSlopes(ToCompute(grad[i]), ToCompute(gate[i]), ToCompute(up[i]));
        grad_gate[i] = FromResult<T>(grads.gate);
        grad_up[i] = FromResult<T>(grads.up);
      }
      Store(loop.At<T>(0, offsets[0]), grad_gate);
      Store(loop.At<T>(1, offsets[1]), grad_up);
      continue;
    }
    // All rows are contiguous.
    for (int i = 0; i < loop.width && first + i < loop.inner_size; ++i) {
      const auto grads = SwiGluSlopes(ToCompute(Load(loop.At<const T>(2, offsets[2] + i))),
                                      ToCompute(Load(loop.At<const T>(3, offsets[3] + i))),
                                      ToCompute(Load(loop.At<const T>(4, offsets[4] + i))));
      Store(loop.At<T>(0, offsets[0] + i), FromResult<T>(grads.gate));
      Store(loop.At<T>(1, offsets[1] + i), FromResult<T>(grads.up));
    }
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

void SwiGluBackward(const Context& context, Tensor& grad_x, const Tensor& grad_y, const Tensor& x) {
  DispatchTypes(FloatingTypes{}, "SwiGluBackward", grad_x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType("SwiGluBackward", grad_y, grad_x.dtype());
    CheckDataType("SwiGluBackward", x, grad_x.dtype());
    const StridedLoop<5> loop(
        grad_y.shape(),
        {PackedHalf(grad_x, 0), PackedHalf(grad_x, 1), Array::Of(grad_y, grad_y.shape()),
         PackedHalf(x, 0), PackedHalf(x, 1)},
        VectorElements<T>());
    Launch(context, Linear(loop.items.numel), &SwiGluBackwardKernel<T>, loop);
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(SwiGlu, &SwiGlu);
SIMT_REGISTER_KERNEL(SwiGluBackward, &SwiGluBackward);

}  // namespace infini_train::simt
