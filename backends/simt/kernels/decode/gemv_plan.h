#pragma once

namespace infini_train::simt {

/// How a product of a weight and few rows is shared out: as many blocks as are resident at a time,
/// each of which goes through rows of the weight.
struct GemvPlan {
  static constexpr int kMaxLanes = 512;
  static constexpr int kMaxBlocks = 16;

  int lanes;                 ///< of a block at most, a multiple of 64
  int blocks_per_processor;  ///< at most, which share half of its memory
};

/// One block, with as many copies of the weight under way as half of a multiprocessor's memory has
/// room for: the other half is the next launch's. `INFINI_TRAIN_GEMV_PLAN=<lanes>x<blocks>` asks
/// for another, for measurements. Throws Error for one that kernels cannot run with.
const GemvPlan& GetGemvPlan();

}  // namespace infini_train::simt
