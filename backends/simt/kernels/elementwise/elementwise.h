#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "backends/simt/packed.h"
#include "backends/simt/strided.h"
#include "backends/simt/types.h"
#include "infini_train/core/scalar.h"

/// Element-wise kernels from a function of one element. A function is a struct with a templated
/// `operator()` on the compute types of the inputs; half types are seen as float.
namespace infini_train::simt {

/// Elements of a vector access to arrays of these types: the widest one fills 16 bytes.
template <typename... Ts>
constexpr int VectorElements() {
  std::size_t largest = 1;
  ((largest = sizeof(Ts) > largest ? sizeof(Ts) : largest), ...);
  return static_cast<int>(kMaxVectorBytes / largest);
}

/// A result as an element of an array.
template <typename T, typename Value>
SIMT_DEVICE T FromResult(Value value) {
  return FromCompute<T>(static_cast<ComputeType<T>>(value));
}

namespace detail {

template <int kWidth, typename T>
SIMT_DEVICE Packed<T, kWidth> LoadOrRepeat(const T* x, std::int64_t stride) {
  if (stride != 0) return Packed<T, kWidth>::Of(x);
  const T value = Load(x);
  Vec<T, kWidth> result;
  for (int i = 0; i < kWidth; ++i)
    result[i] = value;
  return Packed<T, kWidth>(result);
}

template <typename T, int kWidth>
struct Numbers {
  ComputeType<T> values[kWidth];

  SIMT_DEVICE explicit Numbers(const Packed<T, kWidth>& elements) { elements.Widen(values); }
};

template <int kWidth, typename Op, typename Out, typename... In>
SIMT_DEVICE void ApplyToVectors(const Op& op, Out* out, const Numbers<In, kWidth>&... inputs) {
  Vec<Out, kWidth> result;
  for (int i = 0; i < kWidth; ++i)
    result[i] = FromResult<Out>(op(inputs.values[i]...));
  Store(out, result);
}

template <typename Out, typename... In, int kArrays, typename Op, int... k>
SIMT_DEVICE void RunItem(const StridedLoop<kArrays>& loop, const Op& op, std::int64_t item,
                         std::integer_sequence<int, k...>) {
  constexpr int kWidth = VectorElements<Out, In...>();
  std::int64_t offsets[kArrays];
  const std::int64_t first = loop.items.Locate(item, offsets) * loop.width;
  if (loop.width == kWidth && first + kWidth <= loop.inner_size) {
    ApplyToVectors<kWidth>(
        op, loop.template At<Out>(0, offsets[0]),
        Numbers<In, kWidth>(LoadOrRepeat<kWidth>(loop.template At<const In>(k + 1, offsets[k + 1]),
                                                 loop.inner_strides[k + 1]))...);
    return;
  }
  for (int i = 0; i < loop.width && first + i < loop.inner_size; ++i) {
    Store(loop.template At<Out>(0, offsets[0] + i * loop.inner_strides[0]),
          FromResult<Out>(op(ToCompute(Load(loop.template At<const In>(
              k + 1, offsets[k + 1] + i * loop.inner_strides[k + 1])))...)));
  }
}

/// Vectors of one array, BlockSize() apart, that a lane reads before it uses the first.
template <typename T, int kWidth>
struct Batch {
  static constexpr int kCount = 2;
  Packed<T, kWidth> vectors[kCount];

