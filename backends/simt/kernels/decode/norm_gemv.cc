#include <algorithm>
#include <cstdint>

#include "backends/simt/kernels/decode/gemv_plan.h"
#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/norm/norm_row.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// Vectors of a weight's row that a lane takes at a time.
constexpr int kBatch = 4;
constexpr int kBatchVectors = kBatch * kGroupWidth;
/// Rows of x that meet a weight on its only way from memory.
constexpr int kMaxRows = 4;
/// Lanes of a block, at most: many rows need many registers.
template <int kRows>
inline constexpr int kLanes = kRows > 2 ? GemvPlan::kMaxLanes / 2 : GemvPlan::kMaxLanes;
/// Batches of a lane that are under way.
template <int kRows>
inline constexpr int kDepth = 3 * GemvPlan::kMaxLanes / kLanes<kRows>;
/// Of all rows of a launch: beside it, the smallest device has room for the copies of 64 lanes.
constexpr std::size_t kMaxInputBytes = 32 * 1024;
/// Batches of so many rows can be counted in an int.
constexpr std::int64_t kMaxWeightRows = std::int64_t{1} << 26;

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

/// A place in the weight: a batch of a row.
struct WeightPlace {
  int output;
  int part = 0;   ///< 1: of gated products, what the gate lets through
  int first = 0;  ///< vector of the row
};

/// The way of a group of lanes through the weight: every `stride`-th output, one row after another,
/// a batch at a time. Outputs go round the blocks, so that each has the same share.
template <typename T, int N, bool gated>
class Way {
 public:
  SIMT_DEVICE explicit Way(const Arguments<T>& args)
      : args_(args),
        vectors_(static_cast<int>(args.inputs) / N),
        outputs_(static_cast<int>(args.outputs)),
        stride_(static_cast<int>(GridSize()) * (BlockSize() / kGroupWidth)) {}

  SIMT_DEVICE WeightPlace Begin() const {
    return {static_cast<int>(BlockIndex() + GridSize() * (ThreadIndex() / kGroupWidth))};
  }

  /// Of all outputs of the group.
  SIMT_DEVICE int Batches() const {
    const int begin = Begin().output;
    if (begin >= outputs_) return 0;
    const int rows = ((outputs_ - 1 - begin) / stride_ + 1) * (gated ? 2 : 1);
    return rows * ((vectors_ + kBatchVectors - 1) / kBatchVectors);
  }

  SIMT_DEVICE bool EndsRow(const WeightPlace& at) const {
    return at.first + kBatchVectors >= vectors_;
  }
  SIMT_DEVICE bool EndsOutput(const WeightPlace& at) const {
    return EndsRow(at) && (!gated || at.part == 1);
  }

  SIMT_DEVICE WeightPlace After(const WeightPlace& at) const {
    if (!EndsRow(at)) return {at.output, at.part, at.first + kBatchVectors};
    if (gated && at.part == 0) return {at.output, 1};
    return {at.output + stride_};
  }

  /// Has the lane's vectors of the batch copied, to vectors of `to` that are BlockSize() apart.
  SIMT_DEVICE void Ask(const WeightPlace& at, const Shared<T>& to) const {
    const T* const row = RowOf(at);
    SIMT_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      const int v = VectorOf(at, j);
      if (v < vectors_) CopyAsync<N>(to, Slot(j), row + std::int64_t{v} * N);
    }
  }

  template <int kRows>
  SIMT_DEVICE void AddProducts(const WeightPlace& at, const Shared<T>& batch,
                               const Shared<T>& input, ComputeType<T> (&sums)[kRows]) const {
    // Without conditions, reads of the input need not wait for one another.
    if (at.first + kBatchVectors <= vectors_) {
      Add<true>(at, batch, input, sums);
    } else {
      Add<false>(at, batch, input, sums);
    }
  }

 private:
  SIMT_DEVICE const T* RowOf(const WeightPlace& at) const {
    return args_.weight + (at.output + std::int64_t{at.part} * args_.outputs) * args_.inputs;
  }
  SIMT_DEVICE static int VectorOf(const WeightPlace& at, int j) {
    return at.first + GroupLane<kGroupWidth>() + j * kGroupWidth;
  }
  SIMT_DEVICE static int Slot(int j) { return (j * BlockSize() + ThreadIndex()) * N; }

  template <bool whole, int kRows>
  SIMT_DEVICE void Add(const WeightPlace& at, const Shared<T>& batch, const Shared<T>& input,
                       ComputeType<T> (&sums)[kRows]) const {
    using C = ComputeType<T>;
    SIMT_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      const int v = VectorOf(at, j);
      if (!whole && v >= vectors_) continue;
      C w[N];
      Packed<T, N>(batch.template Load<N>(Slot(j))).Widen(w);
      SIMT_UNROLL
      for (int m = 0; m < kRows; ++m) {
        C values[N];
        Packed<T, N>(input.template Load<N>((m * vectors_ + v) * N)).Widen(values);
        SIMT_UNROLL
        for (int k = 0; k < N; ++k)
          sums[m] += w[k] * values[k];
      }
    }
  }

  const Arguments<T>& args_;
  int vectors_;
  int outputs_;
  int stride_;
};

