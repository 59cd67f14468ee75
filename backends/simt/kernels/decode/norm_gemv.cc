#include <algorithm>
#include <cstdint>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/norm/norm_row.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

constexpr int kLanes = 256;
constexpr int kGroups = kLanes / kGroupWidth;
/// Vectors of a weight's row that a lane reads before it uses the first: all that a lane has of a
/// row of 2048 bfloat16 elements.
constexpr int kBatch = 8;
/// Rows of x that meet a weight on its only way from memory.
constexpr int kMaxRows = 4;
constexpr std::size_t kMaxInputBytes = 40 * 1024;

template <typename T>
struct Arguments {
  T* out;
  const T* x;
  const T* weight;
  const T* bias;      ///< or null
  const T* residual;  ///< or null
  NormParameter<T> norm;
  bool normalizes;
  std::int64_t inputs, outputs;
  ComputeType<T> eps;
};

/// A batch of a row's vectors: of lane l those at l, l + 32, ...
template <typename T, int N>
struct WeightBatch {
  Packed<T, N> vectors[kBatch];

  SIMT_DEVICE void Read(const T* row, int first, int vectors_in_row) {
    SIMT_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      const int v = first + j * kGroupWidth;
      if (v < vectors_in_row) vectors[j] = Packed<T, N>::Of(row + std::int64_t{v} * N);
    }
  }
};

// A group of lanes for each output, which reads its row of the weight once. The first part of it is
// under way while the block normalises the input.
template <typename T, int N, int kRows, bool gated>
SIMT_KERNEL void NormGemvKernel(Arguments<T> args) {
  using C = ComputeType<T>;
  SIMT_DYNAMIC_SHARED(T, input);  // [kRows, inputs], as the product takes it
  const int inputs = static_cast<int>(args.inputs);
  const int vectors = inputs / N;
  const int lane = GroupLane<kGroupWidth>();
  const std::int64_t output = BlockIndex() * kGroups + ThreadIndex() / kGroupWidth;
  const bool has_output = output < args.outputs;
  const T* row = args.weight + (has_output ? output : 0) * args.inputs;
  WeightBatch<T, N> first;
  first.Read(row, lane, has_output ? vectors : 0);

  for (int m = 0; m < kRows; ++m) {
    const T* const x = args.x + m * args.inputs;
    C rstd = 1;
    if (args.normalizes) {
      C sum = 0;
      for (int v = ThreadIndex(); v < vectors; v += kLanes) {
        C values[N];
        Packed<T, N>::Of(x + v * N).Widen(values);
        for (int k = 0; k < N; ++k)
          sum += values[k] * values[k];
      }
      sum = ReduceBlock(sum, SumOp{}, C(0));
      rstd = C(1) / Sqrt(sum / static_cast<C>(inputs) + args.eps);
    }
    for (int v = ThreadIndex(); v < vectors; v += kLanes) {
      Packed<T, N> values = Packed<T, N>::Of(x + v * N);
      if (args.normalizes) {
        C numbers[N], w[N];
        values.Widen(numbers);
        args.norm.template Read<N>(v * N, w);
        Vec<T, N> normalized;
        for (int k = 0; k < N; ++k)
          normalized[k] = FromCompute<T>(numbers[k] * rstd * w[k]);
        values = Packed<T, N>(normalized);
      }
      input.Store(m * inputs + v * N, values.Unpack());
    }
  }
  SyncBlock();
  if (!has_output) return;

  C results[gated ? 2 : 1][kRows];
  SIMT_UNROLL
  for (int part = 0; part < (gated ? 2 : 1); ++part) {
    C sums[kRows] = {};
    for (int v = lane; v < vectors; v += kBatch * kGroupWidth) {
      if (part > 0 || v != lane) first.Read(row, v, vectors);
      SIMT_UNROLL
      for (int j = 0; j < kBatch; ++j) {
        const int at = v + j * kGroupWidth;
        if (at >= vectors) continue;
        C w[N];
        first.vectors[j].Widen(w);
        SIMT_UNROLL
        for (int m = 0; m < kRows; ++m) {
          C values[N];
          Packed<T, N>(input.template Load<N>(m * inputs + at * N)).Widen(values);
          SIMT_UNROLL
          for (int k = 0; k < N; ++k)
            sums[m] += w[k] * values[k];
        }
      }
    }
    const std::int64_t column = output + part * args.outputs;
    SIMT_UNROLL
    for (int m = 0; m < kRows; ++m) {
      results[part][m] = ReduceGroup<kGroupWidth>(sums[m], SumOp{});
      if (args.bias != nullptr) results[part][m] += ToCompute(Load(args.bias + column));
    }
    row += args.outputs * args.inputs;
  }
  if (lane != 0) return;
  for (int m = 0; m < kRows; ++m) {
    C result = results[0][m];
    if constexpr (gated) result = Silu(result) * results[1][m];
    const std::int64_t at = m * args.outputs + output;
    if (args.residual != nullptr) result += ToCompute(Load(args.residual + at));
    Store(args.out + at, FromCompute<T>(result));
  }
}

