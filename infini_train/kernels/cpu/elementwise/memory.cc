#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "infini_train/kernels/cpu/elementwise/convert.h"
#include "infini_train/kernels/cpu/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// Bytes below which a second thread does not help to move memory.
constexpr std::int64_t kByteGrain = 128 * 1024;

/// The side of the square tiles that are transposed in the first-level cache.
constexpr std::int64_t kSide = 16;

/// out[2 i + h] = x[i + h n / 2] for the n elements of a tile: rotates the bits of their positions
/// by one. Unlike copies element by element, this compiles to vector permutations.
template <typename T>
void PerfectShuffle(const T* x, T* out) {
  constexpr int kHalf = kSide * kSide / 2;
  for (int i = 0; i < kHalf; ++i) {
    out[2 * i] = x[i];
    out[2 * i + 1] = x[i + kHalf];
  }
}

/// Transposes a block: rows of `out` are contiguous, columns of `x` are.
template <typename T>
void TransposeBlock(std::byte* out, std::int64_t out_row_stride, const std::byte* x,
                    std::int64_t x_column_stride, std::int64_t rows, std::int64_t columns) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  alignas(64) T tile[kSide * kSide] = {};
  alignas(64) T shuffled[kSide * kSide];
  for (std::int64_t column = 0; column < columns; column += kSide) {
    const std::int64_t width = std::min(kSide, columns - column);
    for (std::int64_t row = 0; row < rows; row += kSide) {
      const std::int64_t height = std::min(kSide, rows - row);
      const std::byte* source = x + column * x_column_stride + row * kSize;
      std::byte* destination = out + row * out_row_stride + column * kSize;
      for (std::int64_t c = 0; c < width; ++c) {
        if (height == kSide) {
          std::memcpy(tile + c * kSide, source + c * x_column_stride, kSide * sizeof(T));
        } else {
          std::memcpy(tile + c * kSide, source + c * x_column_stride,
                      static_cast<std::size_t>(height) * sizeof(T));
        }
      }
      // Half of the 8 bits of a position, so rows and columns change places.
      static_assert(kSide == 16);
      PerfectShuffle(tile, shuffled);
      PerfectShuffle(shuffled, tile);
      PerfectShuffle(tile, shuffled);
      PerfectShuffle(shuffled, tile);
      for (std::int64_t r = 0; r < height; ++r) {
        if (width == kSide) {
          std::memcpy(destination + r * out_row_stride, tile + r * kSide, kSide * sizeof(T));
        } else {
          std::memcpy(destination + r * out_row_stride, tile + r * kSide,
                      static_cast<std::size_t>(width) * sizeof(T));
        }
      }
    }
  }
}

using TransposeFunction = void (*)(std::byte* out, std::int64_t out_row_stride, const std::byte* x,
                                   std::int64_t x_column_stride, std::int64_t rows,
                                   std::int64_t columns);
constexpr TransposeFunction kTransposeBlock[] = {
    &TransposeBlock<std::uint8_t>, &TransposeBlock<std::uint16_t>, &TransposeBlock<std::uint32_t>,
    &TransposeBlock<std::uint64_t>};

/// The dimension along which `x` (operand 1) is contiguous, where `out` (operand 0) is so along the
/// innermost; -1 when the copy is no transposition.
int FindTransposedDimension(const StridedPlan& plan, std::int64_t element_size) {
  if (plan.inner_stride(0) != element_size) return -1;
  for (int d = 0; d + 1 < plan.rank(); ++d) {
    if (plan.stride(d, 1) == element_size) return d;
  }
  return -1;
}