  SIMT_DEVICE static Batch Of(const T* x, std::int64_t first, std::int64_t end) {
    Batch batch;
    SIMT_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const std::int64_t v = first + j * BlockSize();
      if (v < end) batch.vectors[j] = Packed<T, kWidth>::Of(x + v * kWidth);
    }
    return batch;
  }
};

template <int kWidth, typename Op, typename Out, typename... In>
SIMT_DEVICE void ApplyToBatch(const Op& op, Out* out, std::int64_t first, std::int64_t end,
                              const Batch<In, kWidth>&... inputs) {
  SIMT_UNROLL
  for (int j = 0; j < Batch<Out, kWidth>::kCount; ++j) {
    const std::int64_t v = first + j * BlockSize();
    if (v < end)
      ApplyToVectors<kWidth>(op, out + v * kWidth, Numbers<In, kWidth>(inputs.vectors[j])...);
  }
}

/// A loop that is flat.
template <typename Out, typename... In, int kArrays, typename Op, int... k>
SIMT_DEVICE void RunFlat(const StridedLoop<kArrays>& loop, const Op& op,
                         std::integer_sequence<int, k...>) {
  constexpr int kWidth = VectorElements<Out, In...>();
  constexpr int kBatch = Batch<Out, kWidth>::kCount;
  const std::int64_t vectors = loop.inner_size / kWidth;
  for (std::int64_t v = BlockIndex() * BlockSize() * kBatch + ThreadIndex(); v < vectors;
       v += GlobalThreadCount() * kBatch) {
    ApplyToBatch<kWidth>(
        op, loop.template At<Out>(0, 0), v, vectors,
        Batch<In, kWidth>::Of(loop.template At<const In>(k + 1, 0), v, vectors)...);
  }
  const std::int64_t i = vectors * kWidth + GlobalThreadIndex();
  if (i < loop.inner_size) {
    Store(loop.template At<Out>(0, i),
          FromResult<Out>(op(ToCompute(Load(loop.template At<const In>(k + 1, i)))...)));
  }
}

template <typename Op, typename Out, typename... In>
SIMT_KERNEL void ElementwiseKernel(StridedLoop<1 + static_cast<int>(sizeof...(In))> loop, Op op) {
  if (loop.is_flat)
    return RunFlat<Out, In...>(loop, op, std::make_integer_sequence<int, sizeof...(In)>());
  for (std::int64_t item = GlobalThreadIndex(); item < loop.items.numel;
       item += GlobalThreadCount())
    RunItem<Out, In...>(loop, op, item, std::make_integer_sequence<int, sizeof...(In)>());
}

}  // namespace detail

/// array 0 = op(arrays 1...), element by element, of elements Out and In.
template <typename Out, typename... In, typename Op>
void LaunchElementwise(const Context& context, const Op& op,
                       const StridedLoop<1 + static_cast<int>(sizeof...(In))>& loop) {
  const int per_lane = loop.is_flat ? detail::Batch<Out, VectorElements<Out, In...>()>::kCount : 1;
  Launch(context, Linear(loop.items.numel, per_lane), &detail::ElementwiseKernel<Op, Out, In...>,
         loop, op);
}
/// out = op(inputs...). The tensors' types have been checked.
template <typename Out, typename... In, typename Op>
void LaunchElementwise(const Context& context, const Op& op, const Tensor& out,
                       const std::conditional_t<true, Tensor, In>&... inputs) {
  const Dims& shape = out.shape();
  LaunchElementwise<Out, In...>(context, op,
                                StridedLoop<1 + static_cast<int>(sizeof...(In))>(
                                    shape, {Array::Of(out, shape), Array::Of(inputs, shape)...},
                                    VectorElements<Out, In...>()));
}

/// out = op_for(TypeTag<T>)(inputs...) where all are of T, one of the types. Throws Error naming
/// the op `name` where they are not.
template <typename TypeList, typename OpFor, typename... Inputs>
void RunElementwiseFor(const Context& context, std::string_view name, TypeList types,
                       const OpFor& op_for, const Tensor& out, const Inputs&... inputs) {
  DispatchTypes(types, name, out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    (CheckDataType(name, inputs, out.dtype()), ...);
    LaunchElementwise<T, std::conditional_t<true, T, Inputs>...>(context, op_for(tag), out,
                                                                 inputs...);
  });
}
/// The same with one function for all types.
template <typename TypeList, typename Op, typename... Inputs>
void RunElementwise(const Context& context, std::string_view name, TypeList types, const Op& op,
                    const Tensor& out, const Inputs&... inputs) {
  RunElementwiseFor(
      context, name, types, [&](auto) { return op; }, out, inputs...);
}

/// A function of two arguments with a number as its second.
template <typename Op, typename C>
struct WithNumber {
  C number;
  SIMT_DEVICE auto operator()(C x) const { return Op()(x, number); }
};

/// out = op(x, number). The number is exact in the compute type, not rounded to a half type.
template <typename Op, typename TypeList>
void RunWithNumber(const Context& context, std::string_view name, TypeList types, const Tensor& out,
                   const Tensor& x, Scalar number) {
  DispatchTypes(types, name, out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    CheckDataType(name, x, out.dtype());
    LaunchElementwise<T, T>(context, WithNumber<Op, C>{number.To<C>()}, out, x);
  });
}

}  // namespace infini_train::simt
