#pragma once

namespace infini_train::cuda {

/// Whether the process uses a device already. Making another one current would set it up, with
/// hundreds of megabytes of its memory.
bool HasPrimaryContext(int device) noexcept;

}  // namespace infini_train::cuda
