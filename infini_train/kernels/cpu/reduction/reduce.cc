#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "infini_train/core/error.h"
#include "infini_train/kernels/cpu/elementwise/convert.h"
#include "infini_train/kernels/cpu/elementwise/strided.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/reduction/reducers.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// Elements that are combined as one piece. Pieces depend on shapes only, so that results do not
/// depend on the number of threads.
constexpr std::int64_t kPiece = 64 * 1024;

using Accumulator = std::uint64_t;  // The bits of a double or an int64.

std::int64_t CeilDivide(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// A reduction as two loops: over the kept dimensions of x (with out's strides beside) and over the
/// reduced ones.
class Reduction {
 public:
  Reduction(const Reducer& reducer, const Tensor& out, const Tensor& x, const Dims& dims)
      : reducer_(reducer),
        dtype_(x.dtype()),
        out_dtype_(out.dtype()),
        element_size_(static_cast<std::int64_t>(SizeOf(dtype_))),
        base_(static_cast<std::byte*>(x.raw_data())),
        kept_(Kept(out, x, dims)),
        reduced_(Reduced(x, dims)) {}

  std::int64_t kept() const { return kept_.numel(); }
  std::int64_t reduced() const { return reduced_.numel(); }

  /// `count` divides floating results.
  void Run(double count) {
    count_ = count;
    if (kept() == 0) return;
    const bool columns =
        kept_.inner_size() >= 8 &&
        (kept_.inner_stride(0) < reduced_.inner_stride(0) || reduced_.inner_size() < 16);
    if (columns) {
      RunColumns();
    } else {
      RunRows();
    }
  }

 private:
  static bool Contains(const Dims& dims, int dim) {
    return std::find(dims.begin(), dims.end(), dim) != dims.end();
  }

  static StridedPlan Kept(const Tensor& out, const Tensor& x, const Dims& dims) {
    Dims shape;
    Dims x_strides;
    Dims out_strides;
    for (int d = 0; d < x.rank(); ++d) {
      if (Contains(dims, d)) continue;
      shape.push_back(x.shape()[d]);
      x_strides.push_back(x.strides()[d]);
      out_strides.push_back(out.strides()[d]);
    }
    Operand operands[] = {MakeOperand(x), MakeOperand(out)};
    operands[0].strides = &x_strides;
    operands[1].strides = &out_strides;
    operands[0].contiguous = operands[1].contiguous = false;
    return StridedPlan(shape, operands);
  }

  static StridedPlan Reduced(const Tensor& x, const Dims& dims) {
    Dims shape;
    Dims strides;
    for (const std::int64_t dim : dims) {
      shape.push_back(x.shape()[static_cast<int>(dim)]);
      strides.push_back(x.strides()[static_cast<int>(dim)]);
    }
    Operand operand = MakeOperand(x);
    operand.strides = &strides;
    operand.contiguous = false;
    return StridedPlan(shape, {&operand, 1});
  }

  bool IsReadInPlace(std::int64_t stride) const {
    return stride == element_size_ && SizeOf(dtype_) == SizeOf(reducer_.compute_dtype);
  }

  /// Writes `n` accumulators to out.
  void Store(Accumulator* accumulators, std::byte* out, std::int64_t stride, std::int64_t n) const {
    if (reducer_.accumulator_dtype == DataType::kFloat64 && count_ != 1) {
      for (std::int64_t i = 0; i < n; ++i)
        accumulators[i] =
            std::bit_cast<Accumulator>(std::bit_cast<double>(accumulators[i]) / count_);
    }
    WriteStrided(reducer_.accumulator_dtype, accumulators, out_dtype_, out, stride, n);
  }

  // Rows: the elements of one result are combined at a time.

  /// Combines elements [begin, end) of the reduced dimensions from where the kept ones say.
  void ReduceRow(const std::byte* start, std::int64_t begin, std::int64_t end,
                 Accumulator* accumulator) const {
    const std::int64_t stride = reduced_.inner_stride(0);
    const std::int64_t offset = start - base_;
    const bool in_place = IsReadInPlace(stride);
    reduced_.ForEachRun(begin, end, [&](std::byte* const* pointers, std::int64_t n) {
      const std::byte* source = pointers[0] + offset;
      if (in_place) {
        reducer_.run(source, n, accumulator);
        return;
      }
      constexpr std::int64_t kTile = 2048;
      alignas(64) std::byte tile[kTile * sizeof(double)];
      for (std::int64_t i = 0; i < n; i += kTile) {
        const std::int64_t length = std::min(kTile, n - i);
        ReadStrided(dtype_, source + i * stride, stride, reducer_.compute_dtype, tile, length);
        reducer_.run(tile, length, accumulator);
      }
    });
  }

  void RunRows() const {
    const std::int64_t pieces = std::max<std::int64_t>(1, CeilDivide(reduced(), kPiece));
    const std::int64_t out_stride = kept_.inner_stride(1);
    if (pieces == 1) {
      ParallelFor(0, kept(), RowGrain(reduced()), [&](std::int64_t begin, std::int64_t end) {
        kept_.ForEachRun(begin, end, [&](std::byte* const* pointers, std::int64_t n) {
          constexpr std::int64_t kResults = 64;
          Accumulator accumulators[kResults];
          for (std::int64_t i = 0; i < n; i += kResults) {
            const std::int64_t count = std::min(kResults, n - i);
            for (std::int64_t k = 0; k < count; ++k) {
              accumulators[k] = reducer_.identity;
              ReduceRow(pointers[0] + (i + k) * kept_.inner_stride(0), 0, reduced(),
                        &accumulators[k]);
            }
            Store(accumulators, pointers[1] + i * out_stride, out_stride, count);
          }
        });
      });
      return;
    }
    std::vector<Accumulator> partial(static_cast<std::size_t>(kept() * pieces), reducer_.identity);
    ParallelFor(0, kept() * pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t first = task % pieces * kPiece;
        kept_.ForEachRun(task / pieces, task / pieces + 1,
                         [&](std::byte* const* pointers, std::int64_t) {
                           ReduceRow(pointers[0], first, std::min(first + kPiece, reduced()),
                                     &partial[static_cast<std::size_t>(task)]);
                         });
      }
    });
    for (std::int64_t result = 0; result < kept(); ++result) {
      Accumulator* first = &partial[static_cast<std::size_t>(result * pieces)];
      for (std::int64_t piece = 1; piece < pieces; ++piece)
        reducer_.merge(first + piece, first, 1);
      kept_.ForEachRun(result, result + 1, [&](std::byte* const* pointers, std::int64_t) {
        Store(first, pointers[1], out_stride, 1);
      });
    }
  }

  // Columns: strips of neighbouring results are combined at a time.

  /// Combines reduced elements [begin, end) into `width` accumulators.
  void ReduceColumns(const std::byte* start, std::int64_t width, std::int64_t begin,
                     std::int64_t end, Accumulator* accumulators) const {
    const std::int64_t column_stride = kept_.inner_stride(0);
    const std::int64_t row_stride = reduced_.inner_stride(0);
    const std::int64_t offset = start - base_;
    const bool in_place = IsReadInPlace(column_stride);
    reduced_.ForEachRun(begin, end, [&](std::byte* const* pointers, std::int64_t n) {
      const std::byte* source = pointers[0] + offset;
      if (in_place) {
        reducer_.rows(source, row_stride, n, width, accumulators);
        return;
      }
      constexpr std::int64_t kRows = 8;
      constexpr std::int64_t kRowBytes = kMaxColumns * sizeof(double);
      alignas(64) std::byte tile[kRows * kRowBytes];
      for (std::int64_t i = 0; i < n; i += kRows) {
        const std::int64_t rows = std::min(kRows, n - i);
        for (std::int64_t r = 0; r < rows; ++r) {
          ReadStrided(dtype_, source + (i + r) * row_stride, column_stride, reducer_.compute_dtype,
                      tile + r * kRowBytes, width);
        }
        reducer_.rows(tile, kRowBytes, rows, width, accumulators);
      }
    });
  }

  void RunColumns() const {
    const int outer_rank = kept_.rank() - 1;
    const std::int64_t inner = kept_.inner_size();
    const std::int64_t strips = CeilDivide(inner, kMaxColumns);
    const std::int64_t width = CeilDivide(inner, strips);
    const std::int64_t rows = std::max<std::int64_t>(64, kPiece / width);
    const std::int64_t pieces = std::max<std::int64_t>(1, CeilDivide(reduced(), rows));
    const std::int64_t groups = kept() / inner * strips;
    const std::int64_t out_stride = kept_.inner_stride(1);

    /// Calls body with the addresses of a group's first column in x and out, and its width.
    const auto with_group = [&](std::int64_t group, const auto& body) {
      const std::int64_t column = group % strips * width;
      kept_.ForEachRun(outer_rank, group / strips, group / strips + 1,
                       [&](std::byte* const* pointers, std::int64_t) {
                         body(pointers[0] + column * kept_.inner_stride(0),
                              pointers[1] + column * out_stride, std::min(width, inner - column));
                       });
    };
    if (pieces == 1) {
      ParallelFor(
          0, groups, RowGrain(width * reduced()), [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t group = begin; group < end; ++group) {
              with_group(group, [&](const std::byte* x, std::byte* out, std::int64_t columns) {
                Accumulator accumulators[kMaxColumns];
                std::fill_n(accumulators, columns, reducer_.identity);
                ReduceColumns(x, columns, 0, reduced(), accumulators);
                Store(accumulators, out, out_stride, columns);
              });
            }
          });
      return;
    }
    std::vector<Accumulator> partial(static_cast<std::size_t>(groups * pieces * width),
                                     reducer_.identity);
    ParallelFor(0, groups * pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        with_group(task / pieces, [&](const std::byte* x, std::byte*, std::int64_t columns) {
          const std::int64_t first = task % pieces * rows;
          ReduceColumns(x, columns, first, std::min(first + rows, reduced()),
                        &partial[static_cast<std::size_t>(task * width)]);
        });
      }
    });
    for (std::int64_t group = 0; group < groups; ++group) {
      Accumulator* first = &partial[static_cast<std::size_t>(group * pieces * width)];
      for (std::int64_t piece = 1; piece < pieces; ++piece)
        reducer_.merge(first + piece * width, first, width);
      with_group(group, [&](const std::byte*, std::byte* out, std::int64_t columns) {
        Store(first, out, out_stride, columns);
      });
    }
  }

  const Reducer& reducer_;
  DataType dtype_;
  DataType out_dtype_;
  std::int64_t element_size_;
  const std::byte* base_;
  StridedPlan kept_;
  StridedPlan reduced_;
  double count_ = 1;
};

