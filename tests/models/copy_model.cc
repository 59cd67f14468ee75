// copy_model FROM TO [MAX_SHARD_BYTES]: loads a model and saves it as a folder. copy_model NAME TO:
// makes a new model of a preset.

#include <cstdio>
#include <exception>
#include <string>

#include "infini_train/models/model.h"

int main(int argc, char** argv) try {
  namespace models = infini_train::models;
  if (argc < 3) {
    std::fprintf(stderr, "usage: copy_model FROM TO [MAX_SHARD_BYTES]\n");
    return 2;
  }
  const models::Preset* const preset = models::FindPreset(argv[1]);
  const models::Model model =
      preset != nullptr ? models::CreateModel(preset->config, 1) : models::LoadModel(argv[1]);
  models::SaveModelOptions options;
  if (argc > 3) options.max_shard_bytes = std::stoll(argv[3]);
  models::SaveModel(model, argv[2], options);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "copy_model: %s\n", error.what());
  return 2;
}