/// Rows of x on their way to shared memory, normalised and rounded as the op RmsNorm does. A lane
/// holds the weights of its first vector, which are read early.
template <typename T, int N>
class InputRows {
 public:
  using C = ComputeType<T>;

  SIMT_DEVICE explicit InputRows(const Arguments<T>& args)
      : args_(args), vectors_(static_cast<int>(args.inputs) / N) {
    if (args.normalizes && ThreadIndex() < vectors_)
      args.norm.template Read<N>(ThreadIndex() * N, first_weights_);
  }

  SIMT_DEVICE void Stage(int m, const Shared<T>& input) const {
    const T* const x = args_.x + m * args_.inputs;
    const Shared<T> row = input.Sub(m * args_.inputs, args_.inputs);
    C sum = 0;
    for (int v = ThreadIndex(); v < vectors_; v += BlockSize()) {
      const auto values = Packed<T, N>::Of(x + v * N);
      row.Store(v * N, values.Unpack());
      C numbers[N];
      values.Widen(numbers);
      for (int k = 0; k < N; ++k)
        sum += numbers[k] * numbers[k];
    }
    if (!args_.normalizes) return;
    sum = ReduceBlock(sum, SumOp{}, C(0));
    const C rstd = C(1) / Sqrt(sum / static_cast<C>(args_.inputs) + args_.eps);
    for (int v = ThreadIndex(); v < vectors_; v += BlockSize()) {
      C numbers[N], weights[N];
      Packed<T, N>(row.template Load<N>(v * N)).Widen(numbers);
      if (v == ThreadIndex()) {
        for (int k = 0; k < N; ++k)
          weights[k] = first_weights_[k];
      } else {
        args_.norm.template Read<N>(v * N, weights);
      }
      Vec<T, N> normalized;
      for (int k = 0; k < N; ++k)
        normalized[k] = FromCompute<T>(numbers[k] * rstd * weights[k]);
      row.Store(v * N, normalized);
    }
  }

 private:
  const Arguments<T>& args_;
  int vectors_;
  C first_weights_[N] = {};
};

/// What is added to the products of an output.
template <typename T, int kRows, bool gated>
struct Addends {
  using C = ComputeType<T>;
  C bias[gated ? 2 : 1] = {};
  C residual[kRows] = {};

  SIMT_DEVICE C BiasOf(int part) const { return gated && part == 1 ? bias[gated] : bias[0]; }

  SIMT_DEVICE void Read(const Arguments<T>& args, std::int64_t output) {
    SIMT_UNROLL
    for (int part = 0; args.bias != nullptr && part < (gated ? 2 : 1); ++part)
      bias[part] = ToCompute(Load(args.bias + output + part * args.outputs));
    SIMT_UNROLL
    for (int m = 0; args.residual != nullptr && m < kRows; ++m)
      residual[m] = ToCompute(Load(args.residual + m * args.outputs + output));
  }
};

