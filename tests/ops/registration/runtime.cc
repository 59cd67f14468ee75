#include "tests/core/mock_provider.h"
#include "tests/ops/registration/order.h"

namespace infini_train::test {
namespace {

const NoteRegistration note("runtime");

REGISTER_DEVICE_GUARD(kPrivateUse1, MockDeviceGuard);

}  // namespace
}  // namespace infini_train::test
