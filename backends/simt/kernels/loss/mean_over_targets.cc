#include <algorithm>
#include <cstdint>

#include "backends/simt/dialect.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {
namespace {

/// A sum of losses, and how many targets count.
struct LossSum {
  double sum;
  double count;
};
struct AddLossSums {
  SIMT_DEVICE LossSum operator()(LossSum a, LossSum b) const {
    return {a.sum + b.sum, a.count + b.count};
  }
};

template <typename C>
SIMT_DEVICE void StoreMean(C* loss, C* inverse_count, LossSum total) {
  const double divisor = total.count > 1 ? total.count : 1.0;
  Store(inverse_count, static_cast<C>(1 / divisor));
  Store(loss, static_cast<C>(total.sum / divisor));
}

/// Each block sums a part of the rows. A single block writes the result, several their `parts`.
template <typename C, typename I>
SIMT_KERNEL void SumLossesKernel(C* loss, C* inverse_count, LossSum* parts, const C* losses,
                                 const I* targets, std::int64_t rows, std::int64_t ignore_index) {
  LossSum mine{0, 0};
  for (std::int64_t i = GlobalThreadIndex(); i < rows; i += GlobalThreadCount()) {
    mine.sum += static_cast<double>(Load(losses + i));
    mine.count += static_cast<std::int64_t>(Load(targets + i)) == ignore_index ? 0.0 : 1.0;
  }
  const LossSum total = ReduceBlock(mine, AddLossSums{}, LossSum{0, 0});
  if (ThreadIndex() != 0) return;
  if (GridSize() == 1) {
    StoreMean(loss, inverse_count, total);
  } else {
    Store(parts + BlockIndex(), total);
  }
}

/// One block.
template <typename C>
SIMT_KERNEL void FinishMeanKernel(C* loss, C* inverse_count, const LossSum* parts,
                                  std::int64_t count) {
  LossSum mine{0, 0};
  for (std::int64_t i = ThreadIndex(); i < count; i += BlockSize())
    mine = AddLossSums{}(mine, Load(parts + i));
  const LossSum total = ReduceBlock(mine, AddLossSums{}, LossSum{0, 0});
  if (ThreadIndex() == 0) StoreMean(loss, inverse_count, total);
}

void MeanOverTargets(const Context& context, Tensor& loss, Tensor& inverse_count,
                     const Tensor& losses, const Tensor& targets, std::int64_t ignore_index) {
  constexpr int kBlock = 256;
  constexpr std::int64_t kRowsPerBlock = 8192;
  constexpr std::int64_t kMaxBlocks = 256;
  const std::int64_t rows = targets.numel();
  const std::int64_t blocks =
      std::clamp<std::int64_t>((rows + kRowsPerBlock - 1) / kRowsPerBlock, 1, kMaxBlocks);
  const auto run = [&]<typename C>(TypeTag<C>) {
    DispatchIndex("MeanOverTargets", targets.dtype(), [&](auto tag) {
      using I = typename decltype(tag)::type;
      Tensor scratch;
      LossSum* parts = nullptr;
      if (blocks > 1) {
        scratch = Tensor::Empty({blocks, 2}, DataType::kFloat64, context.device);
        parts = static_cast<LossSum*>(scratch.raw_data());
      }
      Launch(context, {.grid_x = blocks, .block = kBlock}, &SumLossesKernel<C, I>, loss.data<C>(),
             inverse_count.data<C>(), parts, losses.data<C>(), targets.data<I>(), rows,
             ignore_index);
      if (blocks > 1) {
        Launch(context, {.block = kBlock}, &FinishMeanKernel<C>, loss.data<C>(),
               inverse_count.data<C>(), parts, blocks);
      }
    });
  };
  if (losses.dtype() == DataType::kFloat64) {
    run(TypeTag<double>{});
  } else {
    run(TypeTag<float>{});
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(MeanOverTargets, &MeanOverTargets);

}  // namespace infini_train::simt
