// Models to and from folders; what does not fit is refused before anything is built.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/file.h"
#include "infini_train/models/model.h"
#include "tests/common/bytes.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"
#include "tests/models/small_model.h"

namespace infini_train::models {
namespace {

namespace fs = std::filesystem;

using infini_train::test::BytesOf;
using infini_train::test::ExpectSameModel;
using infini_train::test::MessageOf;
using infini_train::test::NamesIn;
using infini_train::test::PeakMemory;
using infini_train::test::SmallConfig;
using infini_train::test::SmallModel;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ModelFiles, SaveLoadSaveIsExact) {
  const TemporaryFolder folder;
  const Model model = SmallModel();
  SaveModel(model, folder / "a/b");
  const Model loaded = LoadModel(folder / "a/b");
  ExpectSameModel(loaded, model);
  EXPECT_EQ(LoadModelConfig(folder / "a/b"), model.config);
  SaveModel(loaded, folder / "c");
  ASSERT_EQ(NamesIn(folder / "a/b"), NamesIn(folder / "c"));
  for (const std::string& name : NamesIn(folder / "c"))
    EXPECT_EQ(ReadFile(folder / "a/b/" + name), ReadFile(folder / "c/" + name)) << name;
}

TEST(ModelFiles, EveryConfigurableFieldComesBack) {
  const TemporaryFolder folder;
  ModelConfig config = SmallConfig();
  nn::TransformerConfig& t = config.transformer;
  t.intermediate_size = 12;
  t.norm_eps = 3e-6;
  t.activation = nn::Activation::kGelu;
  t.tie_word_embeddings = false;
  t.scale_attention = false;
  t.scale_attention_by_inverse_layer_index = true;
  t.embedding_dropout = 0.125;
  t.attention_dropout = 0.25;
  t.residual_dropout = 0.5;
  t.initializer_range = 0.01;
  config.bos_token_id = -1;
  config.eos_token_ids = {1, 2};
  const Model model = SmallModel(config);
  SaveModel(model, folder.path());
  ExpectSameModel(LoadModel(folder.path()), model);
  EXPECT_TRUE(checkpoint::SafetensorsFolder(folder.path()).Contains("lm_head.weight"));
}

TEST(ModelFiles, ShardsLoadAsOneFileAndLeaveNothingStale) {
  const TemporaryFolder folder;
  const Model model = SmallModel();
  SaveModel(model, folder.path());
  SaveModel(model, folder.path(), {.dtype = {}, .max_shard_bytes = 1000});
  const std::vector<std::string> sharded = NamesIn(folder.path());
  EXPECT_GT(sharded.size(), 5u);
  EXPECT_THAT(sharded, Not(::testing::Contains("model.safetensors")));
  ExpectSameModel(LoadModel(folder.path()), model);
  SaveModel(model, folder.path(), {.dtype = {}, .max_shard_bytes = 5000});
  EXPECT_LT(NamesIn(folder.path()).size(), sharded.size());
  ExpectSameModel(LoadModel(folder.path()), model);
  SaveModel(model, folder.path());
  EXPECT_THAT(NamesIn(folder.path()),
              ::testing::ElementsAre("config.json", "generation_config.json", "model.safetensors"));
  ExpectSameModel(LoadModel(folder.path()), model);
}

TEST(ModelFiles, ConvertsTypesOnSavingAndLoading) {
  const TemporaryFolder folder;
  const Model model = SmallModel();
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16, DataType::kFloat64}) {
    SaveModel(model, folder.path(), {.dtype = dtype});
    const checkpoint::SafetensorsFolder files(folder.path());
    const std::string name = "transformer.h.1.attn.c_attn.weight";
    EXPECT_EQ(files.dtype(name), dtype);
    EXPECT_THAT(ReadFile(folder / "config.json"), HasSubstr(std::string(ToString(dtype))));
    const Model loaded = LoadModel(folder.path(), {.device = {}, .dtype = DataType::kFloat32});
    const NamedTensors expected = model.module->NamedParameters();
    const NamedTensors found = loaded.module->NamedParameters();
    const NoGrad no_grad;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(BytesOf(found[i].second),
                BytesOf(To(To(expected[i].second, dtype), DataType::kFloat32)))
          << found[i].first;
    }
    const Model narrow = LoadModel(folder.path(), {.device = {}, .dtype = DataType::kBFloat16});
    EXPECT_EQ(narrow.module->head_weight().dtype(), DataType::kBFloat16);
  }
}

