#include "backends/simt/kernels/loss/cross_entropy_in_place.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/loss/logits_gradient.h"
#include "infini_train/core/fp8.h"

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

/// The codes of a gradient in FP8.
using Code = std::uint8_t;

/// A row's gradient, of the logits' type T or as codes, but that of the target.
template <typename T, typename Out, int N>
struct WriteGradient {
  using C = ComputeType<T>;
  Out* row;
  const LogitsGradient<T>& gradient;

  template <int kCount>
  SIMT_DEVICE void operator()(std::int64_t v, const Vec<T, N> (&x)[kCount]) {
    SIMT_UNROLL
    for (int k = 0; k < kCount; ++k)
      At((v + k * BlockSize()) * N, x[k]);
  }

  /// From class i on.
  template <int M>
  SIMT_DEVICE void At(std::int64_t i, const Vec<T, M>& x) const {
    C numbers[M];
    gradient.ElsewhereAt(numbers, x);
    if constexpr (!std::is_same_v<Out, T> && M % 4 == 0) {
      Vec<std::uint32_t, M / 4> words;
      SIMT_UNROLL
      for (int w = 0; w < M / 4; ++w) {
        words[w] = PackCodes<Float8E5M2>(numbers[4 * w], numbers[4 * w + 1], numbers[4 * w + 2],
                                         numbers[4 * w + 3]);
      }
      Store(row + i, std::bit_cast<Vec<Code, M>>(words));
    } else {
      Vec<Out, M> results;
      for (int k = 0; k < M; ++k)
        results[k] = Rounded(numbers[k]);
      Store(row + i, results);
    }
  }

  SIMT_DEVICE static Out Rounded(C number) {
    if constexpr (std::is_same_v<Out, T>) {
      return FromCompute<T>(number);
    } else {
      return Float8E5M2(number).bits;
    }
  }

