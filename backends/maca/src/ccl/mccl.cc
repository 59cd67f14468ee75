#include <mccl.h>

#include "backends/runtime/nccl_style_ccl.h"
#include "runtime/policy.h"

#define CCL_NATIVE(name) mccl##name

namespace infini_train::maca {
namespace {

struct Mccl {
#include "backends/runtime/nccl_style_api.inc"

  using Stream = mcStream_t;

  static constexpr const char* kName = "MCCL";

  /// The library's throughput collapses for a very large message.
  static std::size_t MaxAllReduceBytes() {
    return GetPolicy().allreduce_segment_bytes;
  }
};

struct MacaCcl : backend::NcclStyleCcl<Mccl> {
  /// Starts the runtime, which comes first.
  MacaCcl() { GetDeviceGuardImpl(DeviceType::kPrivateUse1).DeviceCount(); }
};
REGISTER_CCL(kPrivateUse1, MacaCcl);

}  // namespace
}  // namespace infini_train::maca
