// What PyTorch and Transformers compute, for every model that has golden files, on every device.

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/models/model.h"
#include "infini_train/nn/router_statistics.h"
#include "infini_train/optim/optimizer.h"
#include "infini_train/trainer/sampler.h"
#include "tests/common/device_test.h"
#include "tests/common/temporary_folder.h"
#include "tests/models/golden.h"

namespace infini_train::models {
namespace {

namespace fs = std::filesystem;

using infini_train::test::Golden;
using infini_train::test::RelativeError;
using infini_train::test::TemporaryFolder;

class ModelGolden : public DeviceTestWith<std::string> {
 protected:
  Golden golden_{value()};
  Model model_ = LoadModel(golden_.folder(), {.device = device(), .dtype = DataType::kFloat32});

  /// Token ids of the golden file, on the device.
  Tensor Ids(const std::string& name) const { return To(golden_.Ids(name), device()); }

  bool HasExperts() const { return model_.config.transformer.num_local_experts > 0; }

  /// Mean loss of a batch, with gradients left at the parameters.
  double LossAndGradients(const Tensor& ids, const Tensor& labels, double scale) {
    const Tensor loss = model_.module->Loss(ids, labels, scale);
    Backward(loss);
    return loss.Item();
  }
  double EvaluationLoss() {
    const NoGrad no_grad;
    const Tensor labels = Ids("labels");
    return model_.module->Loss(Ids("input_ids"), labels, 1.0 / static_cast<double>(labels.numel()))
        .Item();
  }
  double GradientNorm() const {
    return optim::ComputeGradientNorm(model_.module->Parameters(), 0.0).norm.Item();
  }

