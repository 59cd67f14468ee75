#include <cstdint>
#include <type_traits>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/packed.h"
#include "backends/simt/strided.h"
#include "backends/simt/types.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// Vectors of rows [rows, F], numbered through by an I that none of them overflows, and where they
/// lie in packed rows [rows, 2F].
template <typename I>
struct PackedRows {
  I vectors;      ///< of all rows
  I row_vectors;  ///< of F
  Divider divider = {};

  PackedRows(const Tensor& rows, int vector)
      : vectors(static_cast<I>(rows.numel() / vector)),
        row_vectors(static_cast<I>(rows.size(-1) / vector)) {
    if constexpr (kIsNarrow) divider = Divider::By(row_vectors);
  }

  /// The number of vector v's gates there; that of its ups is row_vectors more.
  SIMT_DEVICE I Gate(I v) const {
    const I row = kIsNarrow ? static_cast<I>(divider.Quotient(static_cast<std::uint32_t>(v)))
                            : v / row_vectors;
    return v + row * row_vectors;
  }

 private:
  static constexpr bool kIsNarrow = std::is_same_v<I, std::uint32_t>;
};

template <int N, typename T, typename I>
SIMT_DEVICE T* VectorAt(T* array, I v) {
  return array + static_cast<std::int64_t>(v) * N;
}

/// Calls `body(PackedRows<I>)` for the I that suits the number of vectors in `rows`. A lane may
/// count on beyond it as far as a grid has lanes.
template <typename Body>
void DispatchPackedRows(const Tensor& rows, int vector, const Body& body) {
  if (rows.numel() / vector < std::int64_t{1} << 30) {
    body(PackedRows<std::uint32_t>(rows, vector));
  } else {
    body(PackedRows<std::int64_t>(rows, vector));
  }
}

/// A lane takes so many vectors, a block apart, and reads them all before it uses the first.
constexpr int kForwardBatch = 4;
constexpr int kBackwardBatch = 2;

template <typename T, int N, typename I>
SIMT_KERNEL void SwiGluKernel(T* out, const T* x, PackedRows<I> rows) {
  using C = ComputeType<T>;
  const auto step = static_cast<I>(BlockSize());
  for (auto first = static_cast<I>(BlockIndex() * BlockSize() * kForwardBatch + ThreadIndex());
       first < rows.vectors; first += static_cast<I>(GlobalThreadCount() * kForwardBatch)) {
    Packed<T, N> gates[kForwardBatch];
    Packed<T, N> ups[kForwardBatch];
    SIMT_UNROLL
    for (int j = 0; j < kForwardBatch; ++j) {
      const I v = first + static_cast<I>(j) * step;
      if (v >= rows.vectors) continue;
      const I gate = rows.Gate(v);
      gates[j] = Packed<T, N>::Of(VectorAt<N>(x, gate));
      ups[j] = Packed<T, N>::Of(VectorAt<N>(x, gate + rows.row_vectors));
    }
    SIMT_UNROLL
    for (int j = 0; j < kForwardBatch; ++j) {
      const I v = first + static_cast<I>(j) * step;
      if (v >= rows.vectors) continue;
      C gate[N], up[N];
      gates[j].Widen(gate);
      ups[j].Widen(up);
      Vec<T, N> result;
      for (int k = 0; k < N; ++k)
        result[k] = FromCompute<T>(Silu<T>(gate[k]) * up[k]);
      Store(VectorAt<N>(out, v), result);
    }
  }
}

/// `out` may be null.
template <typename T, int N, typename I>
SIMT_KERNEL void SwiGluBackwardKernel(T* grad_x, T* out, const T* grad_y, const T* x,
                                      PackedRows<I> rows) {
  using C = ComputeType<T>;
  const auto step = static_cast<I>(BlockSize());
  for (auto first = static_cast<I>(BlockIndex() * BlockSize() * kBackwardBatch + ThreadIndex());
       first < rows.vectors; first += static_cast<I>(GlobalThreadCount() * kBackwardBatch)) {
    Packed<T, N> gates[kBackwardBatch];
    Packed<T, N> ups[kBackwardBatch];
    Packed<T, N> grads[kBackwardBatch];
    SIMT_UNROLL
    for (int j = 0; j < kBackwardBatch; ++j) {
      const I v = first + static_cast<I>(j) * step;
      if (v >= rows.vectors) continue;
      const I gate = rows.Gate(v);
      gates[j] = Packed<T, N>::Of(VectorAt<N>(x, gate));
      ups[j] = Packed<T, N>::Of(VectorAt<N>(x, gate + rows.row_vectors));
      grads[j] = Packed<T, N>::Of(VectorAt<N>(grad_y, v));
    }
    SIMT_UNROLL
    for (int j = 0; j < kBackwardBatch; ++j) {
      const I v = first + static_cast<I>(j) * step;
      if (v >= rows.vectors) continue;
      C gate[N], up[N], grad[N];
      gates[j].Widen(gate);
      ups[j].Widen(up);
      grads[j].Widen(grad);
      Vec<T, N> grad_gate;
      Vec<T, N> grad_up;
      Vec<T, N> result;
      for (int k = 0; k < N; ++k) {
        const C silu = Silu<T>(gate[k]);
        grad_gate[k] = FromCompute<T>(grad[k] * up[k] * SiluSlope<T>(gate[k]));
        grad_up[k] = FromCompute<T>(grad[k] * silu);
        result[k] = FromCompute<T>(silu * up[k]);
      }
      const I to = rows.Gate(v);
      Store(VectorAt<N>(grad_x, to), grad_gate);
      Store(VectorAt<N>(grad_x, to + rows.row_vectors), grad_up);
      if (out != nullptr) Store(VectorAt<N>(out, v), result);
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
      DispatchPackedRows(out, n(), [&]<typename I>(const PackedRows<I>& rows) {
        Launch(context, Linear(static_cast<std::int64_t>(rows.vectors), kForwardBatch),
               &SwiGluKernel<T, n(), I>, out.data<T>(), x.data<T>(), rows);
      });
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
      DispatchPackedRows(grad_y, n(), [&]<typename I>(const PackedRows<I>& rows) {
        Launch(context, Linear(static_cast<std::int64_t>(rows.vectors), kBackwardBatch),
               &SwiGluBackwardKernel<T, n(), I>, grad_x.data<T>(), out_data, grad_y.data<T>(),
               x.data<T>(), rows);
      });
    });
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(SwiGlu, &SwiGlu);
SIMT_REGISTER_KERNEL(SwiGluBackward, &SwiGluBackward);

}  // namespace infini_train::simt
