#include "infini_train/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/core/error.h"
#include "infini_train/nn/layers.h"
#include "tests/core/child_process.h"

namespace infini_train::nn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors)
    names.push_back(name);
  return names;
}

/// y = x * scale + offset.
class Affine : public Module {
 public:
  Affine(float scale, float offset) {
    scale_ = RegisterParameter("scale", Tensor::FromVector<float>({scale}, {1}));
    offset_ = RegisterBuffer("offset", Tensor::FromVector<float>({offset}, {1}));
    RegisterBuffer("scratch", Zeros({2}), /*persistent=*/false);
  }

  using Module::RegisterBuffer;
  using Module::RegisterModule;
  using Module::RegisterParameter;
  const Tensor& scale() const { return scale_; }

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext&) override { return x * scale_ + offset_; }

 private:
  Tensor scale_;
  Tensor offset_;
};

/// Two Affines, the second with a parameter that is tied to the first's.
class Pair : public Module {
 public:
  Pair() {
    first = RegisterModule("first", std::make_shared<Affine>(2.0f, 1.0f));
    second = RegisterModule("second", std::make_shared<Affine>(3.0f, 0.5f));
    second->RegisterParameter("tied", first->scale());
    own = RegisterParameter("own", Ones({2, 2}));
  }

  std::shared_ptr<Affine> first;
  std::shared_ptr<Affine> second;
  Tensor own;

 protected:
  Tensor Forward(const Tensor& x, const ForwardContext& context) override {
    return (*second)((*first)(x, context), context);
  }
};

Tensor Input() {
  return Tensor::FromVector<float>({1.0f}, {1});
}

TEST(Module, NamesAreDottedPathsInOrderOfRegistration) {
  Pair pair;
  EXPECT_THAT(Names(pair.NamedParameters()), ElementsAre("own", "first.scale", "second.scale"));
  EXPECT_THAT(Names(pair.NamedParameters(/*with_ties=*/true)),
              ElementsAre("own", "first.scale", "second.scale", "second.tied"));
  EXPECT_EQ(pair.Parameters().size(), 3u);
  EXPECT_THAT(Names(pair.NamedBuffers()),
              ElementsAre("first.offset", "first.scratch", "second.offset", "second.scratch"));
  EXPECT_THAT(Names(pair.StateDict()),
              ElementsAre("own", "first.scale", "second.scale", "first.offset", "second.offset"));
  std::vector<std::string> modules;
  for (const auto& [name, module] : pair.NamedModules())
    modules.push_back(name);
  EXPECT_THAT(modules, ElementsAre("", "first", "second"));
  EXPECT_EQ(pair.children().size(), 2u);
  for (const Tensor& parameter : pair.Parameters())
    EXPECT_TRUE(parameter.requires_grad());
  for (const auto& [name, buffer] : pair.NamedBuffers())
    EXPECT_FALSE(buffer.requires_grad()) << name;
}

TEST(Module, ANameIsTakenOnce) {
  Affine affine(1.0f, 0.0f);
  EXPECT_ERROR(affine.RegisterParameter("scale", Ones({1})), "scale is registered twice");
  EXPECT_ERROR(affine.RegisterBuffer("scale", Ones({1})), "scale is registered twice");
  EXPECT_ERROR(affine.RegisterModule("offset", std::make_shared<Affine>(1.0f, 0.0f)),
               "offset is registered twice");
}

TEST(Module, LoadStateDictCopiesByNameAndConverts) {
  Pair pair;
  const Tensor scale = pair.first->scale();
  pair.LoadStateDict({{"second.offset", Full({1}, 5)},
                      {"first.offset", Full({1}, 6)},
                      {"own", Full({2, 2}, 7, DataType::kFloat64)},
                      {"second.scale", Full({1}, 8, DataType::kBFloat16)},
                      {"first.scale", Full({1}, 9)}});
  EXPECT_EQ(scale.Item(), 9.0) << "the parameter itself is written, not replaced";
  EXPECT_EQ(pair.own.dtype(), DataType::kFloat32);
  EXPECT_THAT(pair.own.ToVector<float>(), ::testing::Each(7.0f));
  EXPECT_EQ(pair.second->scale().Item(), 8.0);
  EXPECT_EQ(pair.StateDict()[4].second.Item(), 5.0);
}

