#include "backends/runtime/missing_ccl.h"

namespace infini_train::maca {
namespace {

struct How {
  static constexpr const char* kText =
      "the provider maca was built without collectives: configure with "
      "INFINITRAIN_MACA_WITH_MCCL=ON and an SDK that has MCCL";
};

using NoMccl = backend::MissingCcl<How>;
REGISTER_CCL(kPrivateUse1, NoMccl);

}  // namespace
}  // namespace infini_train::maca
