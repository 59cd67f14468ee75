#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "infini_train/kernels/cpu/elementwise/convert.h"
#include "infini_train/kernels/cpu/elementwise/elementwise.h"
#include "infini_train/kernels/cpu/indices.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// Checks every index, then gives them as int64.
Tensor CheckedIndices(std::string_view op, const Tensor& index, std::int64_t limit) {
  CheckIndices(op, "index", index, limit);
  if (index.dtype() == DataType::kInt64) return index;
  Tensor wide = Tensor::Empty(index.shape(), DataType::kInt64, index.device());
  Call<op::Copy>(wide, index);
  return wide;
}

/// A 1-D index that says the same for all positions in the other dimensions.
Operand ExpandedIndex(const Tensor& index, int dim, Dims& strides) {
  Operand operand = MakeOperand(index);
  strides = Dims::Filled(kMaxRank, 0);
  strides[dim] = index.strides()[0];
  operand.strides = &strides;
  operand.contiguous = false;
  return operand;
}

std::int64_t LoadIndex(const std::byte* pointer) {
  return *reinterpret_cast<const std::int64_t*>(pointer);
}

void CheckSameType(std::string_view op, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) {
    infini_train::detail::ThrowUnsupportedDataType(op, b.dtype(), ToString(a.dtype()));
  }
}

// Gathering.

template <typename T>
void GatherRun(std::byte* out, std::int64_t out_stride, const std::byte* index,
               std::int64_t index_stride, const std::byte* x, std::int64_t x_stride,
               std::int64_t x_dim_stride, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::memcpy(out + i * out_stride,
                x + i * x_stride + LoadIndex(index + i * index_stride) * x_dim_stride, sizeof(T));
  }
}

/// out[.., i, ..] = x[.., index[.., i, ..], ..] over out's shape.
void GatherAlong(const Tensor& out, const Tensor& x, const Operand& index, int dim) {
  Dims x_strides = x.strides();
  x_strides[dim] = 0;  // The index moves along it instead.
  Operand source = MakeOperand(x);
  source.strides = &x_strides;
  source.contiguous = false;
  const Operand operands[] = {MakeOperand(out), index, source};
  const StridedPlan plan(out.shape(), operands);
  const auto element_size = static_cast<std::int64_t>(SizeOf(out.dtype()));
  const std::int64_t dim_stride = ByteStride(x, dim);
  static constexpr decltype(&GatherRun<std::uint8_t>) kRuns[] = {
      &GatherRun<std::uint8_t>, &GatherRun<std::uint16_t>, &GatherRun<std::uint32_t>,
      &GatherRun<std::uint64_t>};
  const auto gather_run = kRuns[std::countr_zero(static_cast<std::size_t>(element_size))];
  const std::int64_t out_stride = plan.inner_stride(0);
  const std::int64_t index_stride = plan.inner_stride(1);
  const std::int64_t x_stride = plan.inner_stride(2);
  const bool copies_rows =
      index_stride == 0 && out_stride == element_size && x_stride == element_size;
  ParallelFor(0, plan.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    plan.ForEachRun(begin, end, [&](std::byte* const* pointers, std::int64_t n) {
      if (copies_rows) {
        std::memcpy(pointers[0], pointers[2] + LoadIndex(pointers[1]) * dim_stride,
                    static_cast<std::size_t>(n * element_size));
      } else {
        gather_run(pointers[0], out_stride, pointers[1], index_stride, pointers[2], x_stride,
                   dim_stride, n);
      }
    });
  });
}

void Gather(const KernelContext&, Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  CheckSameType("Gather", out, x);
  if (out.numel() == 0) return;
  const Tensor indices = CheckedIndices("Gather", index, x.size(dim));
  GatherAlong(out, x, MakeOperand(indices), dim);
}

void IndexSelect(const KernelContext&, Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  CheckSameType("IndexSelect", out, x);
  const Tensor indices = CheckedIndices("IndexSelect", index, x.size(dim));
  if (out.numel() == 0) return;
  Dims strides;
  GatherAlong(out, x, ExpandedIndex(indices, dim, strides), dim);
}

// Scattering. Two elements can meet only if they differ in their position along `dim` alone, so
// each line along it belongs to one thread, which walks it in order.

struct Assign {
  template <typename T>
  static T Apply(T, T source) {
    return source;
  }
};
struct Accumulate {
  template <typename T>
  static T Apply(T out, T source) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(out) +
                            static_cast<std::make_unsigned_t<T>>(source));
    } else {
      return out + source;
    }
  }
};

/// What lies between neighbours of each of out, index and src: neighbouring lines, or neighbours
/// along the dimension.
struct ScatterStrides {
  std::int64_t out;
  std::int64_t index;
  std::int64_t src;
};

