#include "infini_train/ops/dispatch.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <string>

#include "infini_train/core/error.h"
#include "infini_train/ops/op_recorder.h"
#include "infini_train/ops/profiler.h"

namespace infini_train {
namespace {

constexpr std::array<OpInfo, kNumOps> kOpInfos = {{
#define INFINI_TRAIN_OP_INFO(Name, doc, ...) {#Name, doc, #__VA_ARGS__},
    INFINI_TRAIN_OP_LIST(INFINI_TRAIN_OP_INFO)
#undef INFINI_TRAIN_OP_INFO
}};

struct KernelEntry {
  detail::AnyKernel kernel = nullptr;
  /// What a call runs: the kernel, or its namesake of detail::ObservedKernel.
  std::atomic<detail::AnyKernel> called{nullptr};
  const char* file = nullptr;
  int line = 0;
  // The second registration, which disables the entry.
  const char* other_file = nullptr;
  int other_line = 0;
};

// Constant-initialised, so that it is ready for file-scope registrations in any order.
constinit KernelEntry kernel_table[kNumDeviceTypes][kNumOps];

KernelEntry& EntryOf(DeviceType type, OpId id) {
  return kernel_table[static_cast<int>(type)][static_cast<int>(id)];
}

}  // namespace

const OpInfo& GetOpInfo(OpId id) {
  return kOpInfos[static_cast<std::size_t>(id)];
}

bool HasKernel(DeviceType type, OpId id) {
  return EntryOf(type, id).kernel != nullptr;
}

namespace detail {

AnyKernel FindKernel(DeviceType type, OpId id) noexcept {
  return EntryOf(type, id).called.load(std::memory_order_relaxed);
}

AnyKernel RegisteredKernel(DeviceType type, OpId id) noexcept {
  return EntryOf(type, id).kernel;
}

void ChooseCalledKernel(DeviceType type, OpId id) noexcept {
  KernelEntry& entry = EntryOf(type, id);
  const bool observed = entry.kernel != nullptr && (ProfilerRangesEnabled() || IsRecordingOps());
  entry.called.store(observed ? ObservedKernel(id) : entry.kernel, std::memory_order_relaxed);
}

void ChooseCalledKernels() noexcept {
  for (int type = 0; type < kNumDeviceTypes; ++type) {
    for (int id = 0; id < kNumOps; ++id)
      ChooseCalledKernel(static_cast<DeviceType>(type), static_cast<OpId>(id));
  }
}

void RegisterKernel(DeviceType type, OpId id, AnyKernel kernel, const char* file,
                    int line) noexcept {
  KernelEntry& entry = EntryOf(type, id);
  if (entry.file != nullptr) {
    entry.kernel = nullptr;
    entry.other_file = file;
    entry.other_line = line;
  } else {
    entry.kernel = kernel;
    entry.file = file;
    entry.line = line;
  }
  ChooseCalledKernel(type, id);
}

bool HasTwoKernels(DeviceType type, OpId id) noexcept {
  return EntryOf(type, id).other_file != nullptr;
}

void ThrowNoKernel(DeviceType type, OpId id) {
  const std::string_view name = GetOpInfo(id).name;
  const KernelEntry& entry = EntryOf(type, id);
  if (entry.other_file != nullptr) {
    throw Error(fmt::format("op {} has two kernels for {}: {}:{} and {}:{}", name, ToString(type),
                            entry.file, entry.line, entry.other_file, entry.other_line));
  }
  std::string owners;
  for (int i = 0; i < kNumDeviceTypes; ++i) {
    const auto other = static_cast<DeviceType>(i);
    if (HasKernel(other, id)) owners += (owners.empty() ? "" : ", ") + ToString(other);
  }
  throw Error(fmt::format("op {} has no kernel for {}; it has one for: {}", name, ToString(type),
                          owners.empty() ? "no device in this build" : owners));
}

void ThrowDeviceMismatch(OpId id, Device expected, Device found) {
  throw Error(fmt::format("op {}: expected all tensors on {}, got one on {}", GetOpInfo(id).name,
                          expected.ToString(), found.ToString()));
}

}  // namespace detail
}  // namespace infini_train
