// Tokens a second that the data loader prepares, to set beside what a training step consumes.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/data/data_loader.h"
#include "infini_train/data/shard_batches.h"
#include "infini_train/data/token_shard.h"

namespace infini_train {
namespace {

constexpr std::int64_t kNumTokens = 16 << 20;
constexpr std::int64_t kBatchSize = 8;
constexpr std::int64_t kSequenceLength = 1024;

std::string ShardPath() {
  return (std::filesystem::temp_directory_path() / "benchmark_data_loader.bin").string();
}

void WriteShard() {
  TokenShardWriter writer(ShardPath(), TokenType::kUint16);
  std::vector<std::int32_t> tokens(1 << 16);
  for (std::int64_t done = 0; done < kNumTokens; done += static_cast<std::int64_t>(tokens.size())) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>((done + static_cast<std::int64_t>(i)) * 40503 % 50257);
    }
    writer.Append(tokens);
  }
  writer.Commit();
}

void Next(benchmark::State& state, bool shuffle) {
  const auto dataset = std::make_shared<const TokenDataset>(std::vector<std::string>{ShardPath()});
  ShardBatchOptions options;
  options.geometry = {kBatchSize, kSequenceLength, 0, 1};
  options.shuffle = shuffle;
  options.vocab_size = 50257;
  DataLoader loader(std::make_shared<const ShardBatches>(dataset, options), /*prefetch=*/0);
  for (auto _ : state)
    benchmark::DoNotOptimize(loader.Next());
  state.SetItemsProcessed(state.iterations() * kBatchSize * kSequenceLength);
}

BENCHMARK_CAPTURE(Next, in_order, false);
BENCHMARK_CAPTURE(Next, shuffled, true);

}  // namespace
}  // namespace infini_train

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  infini_train::WriteShard();
  benchmark::RunSpecifiedBenchmarks();
  std::filesystem::remove(infini_train::ShardPath());
  return 0;
}
