#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "infini_train/core/device/device.h"
#include "kernels/gemm_problem.h"

namespace infini_train::cuda {

/// Runs a product by cuBLASLt on a stream of `device`, which is the current one. False, with
/// nothing done, where the library has no algorithm for it.
///
/// The algorithm for a problem is chosen once in a process and device, and kept: the same call
/// gives the same bits. It is the one that the file of choices names (gemm_choices.h); or the
/// fastest of those that the library proposes, timed on the stream, where the product is large
/// enough for that to matter, the stream is not captured, and, while results have to be the same in
/// every process (IsDeterministic), the choice can be kept in the file; or the library's first
/// proposal.
///
/// `alternative` enqueues other work for what the problem writes, without adding to it: where it is
/// the fastest of those that were timed, the answer is false from then on. It may call Multiply.
bool Multiply(Device device, cudaStream_t stream, const GemmProblem& problem,
              const std::function<void()>& alternative = {});

/// "cuBLASLt 13.1.0".
std::string CublasLtVersion();

}  // namespace infini_train::cuda