void Sum(const KernelContext&, Tensor& out, const Tensor& x, const Dims& dims) {
  Reduction(FindReducer("Sum", ReductionKind::kSum, x.dtype()), out, x, dims).Run(1);
}

void Mean(const KernelContext&, Tensor& out, const Tensor& x, const Dims& dims) {
  if (!IsFloatingPoint(x.dtype())) {
    infini_train::detail::ThrowUnsupportedDataType("Mean", x.dtype(), "a floating type");
  }
  Reduction reduction(FindReducer("Mean", ReductionKind::kSum, x.dtype()), out, x, dims);
  reduction.Run(static_cast<double>(reduction.reduced()));
}

void Extreme(const char* op, ReductionKind kind, const Tensor& out, const Tensor& x,
             const Dims& dims) {
  Reduction reduction(FindReducer(op, kind, x.dtype()), out, x, dims);
  if (reduction.reduced() == 0 && reduction.kept() > 0) {
    throw Error(fmt::format("{} expected elements in dimensions {}, got shape {}", op,
                            dims.ToString(), x.shape().ToString()));
  }
  reduction.Run(1);
}

void Max(const KernelContext&, Tensor& out, const Tensor& x, const Dims& dims) {
  Extreme("Max", ReductionKind::kMax, out, x, dims);
}

void Min(const KernelContext&, Tensor& out, const Tensor& x, const Dims& dims) {
  Extreme("Min", ReductionKind::kMin, out, x, dims);
}

}  // namespace

REGISTER_KERNEL(kCPU, Sum, &Sum);
REGISTER_KERNEL(kCPU, Mean, &Mean);
REGISTER_KERNEL(kCPU, Max, &Max);
REGISTER_KERNEL(kCPU, Min, &Min);

}  // namespace infini_train::cpu
