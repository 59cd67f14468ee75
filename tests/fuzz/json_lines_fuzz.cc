// Any bytes are records to fine-tune on, which lie in the batches of an epoch once, or are refused.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/data/samples/sample_batches.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace infini_train;
  static const auto bytes = LoadTokenizer("bytes");
  const test::MemoryFile file(data, size);
  constexpr int64_t kLength = 16;
  try {
    const auto samples = std::make_shared<const SampleDataset>(
        *bytes, std::vector<std::string>{file.path()},
        SampleOptions{.sequence_length = kLength,
                      .long_records = size % 2 == 0 ? LongRecords::kTruncate : LongRecords::kDrop,
                      .num_threads = 1});
    for (const bool packing : {false, true}) {
      const auto rows = std::make_shared<const SampleRows>(samples, kLength, packing);
      const SampleBatches batches(rows, {.batch_size = 2, .shuffle = size % 3 == 0});
      int64_t targets = 0;
      for (int64_t step = 0; step < batches.steps_per_epoch(); ++step)
        targets += batches.Make(1, step).num_targets;
      if (targets != samples->counts().targets) std::abort();
    }
  } catch (const Error&) {
  }
  return 0;
}
