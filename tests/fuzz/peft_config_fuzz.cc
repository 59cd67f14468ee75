// Any bytes are a configuration of adapters that is written out again as it was, or are refused.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "infini_train/core/error.h"
#include "infini_train/models/lora/peft_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace infini_train;
  models::PeftConfig config;
  try {
    config = models::ParsePeftConfig({reinterpret_cast<const char*>(data), size}, "config");
  } catch (const Error&) {
    return 0;
  }
  const models::PeftConfig again =
      models::ParsePeftConfig(models::DumpPeftConfig(config, true), "config");
  if (!(again == config)) std::abort();
  return 0;
}