  struct Training {
    std::vector<double> losses;
    std::vector<double> grad_norms;
    double evaluation_loss = 0.0;
  };
  Training Train(std::optional<DataType> autocast_type);
};

ModelGolden::Training ModelGolden::Train(std::optional<DataType> autocast_type) {
  const nlohmann::json& settings = golden_.json()["optimizer"];
  const std::vector<double> betas = settings["betas"];
  optim::AdamW optimizer(
      optim::DecayMatricesOnly(model_.module->NamedParameters(), settings["weight_decay"]),
      {betas[0], betas[1], settings["eps"]});
  const Tensor tokens = Ids("training_tokens");
  const std::int64_t length = tokens.size(2) - 1;
  const double scale = 1.0 / static_cast<double>(tokens.size(1) * length);
  Training result;
  for (std::int64_t step = 0; step < tokens.size(0); ++step) {
    const Tensor batch = Select(tokens, 0, step);
    optimizer.ZeroGrad();
    Tensor loss;
    {
      const Autocast autocast(autocast_type);
      loss = model_.module->Loss(Contiguous(Slice(batch, 1, 0, length)),
                                 Contiguous(Slice(batch, 1, 1)), scale);
    }
    Backward(loss);
    const optim::GradientNorm norm =
        optim::ComputeGradientNorm(optimizer.Parameters(), settings["max_grad_norm"]);
    optimizer.Step(settings["learning_rates"][static_cast<std::size_t>(step)], norm.factor);
    result.losses.push_back(loss.Item());
    result.grad_norms.push_back(norm.norm.Item());
  }
  const Autocast autocast(autocast_type);
  result.evaluation_loss = EvaluationLoss();
  return result;
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE_WITH(
    ModelGolden,
    ::testing::Values("gpt2", "llama", "llama_biases", "llama_one_key_head", "qwen3",
                      "qwen3_windows", "mixtral", "mixtral_top_1", "mixtral_8_experts",
                      "mixtral_8_top_1"),
    [](const auto& test) { return std::get<1>(test.param); });

TEST_P(ModelGolden, Logits) {
  const NoGrad no_grad;
  const Tensor logits = (*model_.module)(Ids("input_ids"));
  EXPECT_EQ(logits.dtype(), DataType::kFloat32);
  EXPECT_EQ(logits.shape(), golden_.Get("logits").shape());
  EXPECT_LE(RelativeError(logits, golden_.Get("logits")), 1e-5);
  EXPECT_LE(RelativeError(EvaluationLoss(), golden_.json()["loss"]), 1e-5);
}

TEST_P(ModelGolden, EveryGradient) {
  const Tensor labels = Ids("labels");
  const double loss =
      LossAndGradients(Ids("input_ids"), labels, 1.0 / static_cast<double>(labels.numel()));
  EXPECT_LE(RelativeError(loss, golden_.json()["loss"]), 1e-5);
  EXPECT_LE(RelativeError(GradientNorm(), golden_.json()["grad_norm"]), 1e-5);

  // The gradients are stored as a checkpoint would be.
  const TemporaryFolder folder;
  fs::copy_file(golden_.folder() / "config.json", folder / "config.json");
  fs::copy_file(golden_.folder() / "gradients.safetensors", folder / "model.safetensors");
  const Model gradients = LoadModel(folder.path());
  const NamedTensors expected = gradients.module->NamedParameters();
  const NamedTensors parameters = model_.module->NamedParameters();
  ASSERT_EQ(parameters.size(), expected.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    ASSERT_EQ(name, expected[i].first);
    ASSERT_TRUE(parameter.grad().defined()) << name;
    EXPECT_LE(RelativeError(parameter.grad(), expected[i].second), 1e-4) << name;
  }
}

TEST_P(ModelGolden, OneMeanOverAllLabelsHoweverTheBatchIsSplit) {
  const Tensor ids = Ids("masked_input_ids");
  const Tensor labels = Ids("masked_labels");
  constexpr double kScale = 1.0 / 16.0;
  double expected = golden_.json()["masked"]["loss"];
  for (const std::int64_t rows : {4, 2, 1}) {
    const bool is_split = rows < 4;
    if (HasExperts() && is_split && model_.module->training()) {
      // The load-balancing loss of a batch is not the sum of its parts'.
      model_.module->Train(false);
      expected -= golden_.json()["masked"]["auxiliary_loss"].get<double>();
    }
    model_.module->ZeroGrad();
    double loss = 0.0;
    for (std::int64_t row = 0; row < ids.size(0); row += rows) {
      loss += LossAndGradients(Contiguous(Slice(ids, 0, row, row + rows)),
                               Contiguous(Slice(labels, 0, row, row + rows)), kScale);
    }
    EXPECT_LE(RelativeError(loss, expected), 1e-5) << rows;
    if (HasExperts() && is_split) continue;
    EXPECT_LE(RelativeError(GradientNorm(), golden_.json()["masked"]["grad_norm"]), 1e-5) << rows;
  }
}

TEST_P(ModelGolden, RoutersChooseTheSameExperts) {
  if (!HasExperts()) return;
  std::vector<Tensor> logits;
  for (const auto& [name, module] : model_.module->NamedModules()) {
    if (!name.ends_with(".mlp.router")) continue;
    module->RegisterForwardHook([&](nn::Module&, const Tensor&, const Tensor& output) {
      logits.push_back(output);
      return Tensor();
    });
  }
  const NoGrad no_grad;
  (*model_.module)(Ids("input_ids"));
  const Tensor expected = golden_.Get("router_experts");
  ASSERT_EQ(static_cast<std::int64_t>(logits.size()), expected.size(0));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Tensor experts = TopK(Softmax(logits[i], -1), expected.size(2)).second;
    EXPECT_EQ(
        To(experts, DataType::kInt32).ToVector<std::int32_t>(),
        Contiguous(Select(expected, 0, static_cast<std::int64_t>(i))).ToVector<std::int32_t>());
  }
}

TEST_P(ModelGolden, LoadBalancingLossWithAndWithoutPadding) {
  if (!HasExperts()) return;
  const NoGrad no_grad;
  const Tensor ids = Ids("input_ids");
  const auto loss = [&](const Tensor& token_mask) {
    nn::RouterStatistics routers;
    nn::ForwardContext context;
    context.routers = &routers;
    context.token_mask = token_mask;
    model_.module->HiddenStates(ids, context);
    return routers.LoadBalancingLoss().Item();
  };
  const double coefficient = model_.config.transformer.router_aux_loss_coef;
  EXPECT_LE(RelativeError(coefficient * loss({}), golden_.json()["auxiliary_loss"]), 1e-6);
  const nlohmann::json& padded = golden_.json()["padded"];
  const std::vector<std::int64_t> lengths = padded["lengths"];
  const Tensor ends = Tensor::FromVector(lengths, {static_cast<std::int64_t>(lengths.size()), 1});
  const Tensor mask = Lt(Arange(0, ids.size(1)), ends);
  EXPECT_LE(RelativeError(loss(To(mask, device())), padded["load_balancing_loss"]), 1e-6);
}

TEST_P(ModelGolden, TwentyTrainingSteps) {
  const Training found = Train(std::nullopt);
  const nlohmann::json& expected = golden_.json()["training"];
  ASSERT_EQ(found.losses.size(), expected["losses"].size());
  for (std::size_t i = 0; i < found.losses.size(); ++i) {
    EXPECT_LE(RelativeError(found.losses[i], expected["losses"][i]), 1e-5) << "step " << i;
    EXPECT_LE(RelativeError(found.grad_norms[i], expected["grad_norms"][i]), 1e-4) << "step " << i;
  }
  EXPECT_LE(RelativeError(found.evaluation_loss, expected["evaluation_loss"]), 1e-5);
}

TEST_P(ModelGolden, TwentyTrainingStepsUnderBFloat16Autocast) {
  const Training found = Train(DataType::kBFloat16);
  const nlohmann::json& expected = golden_.json()["training_bfloat16"];
  const nlohmann::json& in_float32 = golden_.json()["training"];
  ASSERT_EQ(found.losses.size(), expected["losses"].size());
  double away_from_float32 = 0.0;
  for (std::size_t i = 0; i < found.losses.size(); ++i) {
    EXPECT_LE(RelativeError(found.losses[i], expected["losses"][i]), 1e-2) << "step " << i;
    away_from_float32 =
        std::max(away_from_float32, RelativeError(found.losses[i], in_float32["losses"][i]));
  }
  EXPECT_LE(RelativeError(found.evaluation_loss, expected["evaluation_loss"]), 1e-2);
  // Float32 comes ten times closer to the float32 run than bfloat16 can.
  EXPECT_GT(away_from_float32, 3e-5) << "autocast did nothing";
  for (const auto& [name, parameter] : model_.module->NamedParameters()) {
    EXPECT_EQ(parameter.dtype(), DataType::kFloat32) << name;
    EXPECT_EQ(parameter.grad().dtype(), DataType::kFloat32) << name;
  }
}

TEST_P(ModelGolden, LogitsAreBFloat16UnderAutocast) {
  const NoGrad no_grad;
  const Autocast autocast(DataType::kBFloat16);
  const Tensor logits = (*model_.module)(Ids("input_ids"));
  EXPECT_EQ(logits.dtype(), DataType::kBFloat16);
  if (HasExperts()) {
    // A router that sees rounded numbers may send a token to another expert.
    const Tensor expected = To(golden_.Get("logits"), device());
    const Tensor away = Mean(Abs(To(logits, DataType::kFloat32) - expected));
    EXPECT_LE(away.Item(), 1e-2 * Max(Abs(expected)).Item());
  } else {
    EXPECT_LE(RelativeError(logits, golden_.Get("logits")), 5e-2);
  }
}

TEST_P(ModelGolden, GreedyGenerationWithACache) {
  const std::vector<std::int64_t> expected = golden_.json()["generated"]["ids"];
  const std::vector<std::int64_t> prompt = golden_.Ids("prompt").ToVector<std::int64_t>();
  trainer::SamplingOptions options;
  options.temperature = 0.0;
  Generator generator;
  std::vector<std::int64_t> found;
  trainer::Generate(model_, prompt, -1, static_cast<std::int64_t>(expected.size()), {}, options,
                    generator, [&](std::int64_t token) {
                      found.push_back(token);
                      return true;
                    });
  EXPECT_EQ(found, expected);

  // In a batch with shorter and longer prompts, too, two texts at a time.
  std::vector<std::int64_t> longer = prompt;
  longer.insert(longer.end(), expected.begin(), expected.begin() + 1);
  const trainer::Prompt prompts[] = {{{prompt.begin(), prompt.begin() + 1}, &generator},
                                     {longer, &generator},
                                     {prompt, &generator}};
  found.clear();
  trainer::Generate(model_, prompts, -1, static_cast<std::int64_t>(expected.size()), {}, options, 2,
                    [&](std::size_t i, std::int64_t token) {
                      if (i == 2) found.push_back(token);
                      return true;
                    });
  EXPECT_EQ(found, expected);

  // The same without a cache, and the logits that each token was chosen from.
  std::vector<std::int64_t> tokens = prompt;
  tokens.insert(tokens.end(), expected.begin(), expected.end() - 1);
  const NoGrad no_grad;
  const auto count = static_cast<std::int64_t>(tokens.size());
  const Tensor logits = (*model_.module)(To(Tensor::FromVector(tokens, {1, count}), device()));
  const auto first = static_cast<std::int64_t>(prompt.size()) - 1;
  EXPECT_LE(RelativeError(Slice(Select(logits, 0, 0), 0, first), golden_.Get("generated_logits")),
            1e-5);
}

}  // namespace
}  // namespace infini_train::models