TEST(Module, LoadStateDictListsEveryFaultAndWritesNothing) {
  Pair pair;
  const NamedTensors wrong = {{"own", Ones({4})},
                              {"first.scale", Full({1}, 9)},
                              {"first.offset", Ones({1, 1})},
                              {"second.bias", Ones({1})},
                              {"third.scale", Ones({1})}};
  EXPECT_THAT([&] { pair.LoadStateDict(wrong); },
              ::testing::ThrowsMessage<Error>(
                  AllOf(HasSubstr("missing: second.scale, second.offset"),
                        HasSubstr("unexpected: second.bias, third.scale"),
                        HasSubstr("own (expected [2, 2], found [4])"),
                        HasSubstr("first.offset (expected [1], found [1, 1])"))));
  EXPECT_EQ(pair.first->scale().Item(), 2.0);
}

TEST(Module, TrainAndEvaluationModeReachTheWholeTree) {
  Pair pair;
  EXPECT_TRUE(pair.training());
  pair.Train(false);
  for (const auto& [name, module] : pair.NamedModules())
    EXPECT_FALSE(module->training()) << name;
  pair.Train();
  for (const auto& [name, module] : pair.NamedModules())
    EXPECT_TRUE(module->training()) << name;
}

TEST(Module, ZeroGradDropsEveryGradient) {
  Pair pair;
  Backward(Sum(pair(Input())));
  EXPECT_TRUE(pair.first->scale().grad().defined());
  pair.ZeroGrad();
  for (const Tensor& parameter : pair.Parameters())
    EXPECT_FALSE(parameter.grad().defined());
}

TEST(ModuleHooks, RunInOrderAndMayReplaceInputAndOutput) {
  Affine affine(2.0f, 1.0f);
  std::vector<std::string> calls;
  affine.RegisterForwardPreHook([&](Module&, const Tensor& input) {
    calls.push_back("pre 1");
    EXPECT_EQ(input.Item(), 1.0);
    return input * 10;
  });
  affine.RegisterForwardPreHook([&](Module& module, const Tensor& input) {
    calls.push_back("pre 2");
    EXPECT_EQ(&module, &affine);
    EXPECT_EQ(input.Item(), 10.0) << "what the hook before it returned";
    return Tensor();
  });
  affine.RegisterForwardHook([&](Module&, const Tensor& input, const Tensor& output) {
    calls.push_back("post 1");
    EXPECT_EQ(input.Item(), 10.0);
    EXPECT_EQ(output.Item(), 21.0);
    return output + 1;
  });
  affine.RegisterForwardHook([&](Module&, const Tensor&, const Tensor& output) {
    calls.push_back("post 2");
    EXPECT_EQ(output.Item(), 22.0);
    return Tensor();
  });
  EXPECT_EQ(affine(Input()).Item(), 22.0);
  EXPECT_THAT(calls, ElementsAre("pre 1", "pre 2", "post 1", "post 2"));
}

TEST(ModuleHooks, RunOnModulesInsideAndAreRemovedByNumber) {
  Pair pair;
  int calls = 0;
  const int pre = pair.second->RegisterForwardPreHook([&](Module&, const Tensor&) {
    ++calls;
    return Tensor();
  });
  const int post = pair.second->RegisterForwardHook([&](Module&, const Tensor&, const Tensor&) {
    ++calls;
    return Zeros({1});
  });
  EXPECT_NE(pre, post);
  EXPECT_EQ(pair(Input()).Item(), 0.0);
  EXPECT_EQ(calls, 2);
  pair.second->RemoveHook(post);
  EXPECT_EQ(pair(Input()).Item(), (1 * 2 + 1) * 3 + 0.5);
  EXPECT_EQ(calls, 3);
  pair.second->RemoveHook(pre);
  pair.second->RemoveHook(pre);  // not there: nothing happens
  pair(Input());
  EXPECT_EQ(calls, 3);
}

TEST(ModuleHooks, MayRemoveThemselves) {
  Affine affine(2.0f, 1.0f);
  int calls = 0;
  int pre = 0;
  int post = 0;
  pre = affine.RegisterForwardPreHook([&](Module& module, const Tensor&) {
    ++calls;
    module.RemoveHook(pre);
    return Tensor();
  });
  post = affine.RegisterForwardHook([&](Module& module, const Tensor&, const Tensor&) {
    ++calls;
    module.RemoveHook(post);
    return Tensor();
  });
  affine(Input());
  affine(Input());
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace infini_train::nn
