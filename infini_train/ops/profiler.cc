#include "infini_train/ops/profiler.h"

#include <array>
#include <atomic>

#include "infini_train/ops/op_recorder.h"

namespace infini_train {
namespace {

constinit std::atomic<bool> ranges_enabled{false};

template <typename Op, typename Fn>
struct Observed;

template <typename Op, typename... Parameters>
struct Observed<Op, void(const KernelContext&, Parameters...)> {
  static void Run(const KernelContext& context, Parameters... arguments) {
    const ProfilerRange range(context.device, GetOpInfo(Op::kId).name.data());
    const detail::RecordedCall call(context, Op::kId, false, arguments...);
    const detail::AnyKernel kernel = detail::RegisteredKernel(context.device.type(), Op::kId);
    reinterpret_cast<typename Op::Fn*>(kernel)(context, arguments...);
  }
};

}  // namespace

void SetProfilerRanges(bool enabled) {
  ranges_enabled.store(enabled, std::memory_order_relaxed);
  detail::ChooseCalledKernels();
}

bool ProfilerRangesEnabled() noexcept {
  return ranges_enabled.load(std::memory_order_relaxed);
}

ProfilerRange::ProfilerRange(Device device, const char* name) {
  if (!ProfilerRangesEnabled()) return;
  DeviceGuardImpl& impl = GetDeviceGuardImpl(device.type());
  impl.PushProfilerRange(name);
  impl_ = &impl;
}

ProfilerRange::~ProfilerRange() {
  if (impl_ != nullptr) impl_->PopProfilerRange();
}

detail::AnyKernel detail::ObservedKernel(OpId id) noexcept {
  static constexpr std::array<AnyKernel (*)(), kNumOps> kObserved = {{
#define INFINI_TRAIN_OBSERVED_KERNEL(Name, ...) \
  [] { return reinterpret_cast<AnyKernel>(&Observed<op::Name, op::Name::Fn>::Run); },
      INFINI_TRAIN_OP_LIST(INFINI_TRAIN_OBSERVED_KERNEL)
#undef INFINI_TRAIN_OBSERVED_KERNEL
  }};
  return kObserved[static_cast<std::size_t>(id)]();
}

}  // namespace infini_train
