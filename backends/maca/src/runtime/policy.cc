#include "runtime/policy.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "infini_train/core/device/environment.h"
#include "infini_train/core/device/provider_flags.h"

namespace infini_train::maca {
namespace {

bool multithread_workarounds = true;
bool retain_async_pool = false;

[[maybe_unused]] const bool registered = [] {
  RegisterProviderFlag({"maca_multithread_workarounds",
                        "synchronous allocation, one copy call at a time, and blocking launches "
                        "unless MACA_LAUNCH_BLOCKING says otherwise",
                        &multithread_workarounds});
  RegisterProviderFlag({"maca_retain_async_pool",
                        "without the workarounds: keep the pages of the asynchronous memory pool",
                        &retain_async_pool});
  return true;
}();

constexpr char kLaunchBlocking[] = "MACA_LAUNCH_BLOCKING";
constexpr char kPeerToPeer[] = "MCCL_P2P_DISABLE";
constexpr char kSegment[] = "INFINI_MCCL_ALLREDUCE_SEGMENT_MB";
constexpr char kFloat64[] = "INFINI_MACA_GEMM_FP64_ACCUM";

Policy ReadPolicy() {
  Policy policy;
  const auto report = [&](const char* name, std::string value, const char* origin) {
    policy.settings.push_back({name, std::move(value), origin});
  };
  const auto origin = [](const char* name) {
    return GetEnvironment(name) ? "environment" : "default";
  };
  const auto report_flag = [&](const char* name, bool value, bool otherwise) {
    report(name, value ? "true" : "false", value == otherwise ? "default" : "flag");
  };
  policy.multithread_workarounds = multithread_workarounds;
  policy.retain_async_pool = retain_async_pool;
  report_flag("maca_multithread_workarounds", multithread_workarounds, true);
  report_flag("maca_retain_async_pool", retain_async_pool, false);

  // The runtime reads its environment when it is initialized. What the user has set stays.
  if (!policy.multithread_workarounds || GetEnvironment(kLaunchBlocking)) {
    report(kLaunchBlocking, GetEnvironment(kLaunchBlocking).value_or("unset"),
           origin(kLaunchBlocking));
  } else {
    ::setenv(kLaunchBlocking, "1", /*overwrite=*/1);
    report(kLaunchBlocking, "1", "workaround");
  }
  report(kPeerToPeer, GetEnvironment(kPeerToPeer).value_or("unset"), origin(kPeerToPeer));

  const std::int64_t segment = GetEnvironmentInteger(kSegment, 0, 4096).value_or(160);
  policy.allreduce_segment_bytes = static_cast<std::size_t>(segment) << 20;
  report(kSegment, std::to_string(segment), origin(kSegment));
  policy.gemm_fp64_accumulation = GetEnvironmentSwitch(kFloat64).value_or(false);
  report(kFloat64, policy.gemm_fp64_accumulation ? "1" : "0", origin(kFloat64));
  return policy;
}

}  // namespace

const Policy& GetPolicy() {
  static const Policy& policy = *new Policy(ReadPolicy());
  return policy;
}

}  // namespace infini_train::maca
