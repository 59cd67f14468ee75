// Any bytes are a safetensors file all of whose tensors can be read, or are refused.

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/error.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace infini_train;
  const test::MemoryFile input(data, size);
  try {
    const checkpoint::SafetensorsFile file(input.path());
    for (const std::string& name : file.Names()) {
      const Tensor tensor = file.Load(name);
      std::vector<std::byte> bytes(tensor.nbytes());
      tensor.CopyToHost(bytes.data());
    }
  } catch (const Error&) {
  }
  return 0;
}