/// `n` neighbouring lines of `length` elements.
template <typename Op, typename T>
void ScatterLines(std::byte* out, const std::byte* index, const std::byte* src,
                  const ScatterStrides& line, const ScatterStrides& along, std::int64_t length,
                  std::int64_t n) {
  // A few lines at a time share cache lines, whichever way the memory runs. Lines with one index
  // in common are rows, which are long.
  const std::int64_t strip = line.index == 0 ? n : 16;
  const auto element = [](std::byte* pointer) { return reinterpret_cast<T*>(pointer); };
  for (std::int64_t first = 0; first < n; first += strip) {
    const std::int64_t last = std::min(n, first + strip);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::byte* source = src + i * along.src;
      if (line.index == 0 && line.out == sizeof(T) && line.src == sizeof(T)) {
        T* to = element(out + LoadIndex(index + i * along.index) * along.out);
        const T* from = reinterpret_cast<const T*>(source);
#pragma omp simd
        for (std::int64_t j = first; j < last; ++j)
          to[j] = Op::Apply(to[j], from[j]);
        continue;
      }
      for (std::int64_t j = first; j < last; ++j) {
        const std::int64_t position = LoadIndex(index + i * along.index + j * line.index);
        T* to = element(out + j * line.out + position * along.out);
        *to = Op::Apply(*to, *reinterpret_cast<const T*>(source + j * line.src));
      }
    }
  }
}

using ScatterFunction = decltype(&ScatterLines<Assign, std::uint8_t>);

void ScatterAlong(const Tensor& out, const Operand& index, std::int64_t index_dim_stride,
                  const Tensor& src, int dim, ScatterFunction scatter) {
  const Operand operands[] = {MakeOperand(out), index, MakeOperand(src)};
  const StridedPlan lines = PlanLines(src.shape(), dim, operands);
  const ScatterStrides line = {lines.inner_stride(0), lines.inner_stride(1), lines.inner_stride(2)};
  const ScatterStrides along = {ByteStride(out, dim), index_dim_stride, ByteStride(src, dim)};
  const std::int64_t length = src.size(dim);
  ParallelFor(0, lines.numel(), RowGrain(length), [&](std::int64_t begin, std::int64_t end) {
    lines.ForEachRun(begin, end, [&](std::byte* const* pointers, std::int64_t n) {
      scatter(pointers[0], pointers[1], pointers[2], line, along, length, n);
    });
  });
}

ScatterFunction FindAccumulate(std::string_view op, DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return &ScatterLines<Accumulate, float>;
    case DataType::kFloat64:
      return &ScatterLines<Accumulate, double>;
    case DataType::kInt64:
      return &ScatterLines<Accumulate, std::int64_t>;
    case DataType::kInt32:
      return &ScatterLines<Accumulate, std::int32_t>;
    default:
      infini_train::detail::ThrowUnsupportedDataType(op, dtype, "a floating type, int64 or int32");
  }
}

/// Adds src to where index says. Half-precision sums run in float and are rounded once.
void AccumulateAlong(std::string_view op, Tensor& out, const Operand& index,
                     std::int64_t index_dim_stride, const Tensor& src, int dim) {
  CheckSameType(op, out, src);
  if (src.numel() == 0) return;
  if (IsFloatingPoint(out.dtype()) && SizeOf(out.dtype()) == 2) {
    Tensor wide_out = Tensor::Empty(out.shape(), DataType::kFloat32, out.device());
    Tensor wide_src = Tensor::Empty(src.shape(), DataType::kFloat32, out.device());
    Call<op::Copy>(wide_out, out);
    Call<op::Copy>(wide_src, src);
    ScatterAlong(wide_out, index, index_dim_stride, wide_src, dim,
                 &ScatterLines<Accumulate, float>);
    Call<op::Copy>(out, wide_out);
    return;
  }
  ScatterAlong(out, index, index_dim_stride, src, dim, FindAccumulate(op, out.dtype()));
}

void Scatter(const KernelContext&, Tensor& out, const Tensor& index, const Tensor& src, int dim) {
  CheckSameType("Scatter", out, src);
  if (src.numel() == 0) return;
  const Tensor indices = CheckedIndices("Scatter", index, out.size(dim));
  static constexpr ScatterFunction kFunctions[] = {
      &ScatterLines<Assign, std::uint8_t>, &ScatterLines<Assign, std::uint16_t>,
      &ScatterLines<Assign, std::uint32_t>, &ScatterLines<Assign, std::uint64_t>};
  ScatterAlong(out, MakeOperand(indices), ByteStride(indices, dim), src, dim,
               kFunctions[std::countr_zero(SizeOf(out.dtype()))]);
}

void ScatterAdd(const KernelContext&, Tensor& out, const Tensor& index, const Tensor& src,
                int dim) {
  const Tensor indices = CheckedIndices("ScatterAdd", index, out.size(dim));
  AccumulateAlong("ScatterAdd", out, MakeOperand(indices), ByteStride(indices, dim), src, dim);
}

void IndexAdd(const KernelContext&, Tensor& out, const Tensor& index, const Tensor& src, int dim) {
  const Tensor indices = CheckedIndices("IndexAdd", index, out.size(dim));
  Dims strides;
  AccumulateAlong("IndexAdd", out, ExpandedIndex(indices, dim, strides), ByteStride(indices, 0),
                  src, dim);
}

}  // namespace

REGISTER_KERNEL(kCPU, Gather, &Gather);
REGISTER_KERNEL(kCPU, IndexSelect, &IndexSelect);
REGISTER_KERNEL(kCPU, Scatter, &Scatter);
REGISTER_KERNEL(kCPU, ScatterAdd, &ScatterAdd);
REGISTER_KERNEL(kCPU, IndexAdd, &IndexAdd);

}  // namespace infini_train::cpu
