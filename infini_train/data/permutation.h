#pragma once

#include <cstdint>

#include "infini_train/core/api.h"

namespace infini_train {

/// A seeded pseudo-random permutation of 0 ... size-1 in constant memory: a balanced Feistel
/// network over the next power of four, walked until the value falls inside the range (Black and
/// Rogaway, "Ciphers with arbitrary finite domains", 2002). The same size and seed give the same
/// order on every machine.
class INFINI_TRAIN_API Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed);

  uint64_t size() const { return size_; }
  /// The image of `index`, which must be below size(). Expected cost is at most four passes through
  /// the network.
  uint64_t operator()(uint64_t index) const;

 private:
  static constexpr int kRounds = 6;

  uint64_t size_;
  int half_bits_;
  uint64_t keys_[kRounds];
};

}  // namespace infini_train
