#include <cstddef>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/packed.h"
#include "backends/simt/strided.h"
#include "backends/simt/types.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// Vectors of N elements of rows [rows, F], numbered through, and where they lie in packed rows
/// [rows, 2F].
struct PackedRows {
  std::int64_t width;    ///< F
  std::int64_t vectors;  ///< of all rows
  std::int64_t row_vectors;
  bool is_narrow;  ///< numbers fit 31 bits
  Divider divider;

  PackedRows(const Tensor& rows, int vector)
      : width(rows.size(-1)),
        vectors(rows.numel() / vector),
        row_vectors(width / vector),
        is_narrow(vectors < std::int64_t{1} << 31),
        divider(is_narrow ? Divider::By(static_cast<std::uint32_t>(row_vectors)) : Divider()) {}

  /// The first element of vector v of N in the gates; the ups are `width` behind.
  template <int N>
  SIMT_DEVICE std::int64_t Gate(std::int64_t v) const {
    const std::int64_t row =
        is_narrow ? static_cast<std::int64_t>(divider.Quotient(static_cast<std::uint32_t>(v)))
                  : v / row_vectors;
    return v * N + row * width;
  }
};

/// 1 / (1 + e^-x) beside elements of type T. Half types round away what the fast functions lack;
/// with others the arithmetic, not the memory, would take the time.
template <typename T>
SIMT_DEVICE ComputeType<T> SigmoidOf(ComputeType<T> x) {
  using C = ComputeType<T>;
  if constexpr (std::is_same_v<T, C>) {
    return Sigmoid(x);
  } else {
    return FastReciprocal(C(1) + FastExp2(-x * std::numbers::log2e_v<C>));
  }
}

/// A lane takes so many vectors, a block apart, and reads them all before it uses the first.
constexpr int kForwardBatch = 4;
constexpr int kBackwardBatch = 2;

template <typename T, int N>
SIMT_KERNEL void SwiGluKernel(T* out, const T* x, PackedRows rows) {
  using C = ComputeType<T>;
  for (std::int64_t first = BlockIndex() * BlockSize() * kForwardBatch + ThreadIndex();
       first < rows.vectors; first += GlobalThreadCount() * kForwardBatch) {
    Packed<T, N> gates[kForwardBatch];
    Packed<T, N> ups[kForwardBatch];
    SIMT_UNROLL
    for (int j = 0; j < kForwardBatch; ++j) {
      const std::int64_t v = first + j * BlockSize();
      if (v >= rows.vectors) continue;
      const T* const gate = x + rows.Gate<N>(v);
      gates[j] = Packed<T, N>::Of(gate);
      ups[j] = Packed<T, N>::Of(gate + rows.width);
    }
    SIMT_UNROLL
    for (int j = 0; j < kForwardBatch; ++j) {
      const std::int64_t v = first + j * BlockSize();
      if (v >= rows.vectors) continue;
      C gate[N], up[N];
      gates[j].Widen(gate);
      ups[j].Widen(up);
      Vec<T, N> result;
      for (int k = 0; k < N; ++k)
        result[k] =
            FromCompute<T>(AtLeast(gate[k], -kSiluLimit<C>) * SigmoidOf<T>(gate[k]) * up[k]);
      Store(out + v * N, result);
    }
  }
}

/// `out` may be null.
template <typename T, int N>
SIMT_KERNEL void SwiGluBackwardKernel(T* grad_x, T* out, const T* grad_y, const T* x,
                                      PackedRows rows) {
  using C = ComputeType<T>;
  for (std::int64_t first = BlockIndex() * BlockSize() * kBackwardBatch + ThreadIndex();
       first < rows.vectors; first += GlobalThreadCount() * kBackwardBatch) {
    Packed<T, N> gates[kBackwardBatch];
    Packed<T, N> ups[kBackwardBatch];
    Packed<T, N> grads[kBackwardBatch];
    SIMT_UNROLL
    for (int j = 0; j < kBackwardBatch; ++j) {
      const std::int64_t v = first + j * BlockSize();
      if (v >= rows.vectors) continue;
      const T* const gate = x + rows.Gate<N>(v);
      gates[j] = Packed<T, N>::Of(gate);
      ups[j] = Packed<T, N>::Of(gate + rows.width);
      grads[j] = Packed<T, N>::Of(grad_y + v * N);
    }
    SIMT_UNROLL
    for (int j = 0; j < kBackwardBatch; ++j) {
      const std::int64_t v = first + j * BlockSize();
      if (v >= rows.vectors) continue;
      C gate[N], up[N], grad[N];
      gates[j].Widen(gate);
      ups[j].Widen(up);
      grads[j].Widen(grad);
      Vec<T, N> grad_gate;
      Vec<T, N> grad_up;
      Vec<T, N> result;
      for (int k = 0; k < N; ++k) {
        const C sigmoid = SigmoidOf<T>(gate[k]);
        const C silu = AtLeast(gate[k], -kSiluLimit<C>) * sigmoid;
        grad_gate[k] = FromCompute<T>(grad[k] * up[k] * SiluSlope(gate[k], sigmoid));
        grad_up[k] = FromCompute<T>(grad[k] * silu);
        result[k] = FromCompute<T>(silu * up[k]);
      }
      T* const to = grad_x + rows.Gate<N>(v);
      Store(to, grad_gate);
      Store(to + rows.width, grad_up);
      if (out != nullptr) Store(out + v * N, result);
    }
  }
}

void SwiGlu(const Context& context, Tensor& out, const Tensor& x) {
  if (out.numel() == 0) return;
  DispatchTypes(FloatingTypes{}, "SwiGlu", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType("SwiGlu", x, out.dtype());
    const int width = VectorWidth(out.data<T>(), x.data<T>(), out.size(-1));
    DispatchWidth<kMaxVectorWidth<T>, 1>(width, [&](auto n) {
      const PackedRows rows(out, n());
      Launch(context, Linear(rows.vectors, kForwardBatch), &SwiGluKernel<T, n()>, out.data<T>(),
             x.data<T>(), rows);
    });
  });
}

void SwiGluBackward(const Context& context, Tensor& grad_x, Tensor& out, const Tensor& grad_y,
                    const Tensor& x) {
  if (grad_y.numel() == 0) return;
  DispatchTypes(FloatingTypes{}, "SwiGluBackward", grad_x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType("SwiGluBackward", grad_y, grad_x.dtype());
    CheckDataType("SwiGluBackward", x, grad_x.dtype());
    if (out.defined()) CheckDataType("SwiGluBackward", out, grad_x.dtype());
    T* const out_data = out.defined() ? out.data<T>() : nullptr;
    const int width =
        VectorWidth(grad_x.data<T>(), out_data, grad_y.data<T>(), x.data<T>(), grad_y.size(-1));
    DispatchWidth<kMaxVectorWidth<T>, 1>(width, [&](auto n) {
      const PackedRows rows(grad_y, n());
      Launch(context, Linear(rows.vectors, kBackwardBatch), &SwiGluBackwardKernel<T, n()>,
             grad_x.data<T>(), out_data, grad_y.data<T>(), x.data<T>(), rows);
    });
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(SwiGlu, &SwiGlu);
SIMT_REGISTER_KERNEL(SwiGluBackward, &SwiGluBackward);

}  // namespace infini_train::simt
