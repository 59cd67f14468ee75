// Any bytes are a token file that reads within its bounds, or are refused.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/data/data_loader.h"
#include "infini_train/data/shard_batches.h"
#include "infini_train/data/token_shard.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace infini_train;
  const test::MemoryFile file(data, size);
  try {
    const TokenShard shard(file.path());
    std::vector<int64_t> tokens(static_cast<size_t>(shard.size()));
    shard.Read(0, tokens);
    for (int64_t i = 0; i < shard.size(); ++i) {
      if (shard[i] != tokens[static_cast<size_t>(i)]) std::abort();
    }
    const auto dataset =
        std::make_shared<const TokenDataset>(std::vector<std::string>{file.path()});
    const ShardCoverage coverage(dataset, {2, 5, 0, 1}, /*vocab_size=*/50257);
    for (int64_t step = 0; step < coverage.steps_per_epoch(); ++step)
      coverage.Make(0, step);
    ShardBatchOptions options;
    options.geometry = {2, 5, 0, 1};
    options.shuffle = shard.size() % 2 == 0;
    DataLoader loader(std::make_shared<const ShardBatches>(dataset, options), /*prefetch=*/0);
    for (int i = 0; i < 8; ++i)
      loader.Next();
  } catch (const Error&) {
  }
  return 0;
}
