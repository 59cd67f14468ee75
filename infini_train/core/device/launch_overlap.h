#pragma once

#include "infini_train/core/api.h"

namespace infini_train {

/// While one lives, launches of the calling thread may overlap: a kernel that was made for it
/// begins while some that were enqueued before it still run, reads what it takes for constant
/// (weights, the keys and values of earlier positions), and waits before it touches anything else.
///
/// For scopes in which no kernel writes what a later one takes for constant; nor may one before the
/// scope, back to the last one that waited for all before it to end. Devices that cannot do it run
/// one launch after another as always.
class INFINI_TRAIN_API LaunchOverlap {
 public:
  LaunchOverlap() noexcept;
  ~LaunchOverlap();
  LaunchOverlap(const LaunchOverlap&) = delete;
  LaunchOverlap& operator=(const LaunchOverlap&) = delete;

  /// Whether the calling thread is in such a scope, and SetEnabled has not switched all off.
  static bool IsAllowed() noexcept;

  /// For all threads; true at first. The results are the same.
  static void SetEnabled(bool enabled) noexcept;
};

}  // namespace infini_train
