#include "infini_train/autograd/selective_recompute.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/autograd/low_rank.h"
#include "infini_train/autograd/node.h"
#include "infini_train/core/error.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectSameBits;

constexpr std::int64_t kRows = 6, kIn = 8, kOut = 10, kRank = 2, kExperts = 3;

/// What a block makes of its stream with these parameters.
struct Layer {
  std::string name;
  std::vector<Dims> parameters;
  std::int64_t weights;     ///< how many of them, the first, are weights of products
  std::int64_t made_again;  ///< elements that are not kept, besides copies of weights
  /// Of what a norm gave and parameters.
  std::function<Tensor(const Tensor&, const std::vector<Tensor>&)> function;
};

Tensor AddAdapter(const Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b) {
  const LowRankTerm term{a, b, 0};
  return AddLowRank(y, x, std::span(&term, 1), 0.5);
}

/// Two of the experts for each token, and what they make of it.
Tensor MixExperts(const Tensor& x, const Tensor& fc, const Tensor& proj) {
  std::vector<std::int64_t> choices;
  for (std::int64_t i = 0; i < kRows; ++i)
    choices.insert(choices.end(), {i % kExperts, (i + 1) % kExperts});
  const auto [rows, counts] =
      SortByExpert(To(Tensor::FromVector(choices, {kRows, 2}), x.device()), kExperts);
  const Tensor hidden = SwiGlu(GroupedLinear(ExpertPermute(x, rows), fc, counts));
  return ExpertUnpermute(GroupedLinear(hidden, proj, counts), rows,
                         Ones({kRows, 2}, DataType::kFloat32, x.device()));
}

const std::vector<Layer>& Layers() {
  constexpr std::int64_t kNorm = kRows * kIn;
  using Parameters = std::vector<Tensor>;
  static const std::vector<Layer> layers = {
      {"Linear",
       {{kOut, kIn}, {kOut}},
       1,
       kNorm,
       [](const Tensor& x, const Parameters& p) { return Linear(x, p[0], p[1]); }},
      {"GeluMlp",
       {{kOut, kIn}, {kIn, kOut}, {kOut}, {kIn}},
       2,
       kNorm,
       [](const Tensor& x, const Parameters& p) { return GeluMlp(x, p[0], p[2], p[1], p[3]); }},
      {"SwiGluMlp",
       {{2 * kOut, kIn}, {kIn, kOut}},
       2,
       kNorm,
       [](const Tensor& x, const Parameters& p) { return SwiGluMlp(x, p[0], {}, p[1], {}); }},
      // An MLP with adapters, which is not one function.
      {"Gelu and adapters",
       {{kOut, kIn}, {kIn, kOut}, {kRank, kIn}, {kOut, kRank}, {kRank, kOut}, {kIn, kRank}},
       2,
       kNorm + kRows * kOut,
       [](const Tensor& x, const Parameters& p) {
         const Tensor hidden = Gelu(AddAdapter(Linear(x, p[0]), x, p[2], p[3]));
         return AddAdapter(Linear(hidden, p[1]), hidden, p[4], p[5]);
       }},
      {"SwiGlu and adapters",
       {{2 * kOut, kIn}, {kIn, kOut}, {kRank, kIn}, {2 * kOut, kRank}, {kRank, kOut}, {kIn, kRank}},
       2,
       kNorm + kRows * kOut,
       [](const Tensor& x, const Parameters& p) {
         const Tensor hidden = SwiGlu(AddAdapter(Linear(x, p[0]), x, p[2], p[3]));
         return AddAdapter(Linear(hidden, p[1]), hidden, p[4], p[5]);
       }},
      {"dropout",
       {{kOut, kIn}},
       1,
       kNorm,
       [](const Tensor& x, const Parameters& p) {
         Generator generator(7);
         return Linear(Dropout(x, 0.5, true, &generator), p[0]);
       }},
      // As routers take their input; float64 is beyond autocast.
      {"shape and type",
       {{kOut, kIn}},
       0,
       kNorm,
       [](const Tensor& x, const Parameters& p) {
         const Tensor tokens = To(Reshape(x, {2, kRows / 2, kIn}), DataType::kFloat64);
         return Reshape(To(Linear(tokens, To(p[0], DataType::kFloat64)), DataType::kFloat32),
                        {kRows, kOut});
       }},
      {"experts",
       {{kExperts, 2 * kOut, kIn}, {kExperts, kIn, kOut}},
       2,
       2 * kRows * (kIn + kOut),
       [](const Tensor& x, const Parameters& p) { return MixExperts(x, p[0], p[1]); }}};
  return layers;
}

class SelectiveRecomputeTest : public DeviceTest {
 protected:
  struct Run {
    std::vector<Tensor> results;     ///< output, then gradients
    std::int64_t kept_elements = 0;  ///< of different tensors that are not parameters
  };

