#include "infini_train/core/device/launch_overlap.h"

#include <atomic>

namespace infini_train {
namespace {

constinit thread_local int scopes = 0;
constinit std::atomic<bool> is_enabled{true};

}  // namespace

LaunchOverlap::LaunchOverlap() noexcept {
  ++scopes;
}

LaunchOverlap::~LaunchOverlap() {
  --scopes;
}

bool LaunchOverlap::IsAllowed() noexcept {
  return scopes > 0 && is_enabled.load(std::memory_order_relaxed);
}

void LaunchOverlap::SetEnabled(bool enabled) noexcept {
  is_enabled.store(enabled, std::memory_order_relaxed);
}

}  // namespace infini_train
