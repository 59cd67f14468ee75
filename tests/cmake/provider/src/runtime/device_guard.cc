#include "runtime/mock_provider.h"

namespace infini_train::test {
namespace {

REGISTER_DEVICE_GUARD(kPrivateUse1, MockDeviceGuard);

}  // namespace
}  // namespace infini_train::test
