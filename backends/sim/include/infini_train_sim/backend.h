#pragma once

namespace infini_train::sim {

/// Names the provider `sim` to the framework; starts no device. Programs that link
/// InfiniTrain::Backend::SIMExecutable need no call: it registers itself. Calling it again is
/// harmless. Throws Error when the process has another PrivateUse1 provider.
void RegisterBackend();

}  // namespace infini_train::sim
