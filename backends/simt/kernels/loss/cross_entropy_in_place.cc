#include "backends/simt/kernels/loss/cross_entropy_in_place.h"

#include <algorithm>
#include <limits>

#include "backends/simt/kernels/loss/logits_gradient.h"

namespace infini_train::simt {
namespace {

/// Vectors that a lane reads before it uses the first one.
constexpr int kBatch = 4;

/// Calls `body(v, x)` for this lane's vectors v in [begin, end) of `row`, several at a time: x has
/// kBatch of them, BlockSize() apart, or one.
template <int N, typename T, typename Body>
SIMT_DEVICE void ForEachBatch(const T* row, std::int64_t begin, std::int64_t end, Body& body) {
  const std::int64_t step = BlockSize();
  std::int64_t v = begin + ThreadIndex();
  for (; v + (kBatch - 1) * step < end; v += kBatch * step) {
    Vec<T, N> x[kBatch];
    SIMT_UNROLL
    for (int k = 0; k < kBatch; ++k)
      x[k] = Load<N>(row + (v + k * step) * N);
    body(v, x);
  }
  for (; v < end; v += step) {
    const Vec<T, N> x[1] = {Load<N>(row + v * N)};
    body(v, x);
  }
}

template <typename T, int N>
struct TakeStatistics {
  StatisticsOfRow<T>& statistics;

  template <int kCount>
  SIMT_DEVICE void operator()(std::int64_t, const Vec<T, N> (&x)[kCount]) {
    statistics.Take(x);
  }
};

template <typename T, int N>
struct WriteGradient {
  T* row;
  const LogitsGradient<T>& gradient;

  template <int kCount>
  SIMT_DEVICE void operator()(std::int64_t v, const Vec<T, N> (&x)[kCount]) {
    SIMT_UNROLL
    for (int k = 0; k < kCount; ++k) {
      const std::int64_t at = (v + k * BlockSize()) * N;
      Store(row + at, gradient.At(at, x[k]));
    }
  }
};

/// The beginning of a row in shared memory, vector by vector. Each lane has vectors of its own
/// there and needs no barrier for them. They come in two groups of copies, so that work on the
/// first ones begins while the others are under way.
template <typename T, int N>
struct KeptRow {
  Shared<T> memory;
  int count;
  int middle;

  SIMT_DEVICE KeptRow(const Shared<T>& memory, int count)
      : memory(memory), count(count), middle(count / (2 * Step()) * Step()) {}

  /// Asks for the vectors of `row`, where there is one.
  SIMT_DEVICE void Fetch(const T* row) const {
    for (int v = ThreadIndex(); v < middle; v += BlockSize())
      FetchOne(row, v);
    CommitCopies();
    for (int v = middle + ThreadIndex(); v < count; v += BlockSize())
      FetchOne(row, v);
    CommitCopies();
  }

  SIMT_DEVICE void TakeInto(StatisticsOfRow<T>& statistics) const {
    WaitForCopies<1>();
    TakePart(statistics, 0, middle);
    WaitForCopies<0>();
    TakePart(statistics, middle, count);
  }

  /// Writes what follows from the vectors, and asks for those of `next` in their place.
  SIMT_DEVICE void Replace(WriteGradient<T, N>& write, const T* next) const {
    ReplacePart(write, next, 0, middle);
    CommitCopies();
    ReplacePart(write, next, middle, count);
    CommitCopies();
  }

 private:
  SIMT_DEVICE static int Step() { return kBatch * BlockSize(); }

  SIMT_DEVICE void FetchOne(const T* row, int v) const {
    if (row != nullptr) CopyAsync<N>(memory, v * N, row + v * N);
  }

  template <int kCount>
  SIMT_DEVICE void Read(Vec<T, N> (&x)[kCount], int v) const {
    SIMT_UNROLL
    for (int k = 0; k < kCount; ++k)
      x[k] = memory.template Load<N>((v + k * BlockSize()) * N);
  }

  SIMT_DEVICE void TakePart(StatisticsOfRow<T>& statistics, int begin, int end) const {
    int v = begin + ThreadIndex();
    for (; v + (kBatch - 1) * BlockSize() < end; v += Step()) {
      Vec<T, N> x[kBatch];
      Read(x, v);
      statistics.Take(x);
    }
    for (; v < end; v += BlockSize()) {
      Vec<T, N> x[1];
      Read(x, v);
      statistics.Take(x);
    }
  }

