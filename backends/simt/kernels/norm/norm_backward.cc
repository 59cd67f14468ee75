#include <algorithm>

#include "backends/simt/kernels/norm/norm_backward_batch.h"
#include "backends/simt/kernels/norm/parameter_sums.h"

namespace infini_train::simt {
namespace {

/// Rows of any length, a block for each; the columns' sums stay in memory. An element belongs to
/// one lane in all rows of a block.
template <typename T, int N, bool centered>
SIMT_KERNEL void NormBackwardKernel(NormBackwardArguments<T> args) {
  using C = ComputeType<T>;
  const std::int64_t hidden = args.hidden;
  C* const partials = args.partials == nullptr
                          ? nullptr
                          : args.partials + BlockIndex() * (centered ? 2 * hidden : hidden);
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
      Store(args.grad_x + begin + i,
            row.GradX(means, w, x, grad_y, args.template Direct<N>(begin + i)));
      for (int k = 0; partials != nullptr && k < N; ++k) {
        C* const sum = partials + i + k;
        const bool is_first = r == BlockIndex();
        const C grad = ToCompute(grad_y[k]);
        const C term = grad * row.Normalized(x[k]);
        Store(sum, is_first ? term : Load(sum) + term);
        if constexpr (centered) Store(sum + hidden, is_first ? grad : Load(sum + hidden) + grad);
      }
    }
  }
}

/// Blocks that sum parameter gradients, with this many rows each at least: numbers of the problem
/// and not of the device, so that the order of the sum is too. About as many as have room on a
/// large device at a time, as what a block reads ahead fills its registers.
constexpr std::int64_t kMinPartRows = 16;
constexpr std::int64_t kMaxPartLanes = 64 * 1024;
constexpr std::int64_t kMaxParts = 512;

template <bool centered>
void NormBackward(const char* op, const Context& context, Tensor& grad_x, Tensor& grad_weight,
                  Tensor& grad_bias, const Tensor& grad_y, const Tensor& grad_sum, const Tensor& x,
                  const Tensor& weight, const Tensor* mean, const Tensor& rstd) {
  const std::int64_t hidden = x.size(-1);
  const std::int64_t rows = rstd.numel();
  if (hidden == 0) return;
  const bool wants_parameters = grad_weight.defined() || grad_bias.defined();
  DispatchFloating(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    NormBackwardArguments<T> args{grad_x.data<T>(),
                                  nullptr,
                                  grad_y.data<T>(),
                                  DataOf<T>(grad_sum),
                                  x.data<T>(),
                                  NormParameter<T>::Of(weight, 1),
                                  centered ? mean->data<C>() : nullptr,
                                  rstd.data<C>(),
                                  rows,
                                  hidden};
    const auto launch = [&](auto kernel, std::int64_t rows_at_once, int lanes,
                            std::int64_t max_parts) {
      Geometry geometry = Rows((rows + rows_at_once - 1) / rows_at_once, lanes);
      Tensor partials;
      if (wants_parameters) {
        geometry.grid_x = std::min(max_parts, (rows + kMinPartRows - 1) / kMinPartRows);
        partials = Tensor::Empty({geometry.grid_x, centered ? 2 * hidden : hidden}, DataTypeOf<C>(),
                                 context.device);
        args.partials = partials.template data<C>();
      }
      Launch(context, geometry, kernel, args);
      if (wants_parameters) SumParameterParts(context, grad_weight, grad_bias, partials);
    };
    const auto choose = [&]<int N>(std::integral_constant<int, N>) {
      const std::int64_t vectors = hidden / N;
      const auto lanes = [&](std::int64_t per_lane) {
        const std::int64_t all = (vectors + per_lane - 1) / per_lane;
        return static_cast<int>((all + kGroupWidth - 1) / kGroupWidth) * kGroupWidth;
      };
      const auto parts = [](int block) { return std::min(kMaxParts, kMaxPartLanes / block); };
      if (vectors <= kMaxBatchLanes) {
        launch(&NormBackwardBatchKernel<T, N, 1, 2, centered>, 2, lanes(1), parts(lanes(1)));
      } else if (N > 1 && vectors <= 4 * kMaxBatchLanes) {
        if constexpr (N > 1)
          launch(&NormBackwardBatchKernel<T, N, 4, 1, centered>, 1, lanes(4), parts(lanes(4)));
      } else {
        launch(&NormBackwardKernel<T, N, centered>, 1, kMaxRowLanes, kMaxParts);
      }
    };
    if (HasVectorRows<T>(hidden, {&grad_x, &grad_y, &grad_sum, &x, &weight})) {
      choose(std::integral_constant<int, kMaxVectorWidth<T>>{});
    } else {
      choose(std::integral_constant<int, 1>{});
    }
  });
}

void LayerNormBackward(const Context& context, Tensor& grad_x, Tensor& grad_weight,
                       Tensor& grad_bias, const Tensor& grad_y, const Tensor& x,
                       const Tensor& weight, const Tensor& mean, const Tensor& rstd) {
  NormBackward<true>("LayerNormBackward", context, grad_x, grad_weight, grad_bias, grad_y, {}, x,
                     weight, &mean, rstd);
}

void AddLayerNormBackward(const Context& context, Tensor& grad_x, Tensor& grad_weight,
                          Tensor& grad_bias, const Tensor& grad_y, const Tensor& grad_sum,
                          const Tensor& sum, const Tensor& weight, const Tensor& mean,
                          const Tensor& rstd) {
  NormBackward<true>("AddLayerNormBackward", context, grad_x, grad_weight, grad_bias, grad_y,
                     grad_sum, sum, weight, &mean, rstd);
}

void RmsNormBackward(const Context& context, Tensor& grad_x, Tensor& grad_weight,
                     const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                     const Tensor& rstd) {
  Tensor no_bias;
  NormBackward<false>("RmsNormBackward", context, grad_x, grad_weight, no_bias, grad_y, {}, x,
                      weight, nullptr, rstd);
}

void AddRmsNormBackward(const Context& context, Tensor& grad_x, Tensor& grad_weight,
                        const Tensor& grad_y, const Tensor& grad_sum, const Tensor& sum,
                        const Tensor& weight, const Tensor& rstd) {
  Tensor no_bias;
  NormBackward<false>("AddRmsNormBackward", context, grad_x, grad_weight, no_bias, grad_y, grad_sum,
                      sum, weight, nullptr, rstd);
}

}  // namespace

SIMT_REGISTER_KERNEL(LayerNormBackward, &LayerNormBackward);
SIMT_REGISTER_KERNEL(RmsNormBackward, &RmsNormBackward);
SIMT_REGISTER_KERNEL(AddLayerNormBackward, &AddLayerNormBackward);
SIMT_REGISTER_KERNEL(AddRmsNormBackward, &AddRmsNormBackward);

}  // namespace infini_train::simt
