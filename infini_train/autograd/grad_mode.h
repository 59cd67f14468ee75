#pragma once

#include <optional>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/core/dtype.h"

namespace infini_train {

namespace autograd {
/// Whether the calling thread records operations for backward. On at start.
INFINI_TRAIN_API bool GradEnabled();
INFINI_TRAIN_API void SetGradEnabled(bool enabled);
}  // namespace autograd

/// Stops (or, with `true`, resumes) recording on the calling thread for a scope.
class GradModeGuard {
 public:
  explicit GradModeGuard(bool enabled) : previous_(autograd::GradEnabled()) {
    autograd::SetGradEnabled(enabled);
  }
  ~GradModeGuard() { autograd::SetGradEnabled(previous_); }
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  bool previous_;
};

/// `NoGrad no_grad;` nothing in this scope is recorded.
class NoGrad : public GradModeGuard {
 public:
  NoGrad() : GradModeGuard(false) {}
};

namespace autocast {
/// The type that matrix multiplications and attention compute in on the calling thread, if autocast
/// is on.
INFINI_TRAIN_API std::optional<DataType> ComputeDataType();
INFINI_TRAIN_API void SetComputeDataType(std::optional<DataType> dtype);
/// The type to compute in where none is named: what the provider of a PrivateUse1 device stated
/// when it registered, bfloat16 on other devices.
INFINI_TRAIN_API DataType DefaultDataType(Device device);
}  // namespace autocast

/// Mixed precision for a scope on the calling thread, as torch.autocast: linear layers, matrix
/// products and attention run in `dtype` and give `dtype`; everything else runs in the type that
/// its operands meet in (so float32 residuals, norms and losses stay float32). Parameters and their
/// gradients keep their own type. `std::nullopt` switches autocast off.
class Autocast {
 public:
  /// Throws Error unless `dtype` is bfloat16, or nullopt: float16 training would need loss scaling.
  INFINI_TRAIN_API explicit Autocast(std::optional<DataType> dtype);
  /// In autocast::DefaultDataType(device).
  explicit Autocast(Device device) : Autocast(autocast::DefaultDataType(device)) {}
  ~Autocast() { autocast::SetComputeDataType(previous_); }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  std::optional<DataType> previous_;
};

}  // namespace infini_train
