#include <bit>
#include <cstdint>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/norm/norm_row.h"
#include "backends/simt/kernels/norm/row_statistics.h"
#include "infini_train/core/fp8.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/fp8_composition.h"

namespace infini_train::simt {
namespace {

/// Activations are quantised to this format; a norm in another one takes the composition.
using Float8 = Float8E4M3;
constexpr Fp8Format kFormat = Fp8Format::kE4M3;

constexpr int kGroupLanes = 256;
/// Rows of a column that are written at once.
constexpr int kPieceRows = kMaxVectorBytes;
/// Pieces of a column that a block writes side by side, at most.
constexpr int kMaxPieces = 4;
/// Blocks that should have room in a multiprocessor at a time.
constexpr int kResidentBlocks = 4;

template <typename T>
struct QuantizeNormProblem {
  using C = ComputeType<T>;
  std::uint8_t* out;         // [rows, hidden], or null
  std::uint8_t* transposed;  // [hidden, rows], or null
  std::int32_t* amax;        // the bits of a float, or null
  T* sum;                    // null without a residual
  C* mean;
  C* rstd;
  const T* x;
  const T* residual;
  NormParameter<T> weight;
  NormParameter<T> bias;
  const float* scale;
  C eps;
  std::int64_t rows, hidden;
  int piece_bits;  // a block has 2^piece_bits pieces of rows at a time