  /// One pass through a norm of x + residual and a layer, in bfloat16 where `autocasts`.
  static Run RunLayer(const Layer& layer, bool rms, bool selective, bool autocasts) {
    Generator generator(3);
    const auto random = [&](const Dims& shape, bool trained) {
      Tensor tensor = Normal(shape, 0, 1, DataType::kFloat32, device(), &generator);
      tensor.set_requires_grad(trained);
      return tensor;
    };
    const Tensor x = random({kRows, kIn}, true), residual = random({kRows, kIn}, true);
    const Tensor norm = random({kIn}, true);
    std::vector<Tensor> parameters;
    for (const Dims& shape : layer.parameters)
      parameters.push_back(random(shape, true));
    const Tensor grad = random({kRows, kIn}, false);
    std::map<const void*, std::int64_t> kept;
    Run run;
    {
      // Holds what it is given, so that no memory is seen twice under one address.
      const autograd::SavedTensorHooks hooks(
          [&](const Tensor& tensor) -> std::shared_ptr<void> {
            kept[tensor.raw_data()] = tensor.numel();
            return std::make_shared<Tensor>(tensor);
          },
          [](const std::shared_ptr<void>& packed) { return *static_cast<Tensor*>(packed.get()); });
      const SelectiveRecompute recompute(selective);
      const Autocast autocast(autocasts ? std::optional(DataType::kBFloat16) : std::nullopt);
      const DataType dtype = autocasts ? DataType::kBFloat16 : DataType::kFloat32;
      const auto [sum, normalized] =
          rms ? AddRmsNorm(To(x, dtype), To(residual, dtype), norm)
              : AddLayerNorm(To(x, dtype), To(residual, dtype), norm, {});
      const Tensor out = layer.function(normalized, parameters);
      run.results.push_back(out.Detach());
      const std::int64_t columns = out.size(1);
      Backward(Sum(To(out, DataType::kFloat32) * Slice(Concat({grad, grad}, 1), 1, 0, columns)) +
               Sum(To(sum, DataType::kFloat32) * grad));
    }
    for (const Tensor& parameter : parameters)
      kept.erase(parameter.raw_data());
    for (const auto& [memory, elements] : kept)
      run.kept_elements += elements;
    run.results.insert(run.results.end(), {x.grad(), residual.grad(), norm.grad()});
    for (const Tensor& parameter : parameters)
      run.results.push_back(parameter.grad());
    return run;
  }
};

TEST_P(SelectiveRecomputeTest, KeepsLessAndGivesTheSameBits) {
  for (const Layer& layer : Layers()) {
    for (const bool rms : {false, true}) {
      for (const bool autocasts : {false, true}) {
        SCOPED_TRACE(layer.name + (rms ? " RmsNorm" : " LayerNorm") + (autocasts ? " bf16" : ""));
        const Run kept = RunLayer(layer, rms, false, autocasts);
        const Run again = RunLayer(layer, rms, true, autocasts);
        ASSERT_EQ(kept.results.size(), again.results.size());
        for (std::size_t i = 0; i < kept.results.size(); ++i) {
          SCOPED_TRACE(i);
          ExpectSameBits(again.results[i], kept.results[i]);
        }
        std::int64_t less = layer.made_again;
        for (std::int64_t i = 0; autocasts && i < layer.weights; ++i)
          less += Numel(layer.parameters[static_cast<std::size_t>(i)]);
        EXPECT_EQ(kept.kept_elements - again.kept_elements, less);
      }
    }
  }
}

TEST_P(SelectiveRecomputeTest, IsForAScope) {
  EXPECT_FALSE(SelectiveRecompute::Enabled());
  {
    const SelectiveRecompute outer;
    EXPECT_TRUE(SelectiveRecompute::Enabled());
    {
      const SelectiveRecompute inner(false);
      EXPECT_FALSE(SelectiveRecompute::Enabled());
    }
    EXPECT_TRUE(SelectiveRecompute::Enabled());
  }
  EXPECT_FALSE(SelectiveRecompute::Enabled());
}

// A layer that gets something else than the norm's result keeps that.
TEST_P(SelectiveRecomputeTest, ResultsThatWereWrittenAreKept) {
  const SelectiveRecompute recompute;
  Tensor x = Normal({kRows, kIn}, 0, 1, DataType::kFloat32, device());
  x.set_requires_grad(true);
  Tensor weight = Normal({kOut, kIn}, 0, 1, DataType::kFloat32, device());
  weight.set_requires_grad(true);
  const Tensor normalized = RmsNorm(x, {});
  MulInPlace(normalized, Scalar(2));
  const Tensor expected = Sum(Linear(normalized.Detach(), weight));
  Backward(expected);
  const Tensor wanted = Clone(weight.grad());
  weight.set_grad({});
  Backward(Sum(Linear(normalized, weight)));
  ExpectSameBits(weight.grad(), wanted);
}

// What is made again comes from a sum that must not have changed.
TEST_P(SelectiveRecomputeTest, ChangedInputsAreErrors) {
  const SelectiveRecompute recompute;
  const Tensor leaf = Normal({kRows, kIn}, 0, 1, DataType::kFloat32, device());
  Tensor weight = Normal({kOut, kIn}, 0, 1, DataType::kFloat32, device());
  weight.set_requires_grad(true);
  Tensor scale = Ones({kIn}, DataType::kFloat32, device());
  scale.set_requires_grad(true);
  const Tensor out = Linear(RmsNorm(leaf, scale), weight);
  FillInPlace(leaf, 1);
  EXPECT_THROW(Backward(Sum(out)), Error);
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(SelectiveRecomputeTest);

}  // namespace
}  // namespace infini_train