/// A group of lanes for each output at a time, which reads its row of the weight once. Copies of
/// the weight are always under way, also while the launches before this one end, while the block
/// prepares its input, and while lanes add up what has come. Each lane has its own part of them and
/// needs no barrier. The launch behind begins when the input is there, not before: the read of the
/// input would wait behind all that it asks for.
template <typename T, int N, int kRows, bool gated>
SIMT_KERNEL SIMT_RESIDENT(kLanes<kRows>, 2) void NormGemvKernel(Arguments<T> args) {
  using C = ComputeType<T>;
  SIMT_DYNAMIC_SHARED(T, memory);
  const int inputs = static_cast<int>(args.inputs);
  const Shared<T> input =
      memory.Sub(0, kRows * inputs);  // [kRows, inputs], as the product takes it
  const int batch_elements = kBatch * BlockSize() * N;
  const Shared<T> ring = memory.Sub(kRows * inputs, kDepth<kRows> * batch_elements);
  ReadsEarly(args.weight, args.outputs * args.inputs * (gated ? 2 : 1));
  if (args.norm.same != nullptr) ReadsEarly(args.norm.same, args.inputs);
  if (args.norm.single != nullptr) ReadsEarly(args.norm.single, args.inputs);

  const Way<T, N, gated> way(args);
  WeightPlace at = way.Begin();
  WeightPlace asked = at;  // Behind all that was asked for.
  int left = way.Batches();
  int to_ask = left;
  const auto ask = [&](int batch) {
    if (to_ask > 0) {
      way.Ask(asked, ring.Sub(batch * batch_elements, batch_elements));
      asked = way.After(asked);
      --to_ask;
    }
    CommitCopies();
  };
  for (int batch = 0; batch < kDepth<kRows> - 1; ++batch)
    ask(batch);
  const InputRows<T, N> rows(args);
  WaitForEarlier();
  Addends<T, kRows, gated> addends;
  if (left > 0) addends.Read(args, at.output);
  for (int m = 0; m < kRows; ++m)
    rows.Stage(m, input);
  SyncBlock();
  ask(kDepth<kRows> - 1);
  LetLaterBegin();

  C sums[kRows] = {};
  C gates[kRows] = {};
  for (int batch = 0; left > 0; --left) {
    WaitForCopies<kDepth<kRows> - 1>();
    way.AddProducts(at, ring.Sub(batch * batch_elements, batch_elements), input, sums);
    ask(batch);
    batch = batch + 1 < kDepth<kRows> ? batch + 1 : 0;
    const WeightPlace next = way.After(at);
    if (way.EndsRow(at)) {
      SIMT_UNROLL
      for (int m = 0; m < kRows; ++m) {
        C result = ReduceGroup<kGroupWidth>(sums[m], SumOp{}) + addends.BiasOf(at.part);
        sums[m] = 0;
        if (!way.EndsOutput(at)) {
          gates[m] = result;
          continue;
        }
        if constexpr (gated) result = Silu(gates[m]) * result;
        if (GroupLane<kGroupWidth>() == 0) {
          Store(args.out + m * args.outputs + at.output,
                FromCompute<T>(result + addends.residual[m]));
        }
      }
      if (way.EndsOutput(at) && left > 1) addends.Read(args, next.output);
    }
    at = next;
  }
}

/// Shared memory for the copies of a lane.
template <int kRows>
inline constexpr std::size_t kLaneBytes = kDepth<kRows>* kBatch* kMaxVectorBytes;

/// Lanes of a block of the plan whose input and copies have room in `bytes` of shared memory.
template <int kRows>
int LanesFor(const GemvPlan& plan, std::size_t bytes, std::size_t input_bytes) {
  const std::size_t room = bytes > input_bytes ? (bytes - input_bytes) / kLaneBytes<kRows> : 0;
  return std::min(
      {plan.lanes, kLanes<kRows>, static_cast<int>(room / kMaxWarpSize) * kMaxWarpSize});
}

template <typename T, int kRows>
void LaunchRows(const Context& context, const Arguments<T>& args, bool gated) {
  constexpr int N = kMaxVectorWidth<T>;
  const GemvPlan& plan = GetGemvPlan();
  const std::size_t input_bytes = static_cast<std::size_t>(kRows * args.inputs) * sizeof(T);
  // Half of the memory, so that the launch behind can have copies under way beside this one's.
  const std::size_t most = MaxDynamicSharedBytes(context);
  int lanes = LanesFor<kRows>(plan, most / 2 / plan.blocks_per_processor, input_bytes);
  if (lanes == 0) lanes = std::max(LanesFor<kRows>(plan, most, input_bytes), kMaxWarpSize);
  const std::int64_t groups = lanes / kGroupWidth;
  const Geometry geometry{
      .grid_x = std::min((args.outputs + groups - 1) / groups,
                         plan.blocks_per_processor * MultiprocessorCount(context)),
      .block = lanes,
      .dynamic_shared_bytes = input_bytes + static_cast<std::size_t>(lanes) * kLaneBytes<kRows>,
      .begins_early = true};
  Launch(context, geometry,
         gated ? &NormGemvKernel<T, N, kRows, true> : &NormGemvKernel<T, N, kRows, false>, args);
}

/// By the ops that it is made of: for many rows, and for shapes beyond the kernel.
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
  bool vector = false;
  DispatchFloating("NormGemv", x.dtype(), [&](auto tag) {
    vector = HasVectorRows<typename decltype(tag)::type>(x.size(1), {&x, &norm_weight, &weight});
  });
  if (rows > 2 * kMaxRows || x.size(1) == 0 || input_bytes > kMaxInputBytes || !vector ||
      weight.size(0) > kMaxWeightRows) {
    Compose(out, x, norm_weight, weight, bias, residual, eps, gated);
    return;
  }
  const auto at_once =
      std::min<std::int64_t>(kMaxRows, static_cast<std::int64_t>(kMaxInputBytes / input_bytes));
  DispatchFloating("NormGemv", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
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
      LaunchRows<T, kRows>(context, args, gated);
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