  SIMT_HOST_DEVICE int TileRows() const { return kPieceRows << piece_bits; }
  /// Words of codes from row to row in shared memory: an odd number, so that rows begin in
  /// different banks.
  SIMT_HOST_DEVICE int Stride() const { return static_cast<int>(hidden / 4) | 1; }
};

/// Writes the columns of the tile of rows from `first` on, whose codes lie in `words`.
template <typename T>
SIMT_DEVICE void WriteTransposed(const QuantizeNormProblem<T>& problem,
                                 const Shared<std::uint32_t>& words, std::int64_t first) {
  const int stride = problem.Stride();
  const int count = static_cast<int>(problem.hidden / 4) << problem.piece_bits;
  for (int i = ThreadIndex(); i < count; i += BlockSize()) {
    const int row = (i & ((1 << problem.piece_bits) - 1)) * kPieceRows;
    const int quad = i >> problem.piece_bits;
    if (first + row >= problem.rows) continue;
    Vec<std::uint32_t, kPieceRows / 4> columns[4];
    SIMT_UNROLL
    for (int word = 0; word < kPieceRows / 4; ++word) {
      std::uint32_t rows[4];
      SIMT_UNROLL
      for (int r = 0; r < 4; ++r)
        rows[r] = words[(row + 4 * word + r) * stride + quad];
      TransposeBytes(rows);
      SIMT_UNROLL
      for (int c = 0; c < 4; ++c)
        columns[c][word] = rows[c];
    }
    std::uint8_t* to = problem.transposed + std::int64_t{4} * quad * problem.rows + first + row;
    SIMT_UNROLL
    for (int c = 0; c < 4; ++c, to += problem.rows)
      Store(to, std::bit_cast<Vec<std::uint8_t, kPieceRows>>(columns[c]));
  }
}

/// A block works on a tile of rows at a time. Rows of a matrix with a transposed copy come in whole
/// pieces.
template <typename Row, bool centered, typename T = typename Row::Element>
SIMT_KERNEL SIMT_RESIDENT(kGroupLanes,
                          kResidentBlocks) void QuantizeNormKernel(QuantizeNormProblem<T> problem) {
  using Team = typename Row::Team;
  using C = ComputeType<T>;
  constexpr int N = Row::kWidth;
  static_assert(N % 4 == 0);
  SIMT_DYNAMIC_SHARED(std::uint32_t, words);
  const std::int64_t hidden = problem.hidden;
  const std::int64_t tile_rows = problem.TileRows();
  const float scale = Load(problem.scale + 1);
  float largest = 0;
  for (std::int64_t first = BlockIndex() * tile_rows; first < problem.rows;
       first += GridSize() * tile_rows) {
    const std::int64_t end = Min(first + tile_rows, problem.rows);
    for (std::int64_t row = first + Team::InBlock(); row < end; row += Team::PerBlock()) {
      const std::int64_t at = row * hidden;
      const Row values = problem.sum == nullptr
                             ? Row(problem.x + at, hidden)
                             : Row(problem.x + at, problem.residual + at, problem.sum + at, hidden);
      const NormStatistics<C> by = RowNormStatistics<centered>(values, hidden, problem.eps);
      if (Team::Lane() == 0) {
        if constexpr (centered) Store(problem.mean + row, by.mean);
        Store(problem.rstd + row, by.rstd);
      }
      const int first_word = static_cast<int>(row - first) * problem.Stride();
      values.ForEach([&](std::int64_t i, const C(&x)[N]) {
        C numbers[N], w[N], b[N] = {};
        problem.weight.template Read<N>(i, w);
        if constexpr (centered) problem.bias.template Read<N>(i, b);
        SIMT_UNROLL
        for (int k = 0; k < N; ++k) {
          numbers[k] = (centered ? x[k] - by.mean : x[k]) * by.rstd * w[k] + b[k];
          largest = Max(largest, Abs(numbers[k]));
        }
        Vec<std::uint32_t, N / 4> codes;
        SIMT_UNROLL
        for (int word = 0; word < N / 4; ++word) {
          codes[word] =
              PackCodes<Float8>(numbers[4 * word] * scale, numbers[4 * word + 1] * scale,
                                numbers[4 * word + 2] * scale, numbers[4 * word + 3] * scale);
        }
        if (problem.out != nullptr)
          Store(problem.out + at + i, std::bit_cast<Vec<std::uint8_t, N>>(codes));
        if (problem.transposed == nullptr) return;
        SIMT_UNROLL
        for (int word = 0; word < N / 4; ++word)
          words[first_word + static_cast<int>(i / 4) + word] = codes[word];
      });
    }
    if (problem.transposed == nullptr) continue;
    SyncBlock();
    WriteTransposed(problem, words, first);
    SyncBlock();
  }
  largest = ReduceBlock(largest, MaxOp(), 0.0f);
  // Numbers without their sign order like their bits, with NaN above all.
  if (ThreadIndex() == 0 && problem.amax != nullptr)
    AtomicMax(problem.amax, std::bit_cast<std::int32_t>(largest) & 0x7FFFFFFF);
}

/// Sets the pieces of a tile, as many as have room in a share of a multiprocessor's memory; false
/// where not even one has.
template <typename T>
bool ChooseTile(const Context& context, QuantizeNormProblem<T>& problem, std::size_t& bytes) {
  const auto bytes_of = [&] {
    return sizeof(std::uint32_t) * static_cast<std::size_t>(problem.TileRows() * problem.Stride());
  };
  for (int pieces = kMaxPieces; pieces > 0; pieces /= 2) {
    problem.piece_bits = std::countr_zero(static_cast<unsigned>(pieces));
    bytes = problem.transposed == nullptr ? 0 : bytes_of();
    // Long rows are worth more memory.
    const std::size_t blocks = pieces > 1 ? kResidentBlocks : 2;
    if (bytes <= MaxDynamicSharedBytes(context) / blocks) return true;
  }
  return false;
}

/// False where the arguments are for the composition.
template <typename T, bool centered>
bool Run(const Context& context, const Tensor& out, const Tensor& transposed, const Tensor& amax,
         const Tensor& sum, const Tensor& mean, const Tensor& rstd, const Tensor& x,
         const Tensor& residual, const Tensor& weight, const Tensor& bias, const Tensor& scale,
         double eps) {
  using C = ComputeType<T>;
  constexpr int N = kMaxVectorWidth<T>;
  QuantizeNormProblem<T> problem = {};
  problem.out = DataOf<std::uint8_t>(out);
  problem.transposed = DataOf<std::uint8_t>(transposed);
  if (amax.defined()) problem.amax = reinterpret_cast<std::int32_t*>(amax.data<float>());
  problem.sum = residual.defined() ? sum.data<T>() : nullptr;
  problem.mean = DataOf<C>(mean);
  problem.rstd = rstd.data<C>();
  problem.x = x.data<T>();
  problem.residual = DataOf<T>(residual);
  problem.weight = NormParameter<T>::Of(weight, 1);
  problem.bias = NormParameter<T>::Of(bias, 0);
  problem.scale = scale.data<float>();
  problem.eps = static_cast<C>(eps);
  problem.rows = x.size(0);
  problem.hidden = x.size(1);
  const bool is_aligned = HasVectorRows<T>(problem.hidden, {&sum, &x, &residual, &weight, &bias}) &&
                          VectorWidth(problem.out, problem.hidden) >= N &&
                          (problem.transposed == nullptr ||
                           VectorWidth(problem.transposed, problem.rows) == kPieceRows);
  std::size_t bytes = 0;
  if (!is_aligned || !ChooseTile(context, problem, bytes)) return false;
  DispatchNormRows<T>(problem.hidden, {&sum, &x, &residual, &weight, &bias},
                      [&]<typename Row>(TypeTag<Row>, int lanes) {
                        if constexpr (Row::kWidth == N) {
                          constexpr bool kGroups = std::is_same_v<typename Row::Team, GroupTeam>;
                          const std::int64_t tile_rows = problem.TileRows();
                          Geometry geometry = Rows((problem.rows + tile_rows - 1) / tile_rows,
                                                   kGroups ? kGroupLanes : lanes);
                          geometry.dynamic_shared_bytes = bytes;
                          Launch(context, geometry, &QuantizeNormKernel<Row, centered>, problem);
                        }
                      });
  return true;
}

void Fp8QuantizeNorm(const Context& context, Tensor& out, Tensor& transposed, Tensor& amax,
                     Tensor& sum, Tensor& mean, Tensor& rstd, const Tensor& x,
                     const Tensor& residual, const Tensor& weight, const Tensor& bias,
                     const Tensor& scale, Fp8Format format, double eps) {
  const auto run = [&]<typename T>(TypeTag<T>) {
    const auto body = mean.defined() ? &Run<T, true> : &Run<T, false>;
    return body(context, out, transposed, amax, sum, mean, rstd, x, residual, weight, bias, scale,
                eps);
  };
  bool is_done = x.numel() == 0;
  if (format == kFormat && x.dtype() == DataType::kBFloat16 && !is_done) {
    is_done = run(TypeTag<BFloat16>{});
  } else if (format == kFormat && x.dtype() == DataType::kFloat32 && !is_done) {
    is_done = run(TypeTag<float>{});
  }
  if (!is_done) {
    ComposeFp8QuantizeNorm(out, transposed, amax, sum, mean, rstd, x, residual, weight, bias, scale,
                           format, eps);
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(Fp8QuantizeNorm, &Fp8QuantizeNorm);

}  // namespace infini_train::simt
