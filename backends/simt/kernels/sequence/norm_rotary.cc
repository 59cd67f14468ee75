#include <algorithm>
#include <cstdint>

#include "backends/simt/kernels/norm/norm_row.h"
#include "backends/simt/kernels/norm/part_sums.h"
#include "backends/simt/kernels/sequence/rotary.h"
#include "backends/simt/strided.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// A logical group of lanes for each head of a position.
constexpr int kLanes = 8;

/// Two vectors of pairs of a head: elements p... and p + D / 2..., which one lane has.
template <typename T, int kWidth>
struct PairVectors {
  using C = ComputeType<T>;
  C low[kWidth];
  C high[kWidth];

  SIMT_DEVICE void Read(const T* head, std::int64_t p, std::int64_t pairs) {
    Packed<T, kWidth>::Of(head + p).Widen(low);
    Packed<T, kWidth>::Of(head + p + pairs).Widen(high);
  }
  SIMT_DEVICE void Write(T* head, std::int64_t p, std::int64_t pairs) const {
    Vec<T, kWidth> rounded_low;
    Vec<T, kWidth> rounded_high;
    for (int k = 0; k < kWidth; ++k) {
      rounded_low[k] = FromCompute<T>(low[k]);
      rounded_high[k] = FromCompute<T>(high[k]);
    }
    Store(head + p, rounded_low);
    Store(head + p + pairs, rounded_high);
  }
  SIMT_DEVICE void ReadWeight(const NormParameter<T>& weight, std::int64_t p, std::int64_t pairs) {
    weight.template Read<kWidth>(p, low);
    weight.template Read<kWidth>(p + pairs, high);
  }
  /// By the angles of `cos` and `sin`, backwards where inverse.
  SIMT_DEVICE void Rotate(const C* cos, const C* sin, std::int64_t p, bool inverse) {
    C c[kWidth], s[kWidth];
    LoadNumbers(c, cos + p);
    LoadNumbers(s, sin + p);
    for (int k = 0; k < kWidth; ++k) {
      const C sine = inverse ? -s[k] : s[k];
      const C first = low[k] * c[k] - high[k] * sine;
      high[k] = low[k] * sine + high[k] * c[k];
      low[k] = first;
    }
  }
};

template <typename T>
struct ForwardArguments {
  using C = ComputeType<T>;
  StridedIndex<5> heads;  ///< offsets of a head in the arrays, as they follow
  T* out;
  const T* x;
  C* rstd;
  const C* cos;
  const C* sin;
  NormParameter<T> weight;
  std::int64_t pairs;
  C eps;
};

template <typename T, int kWidth>
SIMT_KERNEL void NormRotaryKernel(ForwardArguments<T> args) {
  using C = ComputeType<T>;
  const std::int64_t pairs = args.pairs;
  const int lane = GroupLane<kLanes>();
  for (std::int64_t i = GlobalThreadIndex() / kLanes; i < args.heads.numel;
       i += GlobalThreadCount() / kLanes) {
    std::int64_t offsets[5];
    args.heads.Locate(i, offsets);
    const T* const x = args.x + offsets[1];
    // Heads of usual sizes have no more than one of these for each lane, which is kept.
    PairVectors<T, kWidth> first{};
    C sum = 0;
    for (std::int64_t p = lane * kWidth; p < pairs; p += kLanes * kWidth) {
      PairVectors<T, kWidth> values;
      values.Read(x, p, pairs);
      for (int k = 0; k < kWidth; ++k)
        sum += values.low[k] * values.low[k] + values.high[k] * values.high[k];
      if (p == lane * kWidth) first = values;
    }
    sum = ReduceGroup<kLanes>(sum, SumOp{});
    const C rstd = C(1) / Sqrt(sum / static_cast<C>(2 * pairs) + args.eps);
    if (lane == 0) Store(args.rstd + offsets[2], rstd);
    for (std::int64_t p = lane * kWidth; p < pairs; p += kLanes * kWidth) {
      PairVectors<T, kWidth> values = first;
      if (p != lane * kWidth) values.Read(x, p, pairs);
      PairVectors<T, kWidth> weight;
      weight.ReadWeight(args.weight, p, pairs);
      for (int k = 0; k < kWidth; ++k) {
        values.low[k] *= rstd * weight.low[k];
        values.high[k] *= rstd * weight.high[k];
      }
      values.Rotate(args.cos + offsets[3], args.sin + offsets[4], p, false);
      values.Write(args.out + offsets[0], p, pairs);
    }
  }
}

