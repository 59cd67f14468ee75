#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/core/file.h"
#include "infini_train/models/model.h"
#include "tests/common/bytes.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"
#include "tests/models/small_model.h"

namespace infini_train::models {
namespace {

namespace fs = std::filesystem;

using infini_train::test::ExpectSameModel;
using infini_train::test::MessageOf;
using infini_train::test::PeakMemory;
using infini_train::test::SmallConfig;
using infini_train::test::SmallModel;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ModelLlmc, RoundTrips) {
  const TemporaryFolder folder;
  Model model = SmallModel();
  model.config.bos_token_id = -1;
  model.config.eos_token_ids = {};
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    SaveLlmcCheckpoint(model, folder / "a.bin", dtype);
    const Model loaded = LoadModel(folder / "a.bin", {.device = {}, .dtype = dtype});
    EXPECT_EQ(LoadModelConfig(folder / "a.bin"), model.config);
    SaveLlmcCheckpoint(loaded, folder / "b.bin", dtype);
    EXPECT_EQ(ReadFile(folder / "a.bin"), ReadFile(folder / "b.bin"));
    if (dtype == DataType::kFloat32) ExpectSameModel(loaded, model);
  }
}

TEST(ModelLlmc, RefusesModelsThatTheFormatCannotHold) {
  const TemporaryFolder folder;
  ModelConfig config = SmallConfig();
  config.transformer.tie_word_embeddings = false;
  config.transformer.intermediate_size = 12;
  EXPECT_THAT(MessageOf([&] { SaveLlmcCheckpoint(SmallModel(config), folder / "f"); }),
              AllOf(HasSubstr("tie_word_embeddings"), HasSubstr("intermediate_size")));
  EXPECT_FALSE(fs::exists(folder / "f"));
}

TEST(ModelLlmc, RefusesHostileHeadersAndTruncatedFiles) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.bin";
  SaveLlmcCheckpoint(SmallModel(), path);
  const std::string good = ReadFile(path);
  const long before = PeakMemory();
  constexpr std::int32_t kMax = 2'147'483'647;
  // Positions, vocabulary, layers, heads, width, padded vocabulary.
  const std::pair<int, std::vector<std::int32_t>> fields[] = {
      {1, {0, 4, -1}},
      {2, {0, -1, 10, kMax}},
      {3, {0, -1, 200, kMax}},
      {4, {0, -1, 1, 3, kMax}},
      {5, {0, -1, 3, kMax}},
      {6, {0, -1, 16, kMax}},
      {7, {0, -1, 20, 127, 129, kMax}},
  };
  const auto expect_refused = [&](const std::string& bytes) {
    WriteBytes(path, bytes);
    EXPECT_THAT(MessageOf([&] { LoadModel(path); }), HasSubstr(path));
  };
  for (const auto& [index, values] : fields) {
    for (const std::int32_t value : values) {
      SCOPED_TRACE(::testing::Message() << "header " << index << " = " << value);
      std::string bytes = good;
      std::memcpy(&bytes[static_cast<std::size_t>(4 * index)], &value, sizeof(value));
      expect_refused(bytes);
    }
  }
  std::string all_large = good;
  for (int index = 2; index < 8; ++index)
    std::memcpy(&all_large[static_cast<std::size_t>(4 * index)], &kMax, sizeof(kMax));
  expect_refused(all_large);
  for (const std::size_t size : {0, 3, 1023, 1024, 1028, static_cast<int>(good.size()) - 1}) {
    SCOPED_TRACE(::testing::Message() << size << " bytes");
    expect_refused(good.substr(0, size));
  }
  expect_refused(good + "x");
  EXPECT_LT(PeakMemory() - before, 64 * 1024);
}

}  // namespace
}  // namespace infini_train::models
