// Any bytes are a configuration that a family understands and writes out again as it was, or are
// refused; so are the headers of llm.c files.

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "infini_train/core/error.h"
#include "infini_train/core/json/untrusted_json.h"
#include "infini_train/models/families/model_family.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace infini_train;

void ReadJson(const models::ModelFamily& family, std::string_view text) {
  models::ModelConfig config;
  try {
    config = family.ParseConfig(ParseJson(text, "config.json"), "config.json");
    config.transformer.Validate();
  } catch (const Error&) {
    return;
  }
  // Token ids are written by whoever saves the model.
  models::ModelConfig again =
      family.ParseConfig(ParseJson(family.DumpConfig(config).dump(), "config.json"), "config.json");
  again.bos_token_id = config.bos_token_id;
  again.eos_token_ids = config.eos_token_ids;
  if (!(again == config)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const models::ModelFamily* family : models::Families())
    ReadJson(*family, text);
  const test::MemoryFile input(data, size);
  try {
    models::LoadModelConfig(input.path());
  } catch (const Error&) {
  }
  return 0;
}
