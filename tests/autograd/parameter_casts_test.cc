#include "infini_train/autograd/parameter_casts.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectSameBits;
using test::MakeTensor;
using test::RandomValues;

class ParameterCastsTest : public DeviceTest {
 protected:
  static Tensor Parameter(DataType dtype, const Dims& shape, std::uint64_t seed) {
    return MakeTensor(device(), dtype, shape, RandomValues(Numel(shape), -1, 1, seed))
        .set_requires_grad();
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(ParameterCastsTest);

TEST_P(ParameterCastsTest, FindsCopiesOfFloat32ParametersInTheScope) {
  const Tensor weight = Parameter(DataType::kFloat32, {5, 7}, 1);
  const Tensor bias = Parameter(DataType::kFloat32, {5}, 2);
  const Tensor half = Parameter(DataType::kBFloat16, {5}, 3);
  const Tensor other = Parameter(DataType::kFloat32, {5}, 4);
  const Autocast autocast(DataType::kBFloat16);
  {
    const std::vector<Tensor> parameters = {weight, half, bias, weight};
    const ParameterCasts casts(parameters);
    for (const Tensor& x : {weight, bias}) {
      const Tensor copy = ParameterCasts::Find(x, DataType::kBFloat16);
      ASSERT_TRUE(copy.defined());
      EXPECT_FALSE(copy.requires_grad());
      ExpectSameBits(copy, To(x, DataType::kBFloat16).Detach());
      EXPECT_FALSE(ParameterCasts::Find(x, DataType::kFloat16).defined());
    }
    EXPECT_FALSE(ParameterCasts::Find(half, DataType::kBFloat16).defined());
    EXPECT_FALSE(ParameterCasts::Find(other, DataType::kBFloat16).defined());
    // Another shape of the same memory.
    EXPECT_FALSE(ParameterCasts::Find(Transpose(weight, 0, 1), DataType::kBFloat16).defined());
    EXPECT_FALSE(ParameterCasts::Find(Slice(weight, 0, 0, 2), DataType::kBFloat16).defined());
    {
      const ParameterCasts inner(TensorList{});
      EXPECT_FALSE(ParameterCasts::Find(weight, DataType::kBFloat16).defined());
    }
    {
      const NoGrad no_grad;
      Tensor written = weight;
      FillInPlace(written, 0.5);
    }
    EXPECT_FALSE(ParameterCasts::Find(weight, DataType::kBFloat16).defined());
    EXPECT_TRUE(ParameterCasts::Find(bias, DataType::kBFloat16).defined());
  }
  EXPECT_FALSE(ParameterCasts::Find(bias, DataType::kBFloat16).defined());
}

TEST_P(ParameterCastsTest, AreOfNothingWithoutAutocast) {
  const std::vector<Tensor> parameters = {Parameter(DataType::kFloat32, {5}, 1)};
  const ParameterCasts casts(parameters);
  EXPECT_FALSE(ParameterCasts::Find(parameters[0], DataType::kBFloat16).defined());
}

TEST_P(ParameterCastsTest, ChangeNoResult) {
  const auto run = [](bool together) {
    const Tensor table = Parameter(DataType::kFloat32, {9, 8}, 1);
    const std::vector<Tensor> parameters = {table,
                                            Parameter(DataType::kFloat32, {16, 8}, 2),
                                            Parameter(DataType::kFloat32, {16}, 3),
                                            Parameter(DataType::kFloat32, {8, 16}, 4),
                                            Parameter(DataType::kFloat32, {8}, 5),
                                            Parameter(DataType::kFloat32, {8, 8}, 6)};
    const Autocast autocast(DataType::kBFloat16);
    std::optional<ParameterCasts> casts;
    if (together) casts.emplace(parameters);
    const Tensor ids = MakeTensor(device(), DataType::kInt64, {5}, {3, 0, 8, 3, 1});
    Tensor x = Embedding(table, ids);
    EXPECT_EQ(x.dtype(), DataType::kBFloat16);
    x = GeluMlp(x, parameters[1], parameters[2], parameters[3], parameters[4]);
    x = Linear(x, parameters[5], parameters[4]);
    const Tensor loss = LinearCrossEntropy(x, table, ids, 0.2);
    casts.reset();
    Backward(loss);
    std::vector<Tensor> results = {loss.Detach()};
    for (const Tensor& parameter : parameters) {
      EXPECT_EQ(parameter.grad().dtype(), DataType::kFloat32);
      results.push_back(parameter.grad());
    }
    return results;
  };
  const std::vector<Tensor> apart = run(false), together = run(true);
  for (std::size_t i = 0; i < apart.size(); ++i)
    ExpectSameBits(together[i], apart[i]);
}

}  // namespace
}  // namespace infini_train
