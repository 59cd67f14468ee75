#pragma once

#include <cstddef>

namespace infini_train::maca {

/// Names the provider `maca` to the framework; starts no device. Programs that link
/// InfiniTrain::Backend::MACAExecutable need no call: it registers itself. Calling it again is
/// harmless. Throws Error when the process has another PrivateUse1 provider.
void RegisterBackend();

/// The most bytes that a device has held since the last reset.
struct MemoryPeaks {
  std::size_t used = 0;      ///< given to the framework
  std::size_t reserved = 0;  ///< taken from the device for it
};

/// Of the asynchronous pool where it is in use and says so, else of the provider's own count of
/// allocations, in which both are the same. Throws Error for a device that does not exist.
MemoryPeaks GetMemoryPeaks(int device);

/// Makes the present figures the peaks.
void ResetMemoryPeaks(int device);

}  // namespace infini_train::maca
