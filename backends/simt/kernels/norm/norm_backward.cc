#include <algorithm>

#include "backends/simt/kernels/norm/norm_row.h"
#include "backends/simt/kernels/norm/parameter_sums.h"

namespace infini_train::simt {
namespace {

/// Two sums of a row, found in one reduction.
template <typename C>
struct Pair {
  C g;
  C g_n;
};
struct AddPairs {
  template <typename C>
  SIMT_DEVICE Pair<C> operator()(Pair<C> a, Pair<C> b) const {
    return {a.g + b.g, a.g_n + b.g_n};
  }
};

/// One row, with g = grad_y * weight and n = (x - mean) * rstd.
template <typename T, int N, bool centered>
struct GradientRow {
  using C = ComputeType<T>;
  NormParameter<T> weight;
  C mean;
  C rstd;

  SIMT_DEVICE C Normalized(T x) const {
    return (centered ? ToCompute(x) - mean : ToCompute(x)) * rstd;
  }

  SIMT_DEVICE void AddTo(Pair<C>& sums, std::int64_t i, const Vec<T, N>& x,
                         const Vec<T, N>& grad_y) const {
    C w[N];
    weight.template Read<N>(i, w);
    Pair<C> part{0, 0};
    for (int k = 0; k < N; ++k) {
      const C g = ToCompute(grad_y[k]) * w[k];
      part.g += g;
      part.g_n += g * Normalized(x[k]);
    }
    sums.g += part.g;
    sums.g_n += part.g_n;
  }

  /// rstd * (g - mean(g) - n * mean(g * n)), without mean(g) where not centered, plus grad_sum
  /// where that is not null.
  SIMT_DEVICE Vec<T, N> GradX(Pair<C> means, std::int64_t i, const Vec<T, N>& x,
                              const Vec<T, N>& grad_y, const T* grad_sum) const {
    C w[N];
    weight.template Read<N>(i, w);
    C results[N];
    for (int k = 0; k < N; ++k) {
      const C g = ToCompute(grad_y[k]) * w[k];
      const C from_mean = centered ? g - means.g : g;
      results[k] = rstd * (from_mean - Normalized(x[k]) * means.g_n);
    }
    if (grad_sum != nullptr) {
      const Vec<T, N> direct = Load<N>(grad_sum + i);
      for (int k = 0; k < N; ++k)
        results[k] += ToCompute(direct[k]);
    }
    Vec<T, N> rounded;
    for (int k = 0; k < N; ++k)
      rounded[k] = FromCompute<T>(results[k]);
    return rounded;
  }
};

/// Sums of a parameter's gradient over the rows of a team: the columns that a lane keeps in
/// registers, and in `beyond` what it does not.
template <typename T, int N, bool centered>
struct ColumnSums {
  using C = ComputeType<T>;
  C weight[kCachedVectors<N>][N] = {};
  C bias[centered ? kCachedVectors<N> : 1][N] = {};

  SIMT_DEVICE void Add(int k, const GradientRow<T, N, centered>& row, const Vec<T, N>& x,
                       const Vec<T, N>& grad_y) {
    for (int j = 0; j < N; ++j) {
      weight[k][j] += ToCompute(grad_y[j]) * row.Normalized(x[j]);
      if constexpr (centered) bias[k][j] += ToCompute(grad_y[j]);
    }
  }

