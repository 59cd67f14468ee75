#pragma once

namespace infini_train::my_backend {

/// Names the provider `my_backend` to the framework; starts no device. Programs that link
/// InfiniTrain::Backend::MY_BACKENDExecutable need no call: it registers itself. Calling it again
/// is harmless. Throws Error when the process has another PrivateUse1 provider.
void RegisterBackend();

}  // namespace infini_train::my_backend
