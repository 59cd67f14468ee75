#include <cstdint>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "backends/simt/strided.h"
#include "backends/simt/types.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

constexpr int kScanBlock = 256;
/// Neighbours that one lane adds up before lanes meet.
constexpr int kScanItems = 4;

/// Sums run in float64 or wrapping 64-bit integers.
template <typename T>
using ScanSum = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;

/// Lines along one dimension. Offsets and strides are into x and out, in elements.
struct Lines {
  StridedIndex<2> index;
  const void* x = nullptr;
  void* out = nullptr;
  std::int64_t length = 0;
  std::int64_t x_stride = 0;
  std::int64_t out_stride = 0;
};

template <typename T>
SIMT_DEVICE ScanSum<T> ToSum(T x) {
  return static_cast<ScanSum<T>>(ToCompute(x));
}
template <typename T>
SIMT_DEVICE T FromSum(ScanSum<T> sum) {
  return FromCompute<T>(static_cast<ComputeType<T>>(sum));
}

/// A lane for each line: for many lines that lie side by side, and for short ones.
template <typename T>
SIMT_KERNEL void ScanLinesKernel(Lines lines) {
  for (std::int64_t line = GlobalThreadIndex(); line < lines.index.numel;
       line += GlobalThreadCount()) {
    std::int64_t offsets[2];
    lines.index.Locate(line, offsets);
    const T* const x = static_cast<const T*>(lines.x) + offsets[0];
    T* const out = static_cast<T*>(lines.out) + offsets[1];
    ScanSum<T> sum = 0;
    for (std::int64_t i = 0; i < lines.length; ++i) {
      sum += ToSum(Load(x + i * lines.x_stride));
      Store(out + i * lines.out_stride, FromSum<T>(sum));
    }
  }
}

/// The sum of a value over the lanes before this one, and over the block.
template <typename Sum>
struct BlockScan {
  Sum before;
  Sum total;
};

/// All lanes of the block must call it. Lanes fall into runs; one lane adds up a run, then one the
/// runs.
template <typename Sum>
SIMT_DEVICE BlockScan<Sum> ScanBlock(Sum value) {
  constexpr int kRun = 16;
  constexpr int kRuns = kScanBlock / kRun;
  SIMT_SHARED(Sum, sums, kScanBlock);
  SIMT_SHARED(Sum, run_sums, kRuns + 1);
  const int lane = ThreadIndex();
  sums[lane] = value;
  SyncBlock();
  if (lane < kRuns) {
    Sum sum = 0;
    for (int i = lane * kRun; i < (lane + 1) * kRun; ++i) {
      const Sum next = sums[i];
      sums[i] = sum;
      sum += next;
    }
    run_sums[lane] = sum;
  }
  SyncBlock();
  if (lane == 0) {
    Sum sum = 0;
    for (int run = 0; run < kRuns; ++run) {
      const Sum next = run_sums[run];
      run_sums[run] = sum;
      sum += next;
    }
    run_sums[kRuns] = sum;
  }
  SyncBlock();
  const Sum before_run = run_sums[lane / kRun];
  const Sum in_run = sums[lane];
  const Sum total = run_sums[kRuns];
  SyncBlock();
  return {before_run + in_run, total};
}

/// A block for each line, which it walks tile by tile.
template <typename T>
SIMT_KERNEL void ScanLongLinesKernel(Lines lines) {
  for (std::int64_t line = BlockIndex(); line < lines.index.numel; line += GridSize()) {
    std::int64_t offsets[2];
    lines.index.Locate(line, offsets);
    const T* const x = static_cast<const T*>(lines.x) + offsets[0];
    T* const out = static_cast<T*>(lines.out) + offsets[1];
    ScanSum<T> carry = 0;
    for (std::int64_t tile = 0; tile < lines.length; tile += kScanBlock * kScanItems) {
      const std::int64_t first = tile + ThreadIndex() * kScanItems;
      ScanSum<T> sums[kScanItems];
      ScanSum<T> sum = 0;
      for (int k = 0; k < kScanItems; ++k) {
        if (first + k < lines.length) sum += ToSum(Load(x + (first + k) * lines.x_stride));
        sums[k] = sum;
      }
      const BlockScan<ScanSum<T>> scan = ScanBlock(sum);
      for (int k = 0; k < kScanItems; ++k) {
        if (first + k < lines.length)
          Store(out + (first + k) * lines.out_stride, FromSum<T>(carry + scan.before + sums[k]));
      }
      carry += scan.total;
    }
  }
}

void CumSum(const Context& context, Tensor& out, const Tensor& x, int dim) {
  DispatchTypes(SignedTypes{}, "CumSum", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType("CumSum", out, x.dtype());
    const Dims x_strides = Without(x.strides(), dim);
    const Dims out_strides = Without(out.strides(), dim);
    const MergedDims dims(Without(x.shape(), dim), {&x_strides, &out_strides});
    const Lines lines = {StridedIndex<2>(dims), x.raw_data(),     out.raw_data(),
                         x.size(dim),           x.strides()[dim], out.strides()[dim]};
    // The longest line that is not worth a block; the fewest lines that fill a device.
    constexpr std::int64_t kShort = 64;
    constexpr std::int64_t kMany = 16384;
    const bool side_by_side = dims.inner_stride(0) < lines.x_stride && lines.index.numel >= kMany;
    if (lines.length <= kShort || side_by_side) {
      Launch(context, Linear(lines.length == 0 ? 0 : lines.index.numel), &ScanLinesKernel<T>,
             lines);
    } else {
      Launch(context, Rows(lines.index.numel, kScanBlock), &ScanLongLinesKernel<T>, lines);
    }
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(CumSum, &CumSum);

}  // namespace infini_train::simt
