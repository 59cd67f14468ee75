#include "infini_train/core/device/private_use1.h"
#include "tests/ops/registration/order.h"

namespace infini_train::test {
namespace {

const NoteRegistration note("metadata");

[[maybe_unused]] const bool registered = [] {
  core::RegisterPrivateUse1Backend({"mock", DataType::kBFloat16});
  return true;
}();

}  // namespace
}  // namespace infini_train::test
