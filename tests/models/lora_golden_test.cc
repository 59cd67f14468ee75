// What PEFT computes with adapters of the golden models, and its files.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/models/lora.h"
#include "infini_train/optim/optimizer.h"
#include "tests/common/bytes.h"
#include "tests/common/temporary_folder.h"
#include "tests/models/golden.h"
#include "tests/models/small_model.h"

namespace infini_train::models {
namespace {

namespace fs = std::filesystem;

using infini_train::test::BytesOf;
using infini_train::test::Golden;
using infini_train::test::RelativeError;
using infini_train::test::TemporaryFolder;

class LoraGolden : public ::testing::TestWithParam<std::string> {
 protected:
  double EvaluationLoss() {
    const Tensor labels = base_.Ids("labels");
    return model_.module
        ->Loss(base_.Ids("input_ids"), labels, 1.0 / static_cast<double>(labels.numel()))
        .Item();
  }
  Tensor Logits() {
    const NoGrad no_grad;
    return (*model_.module)(base_.Ids("input_ids"));
  }

  Golden base_{GetParam()};
  Golden peft_{"peft/" + GetParam()};
  Model model_ = LoadModel(base_.folder());
  Lora lora_ = Lora::Load(model_, peft_.folder());
};

TEST_P(LoraGolden, Logits) {
  EXPECT_LE(RelativeError(Logits(), peft_.Get("logits")), 1e-5);
  EXPECT_LE(RelativeError(EvaluationLoss(), peft_.json()["loss"]), 1e-5);
}

TEST_P(LoraGolden, GradientsOfAdaptersAlone) {
  const Tensor labels = base_.Ids("labels");
  Backward(model_.module->Loss(base_.Ids("input_ids"), labels,
                               1.0 / static_cast<double>(labels.numel())));
  {
    const NoGrad no_grad;
    for (const auto& [name, parameter] : model_.module->NamedParameters()) {
      const bool is_adapter = name.find(".lora.") != std::string::npos;
      ASSERT_EQ(parameter.grad().defined(), is_adapter) << name;
      if (is_adapter) CopyInPlace(parameter, parameter.grad());
    }
  }
  const TemporaryFolder folder;
  lora_.Save(folder / "gradients", "");
  const checkpoint::SafetensorsFile found(fs::path(folder / "gradients") /
                                          "adapter_model.safetensors");
  const checkpoint::SafetensorsFile expected(peft_.folder() / "gradients.safetensors");
  ASSERT_EQ(found.Names(), expected.Names());
  for (const std::string& name : found.Names())
    EXPECT_LE(RelativeError(found.Load(name), expected.Load(name)), 1e-4) << name;
}

TEST_P(LoraGolden, TrainingSteps) {
  const nlohmann::json& settings = peft_.json()["optimizer"];
  const std::vector<double> betas = settings["betas"];
  NamedTensors trained;
  for (const auto& entry : model_.module->NamedParameters())
    if (entry.second.requires_grad()) trained.push_back(entry);
  optim::AdamW optimizer(optim::DecayMatricesOnly(trained, settings["weight_decay"]),
                         {betas[0], betas[1], settings["eps"]});
  const Tensor tokens = base_.Ids("training_tokens");
  const std::int64_t length = tokens.size(2) - 1;
  const std::vector<double> losses = peft_.json()["losses"];
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const Tensor batch = Select(tokens, 0, static_cast<std::int64_t>(step));
    optimizer.ZeroGrad();
    const Tensor loss =
        model_.module->Loss(Contiguous(Slice(batch, 1, 0, length)), Contiguous(Slice(batch, 1, 1)),
                            1.0 / static_cast<double>(tokens.size(1) * length));
    Backward(loss);
    optimizer.Step(settings["learning_rate"]);
    EXPECT_LE(RelativeError(loss.Item(), losses[step]), 1e-5) << step;
  }
  EXPECT_LE(RelativeError(EvaluationLoss(), peft_.json()["evaluation_loss"]), 1e-5);
}

TEST_P(LoraGolden, SavedAgainItIsTheSame) {
  const TemporaryFolder folder;
  lora_.Save(folder / "copy", "somewhere");
  const checkpoint::SafetensorsFile found(fs::path(folder / "copy") / "adapter_model.safetensors");
  const checkpoint::SafetensorsFile original(peft_.folder() / "adapter_model.safetensors");
  ASSERT_EQ(found.Names(), original.Names());
  for (const std::string& name : found.Names())
    EXPECT_EQ(BytesOf(found.Load(name)), BytesOf(original.Load(name))) << name;
  const auto config = [](const fs::path& path) {
    return nlohmann::json::parse(ReadFile((path / "adapter_config.json").string()));
  };
  const nlohmann::json ours = config(folder / "copy");
  const nlohmann::json theirs = config(peft_.folder());
  for (const auto& [name, value] : ours.items()) {
    if (name == "target_modules" || name == "base_model_name_or_path") continue;
    EXPECT_EQ(value, theirs.at(name)) << name;
  }
  EXPECT_EQ(LoraBase(folder / "copy"), "somewhere");
  EXPECT_TRUE(IsLoraFolder(folder / "copy"));

  const Model other = LoadModel(base_.folder());
  const Lora copy = Lora::Load(other, folder / "copy");
  EXPECT_EQ(copy.num_parameters(), lora_.num_parameters());
}

TEST_P(LoraGolden, MergedItComputesTheSameAndIsAModelLikeAnother) {
  const std::string before = BytesOf(Logits());
  const TemporaryFolder folder;
  EXPECT_THROW(SaveModel(model_, folder / "model"), Error);
  lora_.Merge(true);
  EXPECT_LE(RelativeError(Logits(), peft_.Get("logits")), 1e-5);
  SaveModel(model_, folder / "model");
  {
    const NoGrad no_grad;
    const Model merged = LoadModel(folder / "model");
    EXPECT_LE(RelativeError((*merged.module)(base_.Ids("input_ids")), peft_.Get("logits")), 1e-5);
  }
  lora_.Unmerge();
  EXPECT_EQ(BytesOf(Logits()), before);
  SCOPED_TRACE("the weights of the base");
  const NamedTensors base = LoadModel(base_.folder()).module->NamedParameters();
  std::size_t i = 0;
  for (const auto& [name, parameter] : model_.module->NamedParameters()) {
    if (name.find(".lora.") != std::string::npos) continue;
    ASSERT_EQ(name, base[i].first);
    EXPECT_EQ(BytesOf(parameter), BytesOf(base[i++].second)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LoraGolden,
                         ::testing::Values("gpt2", "llama", "qwen3", "mixtral"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace infini_train::models
