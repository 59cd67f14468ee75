#pragma once

namespace infini_train::simt {

/// How a product of a weight and few rows is shared out: as many blocks as are resident at a time,
/// each of which goes through rows of the weight.
struct GemvPlan {
  static constexpr int kMaxLanes = 256;
  static constexpr int kMaxBlocks = 64;

  int lanes;                 ///< of a block, a multiple of 32
  int blocks_per_processor;  ///< at most
};

/// By default half of what a multiprocessor has room for, so that the launch behind it can read
/// weights ahead in the other half. `INFINI_TRAIN_GEMV_PLAN=<lanes>x<blocks>` asks for another,
/// for measurements. Throws Error for one that kernels cannot run with.
const GemvPlan& GetGemvPlan();

}  // namespace infini_train::simt
