#include <nccl.h>

#include "backends/runtime/nccl_style_ccl.h"

#define CCL_NATIVE(name) nccl##name

namespace infini_train::cuda {
namespace {

struct Nccl {
#include "backends/runtime/nccl_style_api.inc"

  using Stream = cudaStream_t;

  static constexpr const char* kName = "NCCL";

  /// Any: NCCL cuts messages itself.
  static std::size_t MaxAllReduceBytes() {
    return 0;
  }
};

using NcclCcl = backend::NcclStyleCcl<Nccl>;
REGISTER_CCL(kCUDA, NcclCcl);

}  // namespace
}  // namespace infini_train::cuda
