#include <algorithm>
#include <cstdint>

#include "backends/simt/kernels/decode/gemv_parts.h"
#include "backends/simt/kernels/decode/gemv_plan.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train::simt {
namespace {

/// Rows of x that meet a weight on its only way from memory.
constexpr int kMaxRows = 4;
/// Lanes of a block, at most: many rows need many registers.
template <int kRows>
inline constexpr int kLanes = kRows > 2 ? GemvPlan::kMaxLanes / 2 : GemvPlan::kMaxLanes;
/// Batches of a lane that are under way: one where a copy makes the lane wait, which leaves memory
/// to more lanes.
template <int kRows>
inline constexpr int kDepth = kCopiesAreAsync ? 3 * GemvPlan::kMaxLanes / kLanes<kRows> : 1;
/// Of all rows of a launch: beside it, the smallest device has room for the copies of 64 lanes.
constexpr std::size_t kMaxInputBytes = 32 * 1024;
/// Outputs can be counted in an int.
constexpr std::int64_t kMaxWeightRows = std::int64_t{1} << 26;

/// Copies of the weight are always under way, also while the launches before this one end, while
/// the block prepares its input, and while lanes add up what has come. The launch behind begins
/// when a group has asked for all of its part, so that its copies follow these; and when the input
/// is there, whose read would else wait behind what it asks for.
template <typename T, int N, int kRows, bool gated>
SIMT_KERNEL SIMT_RESIDENT(kLanes<kRows>, 2) void NormGemvKernel(GemvArguments<T> args) {
  using C = ComputeType<T>;
  using Outputs = GemvOutputs<T, kRows, gated>;
  constexpr int kSlots = kDepth<kRows>;
  using Copies = GemvCopies<T, N, kSlots, gated>;
  SIMT_DYNAMIC_SHARED(T, memory);
  constexpr int kSumElements = static_cast<int>(kGemvSumBytes / sizeof(T));
  const Shared<C> sums = memory.Sub(0, kSumElements).template As<C>();
  const Shared<T> input = memory.Sub(kSumElements, kRows * args.inputs);
  ReadsEarly(args.weight, std::int64_t{args.outputs} * args.inputs * Outputs::kParts);
  if (args.norm.same != nullptr) ReadsEarly(args.norm.same, args.inputs);
  if (args.norm.single != nullptr) ReadsEarly(args.norm.single, args.inputs);

  const GemvShare& share = args.share;
  const GemvLane lane(share);
  Copies copies(args, lane, memory.Sub(kSumElements + kRows * args.inputs, Copies::Elements()));
  for (int i = 0; i < kSlots - 1; ++i)
    copies.Ask(Copies::SlotAt(i));
  const GemvInput<T, N, kRows> rows(args);
  WaitForEarlier();
  Outputs outputs(args, lane);
  outputs.ReadAddends(0);
  rows.Stage(input);
  copies.Ask(Copies::SlotAt(kSlots - 1));
  bool lets_later_begin = copies.Ended();
  if (lets_later_begin) LetLaterBegin();

  int slot = 0;
  int half = 0;  // Sums of strips use one half and the other in turn: one barrier is enough.
  for (int first = 0; first < lane.outputs; first += share.strip) {
    const Shared<C> kept = sums.Sub(half * kGemvSums<C>, kGemvSums<C>);
    if (first > 0) outputs.ReadAddends(first);
    const int strip_rows = lane.RowsOf(share, lane.StripFrom(share, first));
    for (int part = 0; part < Outputs::kParts; ++part) {
      int at = outputs.At(part, lane.first_row, lane.batch);
      for (int left = strip_rows; left > 0; --left) {
        WaitForCopies<kSlots - 1>();
        C products[kRows] = {};
        // Without conditions, reads need not wait for one another.
        if (lane.count >= kGemvBatch) {
          SIMT_UNROLL
          for (int j = 0; j < kGemvBatch; ++j)
            copies.AddProducts(slot, j, input, products);
        } else {
          SIMT_UNROLL
          for (int j = 0; j < kGemvBatch; ++j) {
            if (j < lane.count) copies.AddProducts(slot, j, input, products);
          }
        }
        copies.Ask(slot);
        if (!lets_later_begin && copies.Ended()) {
          lets_later_begin = true;
          LetLaterBegin();
        }
        slot = Copies::After(slot);
        outputs.Keep(kept, at, products);
        at += share.row_step * share.batches;
      }
    }
    SyncBlock();
    outputs.Write(kept, first);
    half ^= 1;
  }
}

/// Shared memory for the copies of a lane.
template <int kRows>
inline constexpr std::size_t kLaneBytes = kDepth<kRows>* kGemvBatch* kMaxVectorBytes;

/// Lanes of a block of the plan whose copies have room in `bytes` of shared memory beside others.
template <int kRows>
int LanesFor(const GemvPlan& plan, std::size_t bytes, std::size_t other_bytes) {
  const std::size_t room = bytes > other_bytes ? (bytes - other_bytes) / kLaneBytes<kRows> : 0;
  return std::min(
      {plan.lanes, kLanes<kRows>, static_cast<int>(room / kMaxWarpSize) * kMaxWarpSize});
}

/// How the product is shared out among blocks of so many lanes.
template <typename T, int kRows>
GemvShare ShareOf(const GemvArguments<T>& args, bool gated, std::int64_t blocks, int lanes) {
  constexpr int N = kMaxVectorWidth<T>;
  return GemvShare::Of(
      args.inputs / N, args.outputs, blocks, lanes,
      gated ? GemvOutputs<T, kRows, true>::kStripSums : GemvOutputs<T, kRows, false>::kStripSums);
}

/// Returns false where a block has no room for rows so long.
template <typename T, int kRows>
bool LaunchRows(const Context& context, GemvArguments<T> args, bool gated) {
  constexpr int N = kMaxVectorWidth<T>;
  const GemvPlan& plan = GetGemvPlan();
  const std::size_t other_bytes =
      static_cast<std::size_t>(kRows * args.inputs) * sizeof(T) + kGemvSumBytes;
  const std::int64_t blocks = std::min<std::int64_t>(
      args.outputs, plan.blocks_per_processor * MultiprocessorCount(context));
  // Half of the memory, so that the launch behind can have copies under way beside this one's; all
  // where that is too little.
  const std::size_t most = MaxDynamicSharedBytes(context);
  int lanes = LanesFor<kRows>(plan, most / 2 / plan.blocks_per_processor, other_bytes);
  args.share = ShareOf<T, kRows>(args, gated, blocks, lanes);
  if (args.share.batches == 0) {
    lanes = LanesFor<kRows>(plan, most, other_bytes);
    args.share = ShareOf<T, kRows>(args, gated, blocks, lanes);
  }
  if (args.share.batches == 0) return false;
  const Geometry geometry{
      .grid_x = blocks,
      .block = lanes,
      .dynamic_shared_bytes = other_bytes + static_cast<std::size_t>(lanes) * kLaneBytes<kRows>,
      .begins_early = true};
  Launch(context, geometry,
         gated ? &NormGemvKernel<T, N, kRows, true> : &NormGemvKernel<T, N, kRows, false>, args);
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
              static_cast<int>(x.size(1)),
              static_cast<int>(out.size(1)),
              static_cast<ComputeType<T>>(eps),
              {}};
          fits = LaunchRows<T, kRows>(context, args, gated);
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
