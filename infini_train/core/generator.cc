#include "infini_train/core/generator.h"

namespace infini_train {

Generator& DefaultGenerator() {
  thread_local Generator generator;
  return generator;
}

void ManualSeed(std::uint64_t seed) {
  DefaultGenerator() = Generator(seed);
}

}  // namespace infini_train
