#include <algorithm>

#include "backends/simt/kernels/norm/norm_backward_ring.h"
#include "backends/simt/kernels/norm/part_sums.h"

namespace infini_train::simt {
namespace {

template <typename C>
SIMT_DEVICE void AddTo(C* sum, bool is_first, C term) {
  Store(sum, is_first ? term : Load(sum) + term);
}

/// Rows of any length, a block for each; the columns' sums stay in memory. An element belongs to
/// one lane in all rows of a block.
template <typename T, int N, bool centered, bool sums_x>
SIMT_KERNEL void NormBackwardKernel(NormBackwardArguments<T> args) {
  using C = ComputeType<T>;
  const std::int64_t hidden = args.hidden;
  constexpr int kSums = kColumnSums<centered, sums_x>;
  C* const partials =
      args.partials == nullptr ? nullptr : args.partials + BlockIndex() * kSums * hidden;
  for (std::int64_t r = BlockIndex(); r < args.rows; r += GridSize()) {
    const std::int64_t begin = r * hidden;
    const GradientRow<T, N, centered> row{centered ? Load(args.mean + r) : C(0),
                                          Load(args.rstd + r)};
    const std::int64_t step = static_cast<std::int64_t>(BlockSize()) * N;
    Pair<C> sums{0, 0};
    for (std::int64_t i = static_cast<std::int64_t>(ThreadIndex()) * N; i < hidden; i += step) {
      C w[N];
      args.weight.template Read<N>(i, w);
      row.AddTo(sums, w, Load<N>(args.x + begin + i), Load<N>(args.grad_y + begin + i));
    }
    sums = ReduceBlock(sums, AddPairs{}, Pair<C>{0, 0});
    const Pair<C> means{sums.g / static_cast<C>(hidden), sums.g_n / static_cast<C>(hidden)};
    for (std::int64_t i = static_cast<std::int64_t>(ThreadIndex()) * N; i < hidden; i += step) {
      // grad_x may be grad_y itself: read before it is written.
      const Vec<T, N> x = Load<N>(args.x + begin + i);
      const Vec<T, N> grad_y = Load<N>(args.grad_y + begin + i);
      C w[N];
      args.weight.template Read<N>(i, w);
      C grad_x[N];
      row.GradX(grad_x, means, w, x, grad_y, args.template Direct<N>(begin + i));
      Packed<T, N>::Narrow(grad_x).Store(args.grad_x + begin + i);
      for (int k = 0; partials != nullptr && k < N; ++k) {
        const C grad = ToCompute(grad_y[k]);
        C* const sum = partials + i + k;
        const bool is_first = r == BlockIndex();
        AddTo(sum, is_first, grad * row.Normalized(x[k]));
        if constexpr (centered) AddTo(sum + hidden, is_first, grad);
        if constexpr (sums_x) AddTo(sum + (kSums - 1) * hidden, is_first, grad_x[k]);
      }
    }
  }
}

/// Blocks that sum parameter gradients, with this many rows each at least: numbers of the problem
/// and not of the device, so that the order of the sum is too. About as many as have room on a
/// large device at a time, as what a block reads ahead fills its registers.
constexpr std::int64_t kMinPartRows = 4;
constexpr std::int64_t kMaxPartLanes = 64 * 1024;
constexpr std::int64_t kMaxParts = 512;
constexpr std::int64_t kLargeDevice = 132;  ///< multiprocessors

/// Sums over rows that come with a norm's backward: each is optional.
struct ColumnSums {
  Tensor& grad_weight;
  Tensor& grad_bias;
  Tensor& grad_x_sums;

