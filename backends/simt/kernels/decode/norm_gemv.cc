#include <algorithm>
#include <cstdint>

#include "backends/simt/kernels/decode/gemv_parts.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train::simt {
namespace {

/// Rows of x that meet a weight on its only way from memory.
constexpr int kMaxRows = 4;
/// Batches of a group that are under way: one where a copy makes the lane wait.
constexpr int kSlots = kCopiesAreAsync ? 6 : 1;
/// Of all rows of a launch: more leave room for too few lanes' copies.
constexpr std::size_t kMaxInputBytes = 32 * 1024;
/// Outputs can be counted in an int.
constexpr std::int64_t kMaxWeightRows = std::int64_t{1} << 26;

/// Copies of the weight are always under way, also while the launches before this one end, while
/// the block prepares its input, and while lanes add up what has come.
template <typename T, int N, int kRows, bool kWhole>
SIMT_KERNEL SIMT_RESIDENT(kGemvLanes, 3) void NormGemvKernel(GemvArguments<T> args) {
  using C = ComputeType<T>;
  using Outputs = GemvOutputs<T, kRows>;
  using Copies = GemvCopies<T, N, kSlots, kWhole>;
  SIMT_DYNAMIC_SHARED(T, memory);
  ReadsEarly(args.weight, std::int64_t{args.outputs} * args.inputs * args.parts);
  if (args.norm.same != nullptr) ReadsEarly(args.norm.same, args.inputs);
  if (args.norm.single != nullptr) ReadsEarly(args.norm.single, args.inputs);

  const GemvShare& share = args.share;
  const GemvLane lane(share);
  // Sums first: their number makes what is behind them lie at whole vectors.
  const int sum_elements = share.halves * share.sums * static_cast<int>(sizeof(C) / sizeof(T));
  const Shared<C> sums = memory.Sub(0, sum_elements).template As<C>();
  const int ring_elements = BlockSize() / kGroupWidth * share.slots * Copies::kBatchElements;
  Copies copies(args, lane, memory.Sub(sum_elements, ring_elements));
  for (int i = 0; i < kSlots - 1; ++i)
    copies.Ask(i);
  LetLaterBegin();
  const GemvInput<T, N, kRows> input(
      args, lane, memory.Sub(sum_elements + ring_elements, kRows * share.RowVectors() * N));
  WaitForEarlier();
  Outputs outputs(args, lane);
  outputs.ReadAddends(0);
  input.Stage();
  copies.Ask(kSlots - 1);  // Behind the input, whose read is waited for.

  int slot = 0;
  int half = 0;
  for (int first = 0; first < lane.outputs; first += share.strip) {
    const Shared<C> kept = sums.Sub(half * share.sums, share.sums);
    if (first > 0) outputs.ReadAddends(first);
    const int strip = lane.StripFrom(share, first);
    for (int part = 0; lane.steps > 0 && part < args.parts; ++part) {
      for (int row = 0; row < strip; row += kGemvTile) {
        GemvTile<T, N, kRows, kWhole> tile;
        for (int step = 0; step < lane.steps; step += kGemvBatch) {
          Packed<T, N> weight[kGemvBatch][2];
          copies.Take(slot, weight);
          tile.Add(weight, input, share, lane, step);
          copies.Ask(slot);
          slot = slot + 1 < kSlots ? slot + 1 : 0;
        }
        outputs.Keep(kept, part, row, tile.Sum(lane));
      }
    }
    SyncBlock();
    outputs.Write(kept, first);
    half ^= 1;  // One barrier is enough.
  }
}

/// Shared memory for the copies of a lane in a slot.
constexpr std::size_t kLaneSlotBytes = kGemvBatch * 2 * kMaxVectorBytes;

/// Lanes whose copies have room in `bytes` of shared memory beside others.
int LanesFor(std::size_t bytes, std::size_t other_bytes) {
  const std::size_t room =
      bytes > other_bytes ? (bytes - other_bytes) / (kSlots * kLaneSlotBytes) : 0;
  return std::min(kGemvLanes, static_cast<int>(room / kMaxWarpSize) * kMaxWarpSize);
}

/// Returns false where a block has no room for rows so long.
template <typename T, int kRows>
bool LaunchRows(const Context& context, GemvArguments<T> args) {
  constexpr int N = kMaxVectorWidth<T>;
  const std::int64_t vectors = args.inputs / N;
  const std::size_t input_bytes =
      static_cast<std::size_t>(kRows * GemvShare::RowVectors(vectors)) * kMaxVectorBytes;
  // Half of the memory, so that the launch behind can have copies under way beside this one's; all
  // where that is too little.
  const std::size_t most_sum_bytes = kGemvSums * sizeof(ComputeType<T>);
  const std::size_t most = MaxDynamicSharedBytes(context);
  int lanes = LanesFor(most / 2, input_bytes + most_sum_bytes);
  if (lanes == 0) lanes = LanesFor(most, input_bytes + most_sum_bytes);
  if (lanes == 0) return false;
  const std::int64_t blocks = std::min<std::int64_t>(args.outputs, MultiprocessorCount(context));
  args.share = GemvShare::Of(vectors, args.outputs, blocks, lanes, kRows, args.parts, kSlots);
  Geometry geometry{.grid_x = blocks, .block = lanes, .begins_early = true};
  geometry.dynamic_shared_bytes =
      input_bytes + static_cast<std::size_t>(lanes * args.share.slots) * kLaneSlotBytes +
      static_cast<std::size_t>(args.share.halves * args.share.sums) * sizeof(ComputeType<T>);
  Launch(
      context, geometry,
      args.share.whole ? &NormGemvKernel<T, N, kRows, true> : &NormGemvKernel<T, N, kRows, false>,
      args);
  return true;
}

void NormGemv(const Context& context, Tensor& out, const Tensor& x, const Tensor& norm_weight,
              const Tensor& weight, const Tensor& bias, const Tensor& residual, double eps,
              bool gated) {
  if (out.numel() == 0) return;
  const std::int64_t rows = x.size(0);
  const auto input_bytes = static_cast<std::size_t>(x.size(1)) * SizeOf(x.dtype());
  std::int64_t done = 0;
  if (rows <= 2 * kMaxRows && x.size(1) > 0 && input_bytes <= kMaxInputBytes &&
      weight.size(0) <= kMaxWeightRows) {
    DispatchFloating("NormGemv", x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (!HasVectorRows<T>(x.size(1), {&x, &norm_weight, &weight})) return;
      const auto at_once =
          std::min<std::int64_t>(kMaxRows, static_cast<std::int64_t>(kMaxInputBytes / input_bytes));
      bool fits = true;
      while (fits && done < rows) {
        const auto next = static_cast<int>(std::min(rows - done, at_once));
        DispatchWidth<kMaxRows, 2, 1>(next, [&]<int kRows>(std::integral_constant<int, kRows>) {
          const GemvArguments<T> args{
              out.data<T>() + done * out.size(1),
              x.data<T>() + done * x.size(1),
              weight.data<T>(),
              DataOf<T>(bias),
              residual.defined() ? residual.data<T>() + done * out.size(1) : nullptr,
              NormParameter<T>::Of(norm_weight, 1),
              norm_weight.defined(),
              gated ? 2 : 1,
              static_cast<int>(x.size(1)),
              static_cast<int>(out.size(1)),
              static_cast<ComputeType<T>>(eps),
              static_cast<ComputeType<T>>(1.0 / static_cast<double>(x.size(1))),
              {}};
          fits = LaunchRows<T, kRows>(context, args);
          if (fits) done += kRows;
        });
      }
    });
  }
  // Many rows, and shapes beyond the kernel.
  if (done < rows) ComposeNormGemv(out, x, norm_weight, weight, bias, residual, eps, gated);
}

}  // namespace

SIMT_REGISTER_KERNEL(NormGemv, &NormGemv);

}  // namespace infini_train::simt