  /// That of a row whose target is ignored (0) or not in the vocabulary (NaN).
  SIMT_DEVICE static Out Constant(bool is_ignored) {
    if constexpr (std::is_same_v<Out, T>) {
      return FromCompute<T>(is_ignored ? C(0) : std::numeric_limits<C>::quiet_NaN());
    } else {
      return is_ignored ? Code{0} : Code{0x7F};
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
  template <typename Write>
  SIMT_DEVICE void Replace(Write& write, const T* next) const {
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

  template <typename Write>
  SIMT_DEVICE void ReplacePart(Write& write, const T* next, int begin, int end) const {
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

template <typename T, typename I>
struct CrossEntropyProblem {
  using C = ComputeType<T>;
  C* losses;
  T* logits;
  Code* codes;  // [rows, classes], where the gradient becomes codes
  const I* targets;
  std::int64_t rows, classes;
  std::int64_t row_stride;  // of logits
  std::int64_t ignore_index;
  C scale;
  bool with_gradient;
};

/// Where the gradient of `row`, number r, goes.
template <typename Out, typename T, typename I>
SIMT_DEVICE Out* GradientOf(const CrossEntropyProblem<T, I>& problem, T* row, std::int64_t r) {
  if constexpr (std::is_same_v<Out, T>) {
    return row;
  } else {
    return problem.codes + r * problem.classes;
  }
}

/// The lane that writes the gradient of class i. Blocks have a power of two of lanes.
template <int N>
SIMT_DEVICE int LaneOf(std::int64_t i, std::int64_t kept_vectors, std::int64_t vectors) {
  const std::int64_t v = i / N;
  if (v >= vectors) return static_cast<int>(i - vectors * N);
  return static_cast<int>(v < kept_vectors ? v : v - kept_vectors) & (BlockSize() - 1);
}

/// A block for a row at a time. The first `kept_vectors` vectors of a row lie in shared memory, and
/// leave it to those of the block's next row while its gradient is written, so that memory is never
/// idle; what is behind them is read twice, and the second time first, while it is in a cache.
template <typename T, typename Out, typename I, int N>
SIMT_KERNEL SIMT_RESIDENT(kMaxLanes, kResidentBlocks) void CrossEntropyInPlaceKernel(
    CrossEntropyProblem<T, I> problem, std::int64_t kept_vectors) {
  using C = ComputeType<T>;
  using Write = WriteGradient<T, Out, N>;
  SIMT_DYNAMIC_SHARED(T, memory);
  const std::int64_t classes = problem.classes;
  const std::int64_t vectors = classes / N;
  const KeptRow<T, N> kept(memory, static_cast<int>(kept_vectors));
  if (BlockIndex() < problem.rows) kept.Fetch(problem.logits + BlockIndex() * problem.row_stride);
  for (std::int64_t r = BlockIndex(); r < problem.rows; r += GridSize()) {
    T* const row = problem.logits + r * problem.row_stride;
    const T* const next =
        r + GridSize() < problem.rows ? row + GridSize() * problem.row_stride : nullptr;
    Out* const out = GradientOf<Out>(problem, row, r);
    const std::int64_t target = Load(problem.targets + r);
    const bool is_ignored = target == problem.ignore_index;
    if (is_ignored || target < 0 || target >= classes) {
      FillRow<Out> fill{out, Write::Constant(is_ignored)};
      if (problem.with_gradient) WalkRow<BlockTeam, N>(out, classes, fill);
      if (ThreadIndex() == 0) {
        Store(problem.losses + r, is_ignored ? C(0) : std::numeric_limits<C>::quiet_NaN());
      }
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
    const auto total = ReduceStatistics<BlockTeam>(statistics.value);

    const C shift = total.Shift();
    const C log_sum = Log(total.sum);
    if (ThreadIndex() == 0) Store(problem.losses + r, (shift - target_logit) + log_sum);
    if (!problem.with_gradient) continue;
    const LogitsGradient<T> gradient(shift + log_sum, problem.scale, target);
    Write write{out, gradient};
    ForEachBatch<N>(row, kept_vectors, vectors, write);
    kept.Replace(write, next);
    if (tail < classes) write.At(tail, Load<1>(row + tail));
    // By the lane that has written it with the others, so that it is the last to do so.
    if (ThreadIndex() == LaneOf<N>(target, kept_vectors, vectors))
      Store(out + target, Write::Rounded(gradient.AtTarget(target_logit)));
  }
}

template <typename Out, typename T, typename I>
void RunCrossEntropy(const Context& context, const CrossEntropyProblem<T, I>& problem) {
  const auto launch = [&]<int N>(std::integral_constant<int, N>) {
    const std::int64_t vectors = problem.classes / N;
    int block = 32;
    while (block < kMaxLanes && block * kBatch < vectors)
      block *= 2;
    // Half of the memory, so that one row is read while another one is written.
    const auto limit =
        static_cast<std::int64_t>(MaxDynamicSharedBytes(context) / 2 / sizeof(Vec<T, N>));
    const std::int64_t kept = problem.with_gradient ? std::min(vectors, limit) : 0;
    Geometry geometry = Rows(problem.rows, block);
    if (kept > 0) {
      geometry.grid_x = std::min(
          geometry.grid_x, MultiprocessorCount(context) * kResidentBlocks * kMaxLanes / block);
    }
    geometry.dynamic_shared_bytes = static_cast<std::size_t>(kept) * sizeof(Vec<T, N>);
    Launch(context, geometry, &CrossEntropyInPlaceKernel<T, Out, I, N>, problem, kept);
  };
  constexpr int kFull = kMaxVectorWidth<T>;
  if (VectorWidth(problem.logits, problem.row_stride) >= kFull &&
      (problem.codes == nullptr || VectorWidth(problem.codes, problem.classes) >= kFull)) {
    launch(std::integral_constant<int, kFull>{});
  } else {
    launch(std::integral_constant<int, 1>{});
  }
}

/// The problem with its gradients in place.
template <typename T, typename I>
CrossEntropyProblem<T, I> MakeProblem(const Tensor& losses, const Tensor& logits,
                                      const Tensor& targets, std::int64_t ignore_index,
                                      double scale, bool with_gradient) {
  using C = ComputeType<T>;
  CrossEntropyProblem<T, I> problem = {};
  problem.losses = losses.data<C>();
  problem.logits = logits.data<T>();
  problem.targets = targets.data<I>();
  problem.rows = targets.numel();
  problem.classes = logits.size(-1);
  problem.row_stride = logits.strides()[0];
  problem.ignore_index = ignore_index;
  problem.scale = static_cast<C>(scale);
  problem.with_gradient = with_gradient;
  return problem;
}

}  // namespace

void CrossEntropyInPlace(const Context& context, const Tensor& losses, const Tensor& logits,
                         const Tensor& targets, std::int64_t ignore_index, double scale,
                         bool with_gradient) {
  DispatchFloating("CrossEntropy", logits.dtype(), [&](auto tag) {
    DispatchIndex("CrossEntropy", targets.dtype(), [&](auto index_tag) {
      using T = typename decltype(tag)::type;
      using I = typename decltype(index_tag)::type;
      RunCrossEntropy<T>(
          context, MakeProblem<T, I>(losses, logits, targets, ignore_index, scale, with_gradient));
    });
  });
}

void CrossEntropyToCodes(const Context& context, const Tensor& losses, const Tensor& codes,
                         const Tensor& logits, const Tensor& targets, std::int64_t ignore_index,
                         double scale) {
  const auto run = [&]<typename T>(TypeTag<T>) {
    DispatchIndex("CrossEntropy", targets.dtype(), [&](auto index_tag) {
      using I = typename decltype(index_tag)::type;
      auto problem = MakeProblem<T, I>(losses, logits, targets, ignore_index, scale, true);
      problem.codes = codes.data<Code>();
      RunCrossEntropy<Code>(context, problem);
    });
  };
  if (logits.dtype() == DataType::kBFloat16) {
    run(TypeTag<BFloat16>{});
  } else {
    run(TypeTag<float>{});
  }
}

}  // namespace infini_train::simt
