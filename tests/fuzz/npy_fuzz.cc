// Any bytes are an array of NumPy that can be read, or are refused.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace infini_train;
  try {
    const Tensor tensor = ParseNpy(std::as_bytes(std::span(data, size)), "array.npy");
    std::vector<std::byte> bytes(tensor.nbytes());
    tensor.CopyToHost(bytes.data());
  } catch (const Error&) {
  }
  return 0;
}