template <typename T, int N, int kRows>
void LaunchRows(const Context& context, const Arguments<T>& args, bool gated) {
  Geometry geometry{.grid_x = (args.outputs + kGroups - 1) / kGroups, .block = kLanes};
  geometry.dynamic_shared_bytes = static_cast<std::size_t>(kRows * args.inputs) * sizeof(T);
  Launch(context, geometry,
         gated ? &NormGemvKernel<T, N, kRows, true> : &NormGemvKernel<T, N, kRows, false>, args);
}

/// By the ops that it is made of: for many rows, and for very long ones.
void Compose(Tensor& out, const Tensor& x, const Tensor& norm_weight, const Tensor& weight,
             const Tensor& bias, const Tensor& residual, double eps, bool gated) {
  const auto empty = [&](const Dims& shape, DataType dtype) {
    return Tensor::Empty(shape, dtype, x.device());
  };
  Tensor rows = x;
  if (norm_weight.defined()) {
    rows = Tensor::EmptyLike(x);
    Tensor rstd = empty({x.size(0)},
                        x.dtype() == DataType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32);
    Call<op::RmsNorm>(rows, rstd, x, norm_weight, eps);
  }
  Tensor product =
      gated || residual.defined() ? empty({x.size(0), weight.size(0)}, x.dtype()) : out;
  Call<op::Gemm>(
      product, rows,
      weight.AsStrided({weight.size(1), weight.size(0)}, {1, weight.size(1)}, weight.offset()),
      bias, false);
  if (gated) {
    Tensor activated = residual.defined() ? Tensor::EmptyLike(out) : out;
    Call<op::SwiGlu>(activated, product);
    product = activated;
  }
  if (residual.defined()) Call<op::Add>(out, product, residual);
}

void NormGemv(const Context& context, Tensor& out, const Tensor& x, const Tensor& norm_weight,
              const Tensor& weight, const Tensor& bias, const Tensor& residual, double eps,
              bool gated) {
  if (out.numel() == 0) return;
  const std::int64_t rows = x.size(0);
  const auto input_bytes = static_cast<std::size_t>(x.size(1)) * SizeOf(x.dtype());
  if (rows > 2 * kMaxRows || x.size(1) == 0 || input_bytes > kMaxInputBytes) {
    Compose(out, x, norm_weight, weight, bias, residual, eps, gated);
    return;
  }
  const auto at_once =
      std::min<std::int64_t>(kMaxRows, static_cast<std::int64_t>(kMaxInputBytes / input_bytes));
  DispatchFloating("NormGemv", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool vector = HasVectorRows<T>(x.size(1), {&x, &norm_weight, &weight});
    std::int64_t first = 0;
    const auto launch = [&]<int kRows>(std::integral_constant<int, kRows>) {
      const Arguments<T> args{
          out.data<T>() + first * out.size(1),
          x.data<T>() + first * x.size(1),
          weight.data<T>(),
          DataOf<T>(bias),
          residual.defined() ? residual.data<T>() + first * out.size(1) : nullptr,
          NormParameter<T>::Of(norm_weight, 1),
          norm_weight.defined(),
          x.size(1),
          out.size(1),
          static_cast<ComputeType<T>>(eps)};
      vector ? LaunchRows<T, kMaxVectorWidth<T>, kRows>(context, args, gated)
             : LaunchRows<T, 1, kRows>(context, args, gated);
      first += kRows;
    };
    while (first < rows) {
      const std::int64_t left = std::min(rows - first, at_once);
      DispatchWidth<kMaxRows, 2, 1>(static_cast<int>(left), launch);
    }
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(NormGemv, &NormGemv);

}  // namespace infini_train::simt
