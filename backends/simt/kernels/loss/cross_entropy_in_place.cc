#include "backends/simt/kernels/loss/cross_entropy_in_place.h"

#include <algorithm>
#include <limits>

#include "backends/simt/kernels/loss/logits_gradient.h"
#include "backends/simt/packed.h"

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

/// Takes the first `count` vectors of a row into statistics, and keeps them in shared memory. All
/// of a lane's exponentials wait for its last read, so that reads follow each other closely:
/// another block computes meanwhile.
template <int N, typename T>
SIMT_DEVICE void TakeAndKeep(StatisticsOfRow<T>& statistics, const Shared<T>& kept, const T* row,
                             int count) {
  constexpr int kReads = 8;
  const int size = BlockSize();
  ComputeType<T> largest = statistics.value.largest;
  for (int v = ThreadIndex(); v < count; v += kReads * size) {
    Packed<T, N> x[kReads];
    SIMT_UNROLL
    for (int j = 0; j < kReads; ++j) {
      if (v + j * size < count)
        x[j] = Packed<T, N>::Of(row + static_cast<std::int64_t>(v + j * size) * N);
    }
    SIMT_UNROLL
    for (int j = 0; j < kReads; ++j) {
      if (v + j * size >= count) continue;
      const Vec<T, N> elements = x[j].Unpack();
      kept.Store((v + j * size) * N, elements);
      for (int k = 0; k < N; ++k)
        largest = MaxNumber(largest, ToCompute(elements[k]));
    }
  }
  statistics.Raise(largest);
  for (int v = ThreadIndex(); v < count; v += size) {
    const Vec<T, N> x[1] = {kept.template Load<N>(v * N)};
    statistics.Add(x);
  }
}

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

/// A block for each row. The first `kept_vectors` vectors of the row stay in shared memory; the
/// others are read twice, and the second time first, while they are in a cache.
template <typename T, typename I, int N>
SIMT_KERNEL void CrossEntropyInPlaceKernel(ComputeType<T>* losses, T* logits, const I* targets,
                                           std::int64_t rows, std::int64_t classes,
                                           std::int64_t row_stride, std::int64_t kept_vectors,
                                           std::int64_t ignore_index, ComputeType<T> scale,
                                           bool with_gradient) {
  using C = ComputeType<T>;
  constexpr C kNan = std::numeric_limits<C>::quiet_NaN();
  SIMT_DYNAMIC_SHARED(T, kept);
  for (std::int64_t r = BlockIndex(); r < rows; r += GridSize()) {
    T* const row = logits + r * row_stride;
    const std::int64_t target = Load(targets + r);
    const bool counts = target >= 0 && target < classes && target != ignore_index;
    if (!counts) {
      const C value = target == ignore_index ? C(0) : kNan;
      FillRow<T> fill{row, FromCompute<T>(value)};
      if (with_gradient) WalkRow<BlockTeam, N>(row, classes, fill);
      if (ThreadIndex() == 0) Store(losses + r, value);
      continue;
    }
    const C target_logit = ToCompute(Load(row + target));
    const std::int64_t vectors = classes / N;
    const auto in_shared = static_cast<int>(kept_vectors < vectors ? kept_vectors : vectors);
    const std::int64_t lane = ThreadIndex();
    const std::int64_t tail = vectors * N + lane;

    StatisticsOfRow<T> statistics{row, SoftmaxStatistics<C>::OfNothing()};
    TakeStatistics<T, N> take{statistics};
    ForEachBatch<N>(row, in_shared, vectors, take);
    TakeAndKeep<N>(statistics, kept, row, in_shared);
    if (tail < classes) statistics.template Visit<1>(tail);
    const SoftmaxStatistics<C> total =
        ReduceBlock(statistics.value, MergeStatistics{}, SoftmaxStatistics<C>::OfNothing());

    const C shift = total.Shift();
    const C log_sum = Log(total.sum);
    if (ThreadIndex() == 0) Store(losses + r, (shift - target_logit) + log_sum);
    if (!with_gradient) continue;
    const LogitsGradient<T> gradient(shift + log_sum, scale, target);
    WriteGradient<T, N> write{row, gradient};
    ForEachBatch<N>(row, in_shared, vectors, write);
    for (int v = ThreadIndex(); v < in_shared; v += BlockSize()) {
      const Vec<T, N> x[1] = {kept.template Load<N>(v * N)};
      write(v, x);
    }
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
        while (block < 512 && block * kBatch < vectors)
          block *= 2;
        Geometry geometry = Rows(rows, block);
        // Half of the memory, so that one row is read while another one is written.
        const auto limit =
            static_cast<std::int64_t>(MaxDynamicSharedBytes(context) / 2 / sizeof(Vec<T, N>));
        const std::int64_t kept = with_gradient ? std::min(vectors, limit) : 0;
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