  bool Any() const { return grad_weight.defined() || grad_bias.defined() || grad_x_sums.defined(); }
};

template <bool centered>
void NormBackward(const char* op, const Context& context, Tensor& grad_x, ColumnSums sums,
                  const Tensor& grad_y, const Tensor& grad_sum, const Tensor& x,
                  const Tensor& weight, const Tensor& mean, const Tensor& rstd) {
  const std::int64_t hidden = x.size(-1);
  const std::int64_t rows = rstd.numel();
  if (hidden == 0) return;
  DispatchFloating(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    NormBackwardArguments<T> args{grad_x.data<T>(),
                                  nullptr,
                                  grad_y.data<T>(),
                                  DataOf<T>(grad_sum),
                                  x.data<T>(),
                                  NormParameter<T>::Of(weight, 1),
                                  DataOf<C>(mean),
                                  rstd.data<C>(),
                                  rows,
                                  hidden};
    const auto launch = [&](auto kernel, std::int64_t rows_at_once, int lanes,
                            std::int64_t max_parts, std::size_t shared_bytes = 0) {
      const std::int64_t part_rows = sums.Any() ? kMinPartRows : rows_at_once;
      Geometry geometry = Rows(std::min(max_parts, (rows + part_rows - 1) / part_rows), lanes);
      geometry.dynamic_shared_bytes = shared_bytes;
      Tensor partials;
      if (sums.Any()) {
        const std::int64_t columns = (centered ? 2 : 1) + (sums.grad_x_sums.defined() ? 1 : 0);
        partials =
            Tensor::Empty({geometry.grid_x, columns * hidden}, DataTypeOf<C>(), context.device);
        args.partials = partials.template data<C>();
      }
      Launch(context, geometry, kernel, args);
      if (!sums.Any()) return;
      if constexpr (centered) {
        SumParts(context, x.dtype(), {&sums.grad_weight, &sums.grad_bias, &sums.grad_x_sums},
                 partials, hidden);
      } else {
        SumParts(context, x.dtype(), {&sums.grad_weight}, partials, hidden);
      }
    };
    const auto choose = [&]<int N, bool sums_x>(std::integral_constant<int, N>,
                                                std::bool_constant<sums_x>) {
      const std::int64_t vectors = hidden / N;
      if constexpr (kCopiesAreAsync && N > 1) {
        if (hidden <= kMaxCachedGroupRow<N>) {
          return DispatchCachedVectors<N>(
              vectors, kGroupWidth, [&]<int kVectors>(std::integral_constant<int, kVectors>) {
                using Ring = RowRing<GroupTeam, T, N, kVectors, 1>;
                const auto room =
                    static_cast<int>(MaxDynamicSharedBytes(context) / Ring::Bytes(kGroupWidth));
                const int groups = std::min(Ring::kMaxLanes / kGroupWidth, room);
                launch(&NormBackwardRingKernel<Ring, centered, sums_x>, groups,
                       groups * kGroupWidth, kLargeDevice * Ring::kResidentBlocks,
                       Ring::Bytes(groups * kGroupWidth));
              });
        }
      }
      const auto lanes = [&](std::int64_t per_lane) {
        const std::int64_t all = (vectors + per_lane - 1) / per_lane;
        return static_cast<int>((all + kGroupWidth - 1) / kGroupWidth) * kGroupWidth;
      };
      const auto parts = [](int block) { return std::min(kMaxParts, kMaxPartLanes / block); };
      // Whether it did; at least `blocks` have room.
      const auto ring = [&]<int kPerLane, int kRows>(std::integral_constant<int, kPerLane>,
                                                     std::integral_constant<int, kRows>,
                                                     std::size_t blocks) {
        using Ring = RowRing<BlockTeam, T, N, kPerLane, kRows>;
        const std::size_t bytes = Ring::Bytes(lanes(kPerLane));
        if (vectors > kPerLane * Ring::kMaxLanes ||
            bytes > MaxDynamicSharedBytes(context) / blocks) {
          return false;
        }
        launch(&NormBackwardRingKernel<Ring, centered, sums_x>, kRows, lanes(kPerLane),
               parts(lanes(kPerLane)), bytes);
        return true;
      };
      using One = std::integral_constant<int, 1>;
      using Two = std::integral_constant<int, 2>;
      using Four = std::integral_constant<int, 4>;
      if (ring(One{}, Four{}, 2) || ring(One{}, One{}, 1)) return;
      if constexpr (N > 1) {
        if (ring(Two{}, Two{}, 2) || ring(Two{}, One{}, 1) || ring(Four{}, One{}, 1)) return;
      }
      launch(&NormBackwardKernel<T, N, centered, sums_x>, 1, kMaxRowLanes, kMaxParts);
    };
    const auto choose_sums = [&](auto width) {
      if constexpr (centered) {
        if (sums.grad_x_sums.defined()) return choose(width, std::true_type{});
      }
      choose(width, std::false_type{});
    };
    if (HasVectorRows<T>(hidden, {&grad_x, &grad_y, &grad_sum, &x, &weight})) {
      choose_sums(std::integral_constant<int, kMaxVectorWidth<T>>{});
    } else {
      choose_sums(std::integral_constant<int, 1>{});
    }
  });
}

void LayerNormBackward(const Context& context, Tensor& grad_x, Tensor& grad_weight,
                       Tensor& grad_bias, const Tensor& grad_y, const Tensor& x,
                       const Tensor& weight, const Tensor& mean, const Tensor& rstd) {
  Tensor none;
  NormBackward<true>("LayerNormBackward", context, grad_x, {grad_weight, grad_bias, none}, grad_y,
                     {}, x, weight, mean, rstd);
}

void AddLayerNormBackward(const Context& context, Tensor& grad_x, Tensor& grad_weight,
                          Tensor& grad_bias, Tensor& grad_x_sums, const Tensor& grad_y,
                          const Tensor& grad_sum, const Tensor& sum, const Tensor& weight,
                          const Tensor& mean, const Tensor& rstd) {
  NormBackward<true>("AddLayerNormBackward", context, grad_x, {grad_weight, grad_bias, grad_x_sums},
                     grad_y, grad_sum, sum, weight, mean, rstd);
}

void RmsNormBackward(const Context& context, Tensor& grad_x, Tensor& grad_weight,
                     const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                     const Tensor& rstd) {
  Tensor none;
  NormBackward<false>("RmsNormBackward", context, grad_x, {grad_weight, none, none}, grad_y, {}, x,
                      weight, {}, rstd);
}

void AddRmsNormBackward(const Context& context, Tensor& grad_x, Tensor& grad_weight,
                        const Tensor& grad_y, const Tensor& grad_sum, const Tensor& sum,
                        const Tensor& weight, const Tensor& rstd) {
  Tensor none;
  NormBackward<false>("AddRmsNormBackward", context, grad_x, {grad_weight, none, none}, grad_y,
                      grad_sum, sum, weight, {}, rstd);
}

}  // namespace

SIMT_REGISTER_KERNEL(LayerNormBackward, &LayerNormBackward);
SIMT_REGISTER_KERNEL(RmsNormBackward, &RmsNormBackward);
SIMT_REGISTER_KERNEL(AddLayerNormBackward, &AddLayerNormBackward);
SIMT_REGISTER_KERNEL(AddRmsNormBackward, &AddRmsNormBackward);

}  // namespace infini_train::simt
