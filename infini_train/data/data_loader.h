#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "infini_train/core/api.h"
#include "infini_train/data/batch_source.h"

namespace infini_train {

/// Endless training batches of a source, epoch after epoch, with a position that can be saved: a
/// loader that loads the state continues with the very next batch.
///
/// Not safe to call from several threads at once.
class INFINI_TRAIN_API DataLoader {
 public:
  static constexpr int kDefaultPrefetch = 4;

  /// `prefetch` batches are prepared ahead by a background thread; 0 for no thread.
  explicit DataLoader(std::shared_ptr<const BatchSource> source, int prefetch = kDefaultPrefetch);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  int64_t steps_per_epoch() const;

  /// The next batch. Throws what the source throws.
  TokenBatch Next();

  /// The position after the last batch that Next() returned, as a JSON object. It is the same on
  /// every rank.
  std::string State() const;
  /// Continues after the batch at which `state` was taken. Throws Error, listing the differences,
  /// if the state belongs to other data or another order, or to another number of sequences per
  /// step: a source that orders sequences goes on with that as well, where a step of this loader
  /// begins there.
  void LoadState(const std::string& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace infini_train