  /// The same for elements from `i` on in memory, which hold nothing yet where `first`.
  SIMT_DEVICE static void AddInMemory(C* partials, std::int64_t hidden, std::int64_t i, bool first,
                                      const GradientRow<T, N, centered>& row, const Vec<T, N>& x,
                                      const Vec<T, N>& grad_y) {
    for (int j = 0; j < N; ++j) {
      C* sum = partials + i + j;
      const C term = ToCompute(grad_y[j]) * row.Normalized(x[j]);
      Store(sum, first ? term : Load(sum) + term);
      if constexpr (centered) {
        const C grad = ToCompute(grad_y[j]);
        Store(sum + hidden, first ? grad : Load(sum + hidden) + grad);
      }
    }
  }
};

/// Rows go to teams in turn. Where `partials` is not null, each block writes the sums of its rows
/// to a row of it: hidden sums for the weight, then hidden for the bias where centered.
template <typename T, int N, typename Team, bool centered>
SIMT_KERNEL void NormBackwardKernel(T* grad_x, ComputeType<T>* partials, const T* grad_y,
                                    const T* grad_sum, const T* x, NormParameter<T> weight,
                                    const ComputeType<T>* mean, const ComputeType<T>* rstd,
                                    std::int64_t rows, std::int64_t hidden) {
  using C = ComputeType<T>;
  constexpr int kCached = kCachedVectors<N>;
  const std::int64_t vectors = hidden / N;
  const std::int64_t beyond = Team::Lane() + std::int64_t{kCached} * Team::Size();
  const std::int64_t stride = centered ? 2 * hidden : hidden;
  C* block_partials = partials == nullptr ? nullptr : partials + BlockIndex() * stride;
  ColumnSums<T, N, centered> columns;
  for (std::int64_t r = Team::First(); r < rows; r += Team::Count()) {
    const T* x_row = x + r * hidden;
    const T* grad_y_row = grad_y + r * hidden;
    const T* grad_sum_row = grad_sum == nullptr ? nullptr : grad_sum + r * hidden;
    T* grad_x_row = grad_x + r * hidden;
    const GradientRow<T, N, centered> row{weight, centered ? Load(mean + r) : C(0), Load(rstd + r)};
    Vec<T, N> xs[kCached];
    Vec<T, N> gs[kCached];
    Pair<C> sums{0, 0};
    for (int k = 0; k < kCached; ++k) {
      const std::int64_t v = Team::Lane() + std::int64_t{k} * Team::Size();
      if (v < vectors) {
        xs[k] = Load<N>(x_row + v * N);
        gs[k] = Load<N>(grad_y_row + v * N);
        row.AddTo(sums, v * N, xs[k], gs[k]);
      }
    }
    for (std::int64_t v = beyond; v < vectors; v += Team::Size())
      row.AddTo(sums, v * N, Load<N>(x_row + v * N), Load<N>(grad_y_row + v * N));
    sums = Team::Reduce(sums, AddPairs{}, Pair<C>{0, 0});
    const Pair<C> means{sums.g / static_cast<C>(hidden), sums.g_n / static_cast<C>(hidden)};
    for (int k = 0; k < kCached; ++k) {
      const std::int64_t v = Team::Lane() + std::int64_t{k} * Team::Size();
      if (v < vectors) {
        columns.Add(k, row, xs[k], gs[k]);
        Store(grad_x_row + v * N, row.GradX(means, v * N, xs[k], gs[k], grad_sum_row));
      }
    }
    for (std::int64_t v = beyond; v < vectors; v += Team::Size()) {
      // grad_x may be grad_y itself: read before it is written.
      const Vec<T, N> x_vector = Load<N>(x_row + v * N);
      const Vec<T, N> g_vector = Load<N>(grad_y_row + v * N);
      if (block_partials != nullptr) {
        columns.AddInMemory(block_partials, hidden, v * N, r == Team::First(), row, x_vector,
                            g_vector);
      }
      Store(grad_x_row + v * N, row.GradX(means, v * N, x_vector, g_vector, grad_sum_row));
    }
  }
  if (block_partials == nullptr) return;
  // The teams of a block add their sums one after another; the last one writes them.
  SIMT_DYNAMIC_SHARED(C, shared);
  const int teams = Team::PerBlock();
  for (int team = 0; team < teams; ++team) {
    for (int k = 0; k < kCached && team == Team::InBlock(); ++k) {
      const std::int64_t v = Team::Lane() + std::int64_t{k} * Team::Size();
      if (v >= vectors) break;
      for (int j = 0; j < N; ++j) {
        const std::int64_t i = v * N + j;
        C weight_sum = columns.weight[k][j];
        C bias_sum = columns.bias[centered ? k : 0][j];
        if (team > 0) {
          const C weight_before = shared[i];
          weight_sum += weight_before;
          if constexpr (centered) {
            const C bias_before = shared[hidden + i];
            bias_sum += bias_before;
          }
        }
        if (team + 1 < teams) {
          shared[i] = weight_sum;
          if constexpr (centered) shared[hidden + i] = bias_sum;
        } else {
          Store(block_partials + i, weight_sum);
          if constexpr (centered) Store(block_partials + hidden + i, bias_sum);
        }
      }
    }
    if (team + 1 < teams) SyncBlock();
  }
}

/// Blocks that sum parameter gradients, with this many rows for each team at least: numbers of the
/// problem and not of the device, so that the order of the sum is too.
constexpr std::int64_t kMinTeamRows = 4;
constexpr std::int64_t kMaxParts = 512;

template <bool centered>
void NormBackward(const char* op, const Context& context, Tensor& grad_x, Tensor& grad_weight,
                  Tensor& grad_bias, const Tensor& grad_y, const Tensor& grad_sum, const Tensor& x,
                  const Tensor& weight, const Tensor* mean, const Tensor& rstd) {
  const std::int64_t hidden = x.size(-1);
  const std::int64_t rows = rstd.numel();
  if (hidden == 0) return;
  const bool wants_parameters = grad_weight.defined() || grad_bias.defined();
  const std::int64_t stride = centered ? 2 * hidden : hidden;
  DispatchFloating(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    DispatchNormRows<T>(
        hidden, {&grad_x, &grad_y, &grad_sum, &x, &weight}, [&](auto team, auto width, int lanes) {
          using Team = typename decltype(team)::type;
          constexpr bool kGroups = std::is_same_v<Team, GroupTeam>;
          constexpr std::int64_t kTeams = kGroups ? 8 : 1;
          Geometry geometry = Rows((rows + kTeams - 1) / kTeams, lanes * static_cast<int>(kTeams));
          Tensor partials;
          if (wants_parameters) {
            const std::int64_t part_rows = kTeams * kMinTeamRows;
            geometry.grid_x = std::min(kMaxParts, (rows + part_rows - 1) / part_rows);
            if (kGroups) {
              geometry.dynamic_shared_bytes = static_cast<std::size_t>(stride) * sizeof(C);
            }
            partials = Tensor::Empty({geometry.grid_x, stride}, DataTypeOf<C>(), context.device);
          }
          C* partials_data = wants_parameters ? partials.template data<C>() : nullptr;
          Launch(context, geometry, &NormBackwardKernel<T, width(), Team, centered>,
                 grad_x.data<T>(), partials_data, grad_y.data<T>(), DataOf<T>(grad_sum),
                 x.data<T>(), NormParameter<T>::Of(weight, 1), centered ? mean->data<C>() : nullptr,
                 rstd.data<C>(), rows, hidden);
          if (wants_parameters) SumParameterParts(context, grad_weight, grad_bias, partials);
        });
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
