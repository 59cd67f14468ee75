#pragma once

namespace infini_train::simt {

/// How a product of a weight and few rows is shared out: as many blocks as are resident at a time,
/// each of which goes through rows of the weight.
struct GemvPlan {
  static constexpr int kMaxLanes = 256;
  static constexpr int kMaxBlocks = 64;

  int lanes;                 ///< of a block, a multiple of 32
  int blocks_per_processor;  ///< at most
  /// Of a row of the weight, 8 vectors a lane each, that a group of lanes has not asked for yet
  /// when the launch behind may begin. Later, memory has nothing to do at the end; earlier, what
  /// that one reads ahead has come before it is wanted.
  int batches_left = 0;
};

/// By default half of what a multiprocessor has room for, so that the launch behind it can read
/// weights ahead in the other half. `INFINI_TRAIN_GEMV_PLAN=<lanes>x<blocks>[x<batches>]` asks for
/// another, for measurements. Throws Error for one that kernels cannot run with.
const GemvPlan& GetGemvPlan();

}  // namespace infini_train::simt
