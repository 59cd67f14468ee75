#include <algorithm>
#include <cstddef>

#include "infini_train/core/error.h"
#include "infini_train/kernels/cpu/elementwise/convert.h"
#include "infini_train/kernels/cpu/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

/// What walks along one dimension in order: positions of extremes and running sums.
namespace infini_train::cpu {
namespace {

/// Elements of a line that are read at a time.
constexpr std::int64_t kTile = 1024;

/// Calls `body(TypeTag<T>{})` for the compute type of `dtype`.
template <typename Body>
void DispatchCompute(std::string_view op, DataType dtype, const Body& body) {
  switch (ComputeDataType(dtype)) {
    case DataType::kFloat32:
      return body(TypeTag<float>{});
    case DataType::kFloat64:
      return body(TypeTag<double>{});
    case DataType::kInt64:
      return body(TypeTag<std::int64_t>{});
    case DataType::kInt32:
      return body(TypeTag<std::int32_t>{});
    case DataType::kUInt8:
      return body(TypeTag<std::uint8_t>{});
    case DataType::kUInt16:
      return body(TypeTag<std::uint16_t>{});
    default:
      infini_train::detail::ThrowUnsupportedDataType(op, dtype, "a known type");
  }
}

/// Calls `body(tile, position, n)` for the elements of a line, in order, in their compute type.
template <typename T, typename Body>
void ForEachTile(const Tensor& x, const std::byte* line, std::int64_t stride, std::int64_t length,
                 const Body& body) {
  T tile[kTile];
  for (std::int64_t position = 0; position < length; position += kTile) {
    const std::int64_t n = std::min(kTile, length - position);
    ReadStrided(x.dtype(), line + position * stride, stride, DataTypeOf<T>(), tile, n);
    body(tile, position, n);
  }
}

/// The position of the first element that no other beats, or of the first NaN.
template <typename T, bool largest>
std::int64_t FindExtreme(const Tensor& x, const std::byte* line, std::int64_t stride,
                         std::int64_t length) {
  std::int64_t best_position = -1;
  T best = {};
  ForEachTile<T>(x, line, stride, length,
                 [&](const T* tile, std::int64_t position, std::int64_t n) {
                   if (best_position < 0) {
                     best = tile[0];
                     best_position = 0;
                   }
                   for (std::int64_t i = 0; i < n; ++i) {
                     const T value = tile[i];
                     const bool better = largest ? value > best : value < best;
                     if (better || (value != value && best == best)) {
                       best = value;
                       best_position = position + i;
                     }
                   }
                 });
  return best_position;
}

template <bool largest>
void FindExtremes(const char* op, const Tensor& out, const Tensor& x, int dim) {
  const Operand operands[] = {MakeOperand(x), MakeOperand(out)};
  const StridedPlan lines = PlanLines(x.shape(), dim, operands);
  if (lines.numel() == 0) return;
  const std::int64_t length = x.size(dim);
  if (length == 0) {
    throw Error(std::string(op) + " expected elements along dimension " + std::to_string(dim) +
                ", got shape " + x.shape().ToString());
  }
  const std::int64_t stride = ByteStride(x, dim);
  out.data<std::int64_t>();  // Throws for another type.
  DispatchCompute(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ParallelFor(0, lines.numel(), RowGrain(length), [&](std::int64_t begin, std::int64_t end) {
      lines.ForEachRun(begin, end, [&](std::byte* const* pointers, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) {
          const std::int64_t position =
              FindExtreme<T, largest>(x, pointers[0] + i * lines.inner_stride(0), stride, length);
          *reinterpret_cast<std::int64_t*>(pointers[1] + i * lines.inner_stride(1)) = position;
        }
      });
    });
  });
}

void ArgMax(const KernelContext&, Tensor& out, const Tensor& x, int dim) {
  FindExtremes<true>("ArgMax", out, x, dim);
}

void ArgMin(const KernelContext&, Tensor& out, const Tensor& x, int dim) {
  FindExtremes<false>("ArgMin", out, x, dim);
}

void CumSum(const KernelContext&, Tensor& out, const Tensor& x, int dim) {
  if (x.numel() == 0) return;
  const bool floating = IsFloatingPoint(x.dtype());
  if (!floating && x.dtype() != DataType::kInt64 && x.dtype() != DataType::kInt32) {
    infini_train::detail::ThrowUnsupportedDataType("CumSum", x.dtype(),
                                                   "a floating type, int64 or int32");
  }
  const Operand operands[] = {MakeOperand(x), MakeOperand(out)};
  const StridedPlan lines = PlanLines(x.shape(), dim, operands);
  const std::int64_t length = x.size(dim);
  const std::int64_t stride = ByteStride(x, dim);
  const std::int64_t out_stride = ByteStride(out, dim);
  // Sums run in float64 or wrapping 64-bit integers.
  const auto run = [&](auto tag, DataType wide) {
    using T = typename decltype(tag)::type;
    ParallelFor(0, lines.numel(), RowGrain(length), [&](std::int64_t begin, std::int64_t end) {
      lines.ForEachRun(begin, end, [&](std::byte* const* pointers, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) {
          const std::byte* const source = pointers[0] + i * lines.inner_stride(0);
          std::byte* const destination = pointers[1] + i * lines.inner_stride(1);
          T sum = 0;
          T tile[kTile];
          for (std::int64_t position = 0; position < length; position += kTile) {
            const std::int64_t count = std::min(kTile, length - position);
            ReadStrided(x.dtype(), source + position * stride, stride, wide, tile, count);
            for (std::int64_t k = 0; k < count; ++k)
              tile[k] = sum += tile[k];
            WriteStrided(wide, tile, out.dtype(), destination + position * out_stride, out_stride,
                         count);
          }
        }
      });
    });
  };
  if (floating) {
    run(TypeTag<double>{}, DataType::kFloat64);
  } else {
    run(TypeTag<std::uint64_t>{}, DataType::kInt64);
  }
}

}  // namespace

REGISTER_KERNEL(kCPU, ArgMax, &ArgMax);
REGISTER_KERNEL(kCPU, ArgMin, &ArgMin);
REGISTER_KERNEL(kCPU, CumSum, &CumSum);

}  // namespace infini_train::cpu