template <typename T>
struct BackwardArguments {
  using C = ComputeType<T>;
  StridedIndex<6> heads;  ///< offsets of a head in the arrays, as they follow
  T* grad_x;
  const T* grad_y;
  const T* x;
  const C* rstd;
  const C* cos;
  const C* sin;
  NormParameter<T> weight;
  C* partials;  ///< [blocks, D], or null
  std::int64_t pairs;
};

// With the gradient g of the norm's result, which is grad_y rotated backwards, and n = x * rstd:
// grad_x = rstd * (g * weight - n * mean(g * weight * n)), grad_weight = sum of g * n. Each group
// has sums for the weight of its own.
template <typename T, int kWidth>
SIMT_KERNEL void NormRotaryBackwardKernel(BackwardArguments<T> args) {
  using C = ComputeType<T>;
  using Vectors = PairVectors<T, kWidth>;
  SIMT_DYNAMIC_SHARED(C, all_sums);
  const std::int64_t pairs = args.pairs;
  const int size = static_cast<int>(2 * pairs);
  const int lane = GroupLane<kLanes>();
  const int groups = BlockSize() / kLanes;
  const int group = ThreadIndex() / kLanes;
  const Shared<C> sums = all_sums.Sub(group * size, size);
  for (std::int64_t p = lane * kWidth; p < pairs; p += kLanes * kWidth) {
    for (int k = 0; k < kWidth; ++k) {
      sums[static_cast<int>(p) + k] = C(0);
      sums[static_cast<int>(p + pairs) + k] = C(0);
    }
  }
  for (std::int64_t i = BlockIndex() * groups + group; i < args.heads.numel;
       i += GridSize() * groups) {
    std::int64_t offsets[6];
    args.heads.Locate(i, offsets);
    const C rstd = Load(args.rstd + offsets[3]);
    Vectors first_g{};
    Vectors first_n{};
    C sum = 0;
    for (std::int64_t p = lane * kWidth; p < pairs; p += kLanes * kWidth) {
      Vectors g;
      Vectors n;
      Vectors weight;
      g.Read(args.grad_y + offsets[1], p, pairs);
      n.Read(args.x + offsets[2], p, pairs);
      weight.ReadWeight(args.weight, p, pairs);
      g.Rotate(args.cos + offsets[4], args.sin + offsets[5], p, true);
      for (int k = 0; k < kWidth; ++k) {
        n.low[k] *= rstd;
        n.high[k] *= rstd;
        const C low = g.low[k] * n.low[k];
        const C high = g.high[k] * n.high[k];
        sum += low * weight.low[k] + high * weight.high[k];
        sums[static_cast<int>(p) + k] += low;
        sums[static_cast<int>(p + pairs) + k] += high;
      }
      if (p == lane * kWidth) {
        first_g = g;
        first_n = n;
      }
    }
    const C mean = ReduceGroup<kLanes>(sum, SumOp{}) / static_cast<C>(size);
    for (std::int64_t p = lane * kWidth; p < pairs; p += kLanes * kWidth) {
      Vectors g = first_g;
      Vectors n = first_n;
      if (p != lane * kWidth) {
        g.Read(args.grad_y + offsets[1], p, pairs);
        n.Read(args.x + offsets[2], p, pairs);
        g.Rotate(args.cos + offsets[4], args.sin + offsets[5], p, true);
        for (int k = 0; k < kWidth; ++k) {
          n.low[k] *= rstd;
          n.high[k] *= rstd;
        }
      }
      Vectors weight;
      weight.ReadWeight(args.weight, p, pairs);
      for (int k = 0; k < kWidth; ++k) {
        g.low[k] = rstd * (g.low[k] * weight.low[k] - n.low[k] * mean);
        g.high[k] = rstd * (g.high[k] * weight.high[k] - n.high[k] * mean);
      }
      g.Write(args.grad_x + offsets[0], p, pairs);
    }
  }
  SyncBlock();
  for (int d = ThreadIndex(); args.partials != nullptr && d < size; d += BlockSize()) {
    C total = 0;
    for (int other = 0; other < groups; ++other) {
      const C part = all_sums[other * size + d];
      total += part;
    }
    Store(args.partials + BlockIndex() * size + d, total);
  }
}

/// Strides of a tensor's heads, in the shape [B, H, T].
Dims HeadStrides(const Tensor& tensor) {
  return {tensor.strides()[0], tensor.strides()[1], tensor.strides()[2]};
}
Dims AngleStrides(const Tensor& angles) {
  return {0, 0, angles.strides()[0]};
}