void Transpose(StridedPlan plan, int dim, std::int64_t element_size) {
  constexpr std::int64_t kRows = 64;
  const int last = plan.rank() - 1;
  plan.MoveDimension(dim, last - 1);
  const std::int64_t rows = plan.size(last - 1);
  const std::int64_t columns = plan.size(last);
  const std::int64_t bands = (rows + kRows - 1) / kRows;
  const std::int64_t matrices = plan.numel() / (rows * columns);
  const TransposeFunction transpose =
      kTransposeBlock[std::countr_zero(static_cast<std::size_t>(element_size))];
  const std::int64_t band_bytes = std::min(rows, kRows) * columns * element_size;
  ParallelFor(0, matrices * bands, std::max<std::int64_t>(1, kByteGrain / band_bytes),
              [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t task = begin; task < end; ++task) {
                  const std::int64_t matrix = task / bands;
                  const std::int64_t row = task % bands * kRows;
                  plan.ForEachRun(
                      last - 1, matrix, matrix + 1, [&](std::byte* const* pointers, std::int64_t) {
                        transpose(pointers[0] + row * plan.stride(last - 1, 0),
                                  plan.stride(last - 1, 0), pointers[1] + row * element_size,
                                  plan.stride(last, 1), std::min(kRows, rows - row), columns);
                      });
                }
              });
}

/// Copies rows whose elements are `stride` bytes apart.
void CopyRow(DataType from, const std::byte* source, std::int64_t source_stride, DataType to,
             std::byte* destination, std::int64_t stride, std::int64_t n) {
  if (stride == static_cast<std::int64_t>(SizeOf(to))) {
    ReadStrided(from, source, source_stride, to, destination, n);
    return;
  }
  if (source_stride == static_cast<std::int64_t>(SizeOf(from))) {
    WriteStrided(from, source, to, destination, stride, n);
    return;
  }
  constexpr std::int64_t kTile = 512;
  alignas(64) std::byte tile[kTile * sizeof(double)];
  for (std::int64_t begin = 0; begin < n; begin += kTile) {
    const std::int64_t count = std::min(kTile, n - begin);
    ReadStrided(from, source + begin * source_stride, source_stride, to, tile, count);
    WriteStrided(to, tile, to, destination + begin * stride, stride, count);
  }
}

void CopyOperand(const Dims& shape, const Operand& out, const Operand& x) {
  const Operand operands[] = {out, x};
  const StridedPlan plan(shape, operands);
  if (plan.numel() == 0) return;
  const auto element_size = static_cast<std::int64_t>(SizeOf(out.dtype));
  if (x.dtype == out.dtype) {
    const int dim = FindTransposedDimension(plan, element_size);
    if (dim >= 0 && plan.inner_stride(1) != element_size) return Transpose(plan, dim, element_size);
  }
  const std::int64_t out_stride = plan.inner_stride(0);
  const std::int64_t x_stride = plan.inner_stride(1);
  ParallelFor(0, plan.numel(), kByteGrain / element_size,
              [&](std::int64_t begin, std::int64_t end) {
                plan.ForEachRun(begin, end, [&](std::byte* const* pointers, std::int64_t n) {
                  CopyRow(x.dtype, pointers[1], x_stride, out.dtype, pointers[0], out_stride, n);
                });
              });
}

void Copy(const KernelContext&, Tensor& out, const Tensor& x) {
  CopyOperand(out.shape(), MakeOperand(out), MakeOperand(x));
}

void Fill(const KernelContext&, Tensor& out, Scalar value) {
  alignas(8) std::byte bytes[8];
  StoreScalar(value, out.dtype(), bytes);
  CopyOperand(out.shape(), MakeOperand(out), MakeConstant(bytes, out.dtype()));
}

void Arange(const KernelContext&, Tensor& out, Scalar start, Scalar step) {
  const bool integer = start.is_integer() && step.is_integer();
  DispatchAll("Arange", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* data = out.data<T>();
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      const Scalar value =
          integer ? Scalar(start.To<std::int64_t>() + i * step.To<std::int64_t>())
                  : Scalar(start.To<double>() + static_cast<double>(i) * step.To<double>());
      data[i] = value.To<T>();
    }
  });
}

void CopyAll(const KernelContext& context, MutableTensorList outs, TensorList xs) {
  for (std::size_t k = 0; k < outs.size(); ++k)
    Copy(context, outs[k], xs[k]);
}

}  // namespace

REGISTER_KERNEL(kCPU, Fill, &Fill);
REGISTER_KERNEL(kCPU, Copy, &Copy);
REGISTER_KERNEL(kCPU, CopyAll, &CopyAll);
REGISTER_KERNEL(kCPU, Arange, &Arange);

}  // namespace infini_train::cpu
