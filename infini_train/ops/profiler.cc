#include "infini_train/ops/profiler.h"

#include <array>
#include <atomic>

namespace infini_train {
namespace {

constinit std::atomic<bool> ranges_enabled{false};

template <typename Op, typename Fn>
struct Ranged;

template <typename Op, typename... Parameters>
struct Ranged<Op, void(const KernelContext&, Parameters...)> {
  static void Run(const KernelContext& context, Parameters... arguments) {
    const ProfilerRange range(context.device, GetOpInfo(Op::kId).name.data());
    const detail::AnyKernel kernel = detail::RegisteredKernel(context.device.type(), Op::kId);
    reinterpret_cast<typename Op::Fn*>(kernel)(context, arguments...);
  }
};

}  // namespace

void SetProfilerRanges(bool enabled) {
  ranges_enabled.store(enabled, std::memory_order_relaxed);
  for (int type = 0; type < kNumDeviceTypes; ++type) {
    for (int id = 0; id < kNumOps; ++id)
      detail::ChooseCalledKernel(static_cast<DeviceType>(type), static_cast<OpId>(id));
  }
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

detail::AnyKernel detail::RangedKernel(OpId id) noexcept {
  static constexpr std::array<AnyKernel (*)(), kNumOps> kRanged = {{
#define INFINI_TRAIN_RANGED_KERNEL(Name, ...) \
  [] { return reinterpret_cast<AnyKernel>(&Ranged<op::Name, op::Name::Fn>::Run); },
      INFINI_TRAIN_OP_LIST(INFINI_TRAIN_RANGED_KERNEL)
#undef INFINI_TRAIN_RANGED_KERNEL
  }};
  return kRanged[static_cast<std::size_t>(id)]();
}

}  // namespace infini_train