TEST(ModelFiles, ListsEverythingThatDoesNotFit) {
  const TemporaryFolder folder;
  SaveModel(SmallModel(), folder.path());
  NamedTensors tensors;
  {
    const checkpoint::SafetensorsFolder files(folder.path());
    for (const std::string& name : files.Names()) {
      if (name.ends_with("ln_1.bias")) continue;
      Tensor tensor = Clone(files.Load(name));
      if (name.ends_with("c_fc.weight")) tensor = Clone(Transpose(tensor, 0, 1));
      if (name.ends_with("wpe.weight")) tensor = Flatten(tensor);
      if (name.ends_with("ln_f.weight")) tensor = To(tensor, DataType::kInt32);
      tensors.emplace_back(name, tensor);
    }
  }
  tensors.emplace_back("wte.weight", Zeros({1}));
  tensors.emplace_back("transformer.h.2.ln_1.bias", Zeros({1}));
  tensors.emplace_back("transformer.h.0.attn.bias", Zeros({1, 1, 9, 9}));
  tensors.emplace_back("lm_head.weight", Zeros({21, 8}));
  checkpoint::WriteSafetensors(folder / "model.safetensors", tensors);
  const std::string message = MessageOf([&] { LoadModel(folder.path()); });
  EXPECT_THAT(message, AllOf(HasSubstr(folder / "model.safetensors"),
                             HasSubstr("missing: transformer.h.{0-1}.ln_1.bias;"),
                             HasSubstr("unexpected: transformer.h.2.ln_1.bias, wte.weight;")));
  EXPECT_THAT(message,
              AllOf(HasSubstr("transformer.h.{0-1}.mlp.c_fc.weight (expected [8, 32], found "
                              "[32, 8])"),
                    HasSubstr("transformer.wpe.weight (expected [9, 8], found [72])"),
                    HasSubstr("transformer.ln_f.weight (expected a floating type, found int32)")));
  EXPECT_THAT(message, AllOf(Not(HasSubstr("attn.bias")), Not(HasSubstr("lm_head"))));
}

TEST(ModelFiles, SaysWhatAFolderLacks) {
  const TemporaryFolder folder;
  EXPECT_THAT(MessageOf([&] { LoadModel(folder / "absent"); }), HasSubstr(folder / "absent"));
  EXPECT_THAT(MessageOf([&] { LoadModel(folder.path()); }), HasSubstr("config.json"));
  SaveModel(SmallModel(), folder.path());
  fs::remove(folder / "model.safetensors");
  EXPECT_THAT(MessageOf([&] { LoadModel(folder.path()); }), HasSubstr("model.safetensors"));
  WriteBytes(folder / "file", "neither");
  EXPECT_THAT(MessageOf([&] { LoadModel(folder / "file"); }), HasSubstr("neither"));
  EXPECT_THAT(MessageOf([&] { SaveModel(SmallModel(), folder / "file/below"); }),
              HasSubstr(folder / "file/below"));
}

TEST(ModelFiles, SizesThatTheWeightsCannotHaveTakeNoMemory) {
  const TemporaryFolder folder;
  SaveModel(SmallModel(), folder.path());
  const long before = PeakMemory();
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, std::int64_t>>{{"n_layer", 1'000'000'000},
                                                         {"n_layer", 100'000},
                                                         {"vocab_size", 2'000'000'000},
                                                         {"n_positions", 2'000'000'000},
                                                         {"n_embd", 1'000'000},
                                                         {"n_inner", 2'000'000'000}}) {
    WriteBytes(folder / "config.json",
               R"({"n_layer":2,"n_inner":32,"vocab_size":21,"n_positions":9,"n_embd":8,)"
               R"("model_type":"gpt2","n_head":2,")" +
                   field + "\":" + std::to_string(value) + "}");
    EXPECT_THAT(MessageOf([&] { LoadModel(folder.path()); }), HasSubstr(folder.path())) << field;
  }
  EXPECT_LT(PeakMemory() - before, 64 * 1024);
}

}  // namespace
}  // namespace infini_train::models
