#include <cstdint>

#include "backends/simt/dialect.h"
#include "infini_train/core/dtype.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

constexpr int kSortBlock = 256;

/// A block for each expert. Each lane looks at a run of neighbouring choices, so that the order of
/// the lanes is that of the choices; an expert's rows follow those of all experts before it.
template <typename I>
SIMT_KERNEL void ExpertSortKernel(std::int64_t* rows, std::int64_t* counts, const I* experts,
                                  std::int64_t num_choices, std::int64_t num_experts) {
  SIMT_SHARED(std::int64_t, mine, kSortBlock);
  const int lane = ThreadIndex();
  const std::int64_t run = (num_choices + kSortBlock - 1) / kSortBlock;
  const std::int64_t begin = Min(lane * run, num_choices);
  const std::int64_t end = Min(begin + run, num_choices);
  for (std::int64_t expert = BlockIndex(); expert < num_experts; expert += GridSize()) {
    std::int64_t before = 0;
    std::int64_t own = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const auto choice = static_cast<std::int64_t>(Load(experts + i));
      before += choice >= 0 && choice < expert;
      own += choice == expert;
      if (expert == 0 && (choice < 0 || choice >= num_experts)) Store(rows + i, std::int64_t{-1});
    }
    mine[lane] = own;
    // Its barriers also stand between the lanes' counts and their use below.
    std::int64_t row = ReduceBlock(before, SumOp(), 0);
    for (int other = 0; other < lane; ++other) {
      const std::int64_t count = mine[other];
      row += count;
    }
    for (std::int64_t i = begin; i < end; ++i)
      if (static_cast<std::int64_t>(Load(experts + i)) == expert) Store(rows + i, row++);
    const std::int64_t total = ReduceBlock(own, SumOp(), 0);
    if (lane == 0) Store(counts + expert, total);
  }
}

void ExpertSort(const Context& context, Tensor& rows, Tensor& counts, const Tensor& experts) {
  DispatchIndex("ExpertSort", experts.dtype(), [&](auto tag) {
    using I = typename decltype(tag)::type;
    Launch(context, Rows(counts.numel(), kSortBlock), &ExpertSortKernel<I>,
           rows.data<std::int64_t>(), counts.data<std::int64_t>(), experts.data<I>(),
           experts.numel(), counts.numel());
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(ExpertSort, &ExpertSort);

}  // namespace infini_train::simt