void NormRotary(const Context& context, Tensor& out, Tensor& rstd, const Tensor& x,
                const Tensor& weight, const Tensor& cos, const Tensor& sin, double eps) {
  if (x.numel() == 0) return;
  CheckRotaryStrides("NormRotary", {{"x", &x}, {"out", &out}, {"cos", &cos}, {"sin", &sin}});
  DispatchFloating("NormRotary", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    ForwardArguments<T> args{};
    const Dims rstd_strides = ContiguousStrides(rstd.shape());
    const Dims out_strides = HeadStrides(out), x_strides = HeadStrides(x);
    const Dims cos_strides = AngleStrides(cos), sin_strides = AngleStrides(sin);
    args.heads = StridedIndex<5>(MergedDims(
        rstd.shape(), {&out_strides, &x_strides, &rstd_strides, &cos_strides, &sin_strides}));
    args.out = out.data<T>();
    args.x = x.data<T>();
    args.rstd = rstd.data<C>();
    args.cos = cos.data<C>();
    args.sin = sin.data<C>();
    args.weight = NormParameter<T>::Of(weight, 1);
    args.pairs = x.size(3) / 2;
    args.eps = static_cast<C>(eps);
    constexpr int kWidth = kMaxVectorWidth<T>;
    const bool vectors = HasRotaryVectors<T>(args.pairs, {&x, &out}, {&cos, &sin}) &&
                         HasVectorRows<T>(args.pairs, {&weight});
    Launch(context, Linear(args.heads.numel * kLanes),
           vectors ? &NormRotaryKernel<T, kWidth> : &NormRotaryKernel<T, 1>, args);
  });
}

/// Sums of the weight's gradient are made by so many blocks at most, which have so many heads for
/// each group at least: numbers of the problem, so that the order of the sums is too.
constexpr std::int64_t kMaxParts = 1024;
constexpr std::int64_t kMinGroupHeads = 4;
constexpr std::size_t kMaxSumBytes = 32 * 1024;

void NormRotaryBackward(const Context& context, Tensor& grad_x, Tensor& grad_weight,
                        const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                        const Tensor& rstd, const Tensor& cos, const Tensor& sin) {
  if (x.size(3) == 0) return;
  CheckRotaryStrides(
      "NormRotaryBackward",
      {{"grad_x", &grad_x}, {"grad_y", &grad_y}, {"x", &x}, {"cos", &cos}, {"sin", &sin}});
  DispatchFloating("NormRotaryBackward", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    BackwardArguments<T> args{};
    const Dims rstd_strides = ContiguousStrides(rstd.shape());
    const Dims grad_x_strides = HeadStrides(grad_x), grad_y_strides = HeadStrides(grad_y);
    const Dims x_strides = HeadStrides(x);
    const Dims cos_strides = AngleStrides(cos), sin_strides = AngleStrides(sin);
    args.heads =
        StridedIndex<6>(MergedDims(rstd.shape(), {&grad_x_strides, &grad_y_strides, &x_strides,
                                                  &rstd_strides, &cos_strides, &sin_strides}));
    args.grad_x = grad_x.data<T>();
    args.grad_y = grad_y.data<T>();
    args.x = x.data<T>();
    args.rstd = rstd.data<C>();
    args.cos = cos.data<C>();
    args.sin = sin.data<C>();
    args.weight = NormParameter<T>::Of(weight, 1);
    args.pairs = x.size(3) / 2;
    constexpr int kWidth = kMaxVectorWidth<T>;
    const bool vectors = HasRotaryVectors<T>(args.pairs, {&grad_x, &grad_y, &x}, {&cos, &sin}) &&
                         HasVectorRows<T>(args.pairs, {&weight});
    const auto sum_bytes = static_cast<std::size_t>(x.size(3)) * sizeof(C);
    int block = 128;
    while (block > kGroupWidth &&
           static_cast<std::size_t>(block / kLanes) * sum_bytes > kMaxSumBytes)
      block /= 2;
    const std::int64_t groups = block / kLanes;
    const std::int64_t block_heads = groups * kMinGroupHeads;
    Geometry geometry;
    geometry.block = block;
    geometry.grid_x =
        std::clamp<std::int64_t>((rstd.numel() + block_heads - 1) / block_heads, 1, kMaxParts);
    geometry.dynamic_shared_bytes = static_cast<std::size_t>(groups) * sum_bytes;
    Tensor partials;
    if (grad_weight.defined()) {
      partials = Tensor::Empty({geometry.grid_x, x.size(3)}, DataTypeOf<C>(), context.device);
      args.partials = partials.data<C>();
    }
    Launch(context, geometry,
           vectors ? &NormRotaryBackwardKernel<T, kWidth> : &NormRotaryBackwardKernel<T, 1>, args);
    if (grad_weight.defined()) SumParts(context, x.dtype(), {&grad_weight}, partials, x.size(3));
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(NormRotary, &NormRotary);
SIMT_REGISTER_KERNEL(NormRotaryBackward, &NormRotaryBackward);

}  // namespace infini_train::simt
