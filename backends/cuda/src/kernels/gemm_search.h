#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <optional>

namespace infini_train::cuda {

/// The fastest of `count` ways to enqueue the same work on `stream`, timed by events; none where
/// all of them fail. `enqueue(i)` says whether way i was enqueued. Waits for the stream.
///
/// Ways take turns, so that the clocks of a device that warms up favour none, and those that are
/// clearly slower leave early. A way goes before the ones behind it unless one of them is faster by
/// more than what measurements differ in.
std::optional<std::size_t> FindFastest(cudaStream_t stream, std::size_t count,
                                       const std::function<bool(std::size_t)>& enqueue);

}  // namespace infini_train::cuda