  SIMT_DEVICE void ReplacePart(WriteGradient<T, N>& write, const T* next, int begin,
                               int end) const {
    int v = begin + ThreadIndex();
    for (; v + (kBatch - 1) * BlockSize() < end; v += Step()) {
      Vec<T, N> x[kBatch];
      Read(x, v);
      write(v, x);
      SIMT_UNROLL
      for (int k = 0; k < kBatch; ++k)
        FetchOne(next, v + k * BlockSize());
    }
    for (; v < end; v += BlockSize()) {
      Vec<T, N> x[1];
      Read(x, v);
      write(v, x);
      FetchOne(next, v);
    }
  }
};

/// Lanes of a block, at most, and blocks that have room in a multiprocessor at a time.
constexpr int kMaxLanes = 512;
constexpr int kResidentBlocks = 2;

/// A block for a row at a time. The first `kept_vectors` vectors of a row lie in shared memory, and
/// leave it to those of the block's next row while its gradient is written, so that memory is never
/// idle; what is behind them is read twice, and the second time first, while it is in a cache.
template <typename T, typename I, int N>
SIMT_KERNEL SIMT_RESIDENT(kMaxLanes, kResidentBlocks) void CrossEntropyInPlaceKernel(
    ComputeType<T>* losses, T* logits, const I* targets, std::int64_t rows, std::int64_t classes,
    std::int64_t row_stride, std::int64_t kept_vectors, std::int64_t ignore_index,
    ComputeType<T> scale, bool with_gradient) {
  using C = ComputeType<T>;
  constexpr C kNan = std::numeric_limits<C>::quiet_NaN();
  SIMT_DYNAMIC_SHARED(T, memory);
  const std::int64_t vectors = classes / N;
  const KeptRow<T, N> kept(memory, static_cast<int>(kept_vectors));
  if (BlockIndex() < rows) kept.Fetch(logits + BlockIndex() * row_stride);
  for (std::int64_t r = BlockIndex(); r < rows; r += GridSize()) {
    T* const row = logits + r * row_stride;
    const T* const next = r + GridSize() < rows ? row + GridSize() * row_stride : nullptr;
    const std::int64_t target = Load(targets + r);
    const bool counts = target >= 0 && target < classes && target != ignore_index;
    if (!counts) {
      const C value = target == ignore_index ? C(0) : kNan;
      FillRow<T> fill{row, FromCompute<T>(value)};
      if (with_gradient) WalkRow<BlockTeam, N>(row, classes, fill);
      if (ThreadIndex() == 0) Store(losses + r, value);
      WaitForCopies<0>();
      kept.Fetch(next);
      continue;
    }
    const C target_logit = ToCompute(Load(row + target));
    const std::int64_t tail = vectors * N + ThreadIndex();

    StatisticsOfRow<T> statistics{row, SoftmaxStatistics<C>::OfNothing()};
    TakeStatistics<T, N> take{statistics};
    ForEachBatch<N>(row, kept_vectors, vectors, take);
    kept.TakeInto(statistics);
    if (tail < classes) statistics.template Visit<1>(tail);
    const SoftmaxStatistics<C> total =
        ReduceBlock(statistics.value, MergeStatistics{}, SoftmaxStatistics<C>::OfNothing());

    const C shift = total.Shift();
    const C log_sum = Log(total.sum);
    if (ThreadIndex() == 0) Store(losses + r, (shift - target_logit) + log_sum);
    if (!with_gradient) continue;
    const LogitsGradient<T> gradient(shift + log_sum, scale, target);
    WriteGradient<T, N> write{row, gradient};
    ForEachBatch<N>(row, kept_vectors, vectors, write);
    kept.Replace(write, next);
    if (tail < classes) Store(row + tail, gradient.At(tail, Load<1>(row + tail)));
  }
}

}  // namespace

void CrossEntropyInPlace(const Context& context, const Tensor& losses, const Tensor& logits,
                         const Tensor& targets, std::int64_t ignore_index, double scale,
                         bool with_gradient) {
  const std::int64_t rows = targets.numel();
  const std::int64_t classes = logits.size(-1);
  DispatchFloating("CrossEntropy", logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    DispatchIndex("CrossEntropy", targets.dtype(), [&](auto index_tag) {
      using I = typename decltype(index_tag)::type;
      const auto launch = [&]<int N>(std::integral_constant<int, N>) {
        const std::int64_t vectors = classes / N;
        int block = 32;
        while (block < kMaxLanes && block * kBatch < vectors)
          block *= 2;
        // Half of the memory, so that one row is read while another one is written.
        const auto limit =
            static_cast<std::int64_t>(MaxDynamicSharedBytes(context) / 2 / sizeof(Vec<T, N>));
        const std::int64_t kept = with_gradient ? std::min(vectors, limit) : 0;
        Geometry geometry = Rows(rows, block);
        if (kept > 0) {
          geometry.grid_x = std::min(
              geometry.grid_x, MultiprocessorCount(context) * kResidentBlocks * kMaxLanes / block);
        }
        geometry.dynamic_shared_bytes = static_cast<std::size_t>(kept) * sizeof(Vec<T, N>);
        Launch(context, geometry, &CrossEntropyInPlaceKernel<T, I, N>, losses.data<C>(),
               logits.data<T>(), targets.data<I>(), rows, classes, logits.strides()[0], kept,
               ignore_index, static_cast<C>(scale), with_gradient);
      };
      if (VectorWidth(logits.data<T>(), logits.strides()[0]) >= kMaxVectorWidth<T>) {
        launch(std::integral_constant<int, kMaxVectorWidth<T>>{});
      } else {
        launch(std::integral_constant<int, 1>{});
      }
    });
  });
}

}  // namespace infini_train::simt
