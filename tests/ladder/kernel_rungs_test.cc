// Rungs 5 to 9 of docs/writing-a-backend.md: kernels, up to a step of GPT-2. A rung whose op has no
// kernel of the device's own must give the right result by falling back to the CPU, and says so by
// being skipped; a porter climbs by registering the kernel.

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <vector>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/models/model.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/optim/optimizer.h"
#include "infini_train/trainer/step/accumulate.h"
#include "tests/common/device_test.h"
#include "tests/trainer/tiny_run.h"

namespace infini_train::test {
namespace {

/// Odd, so that no vector or block divides it.
constexpr std::int64_t kRows = 37;
constexpr std::int64_t kColumns = 65;

class KernelRung : public DeviceTest {
 protected:
  static Tensor Random(const Dims& shape, std::uint64_t seed) {
    return MakeTensor(device(), DataType::kFloat32, shape, RandomValues(Numel(shape), -1, 1, seed));
  }
};

/// The last statement of a rung.
#define INFINI_TRAIN_EXPECT_NATIVE(Op)                                    \
  if (!HasFailure() && !HasKernel(device().type(), OpId::k##Op)) {        \
    GTEST_SKIP() << #Op " falls back to the CPU: " << device().ToString() \
                 << " has no kernel of its own";                          \
  }

class Rung05Fill : public KernelRung {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Rung05Fill);

TEST_P(Rung05Fill, EveryElementAndNothingElseIsSet) {
  for (const Layout layout : kWritableLayouts) {
    Tensor out = MakeOutput(device(), DataType::kFloat32, {kRows, kColumns}, layout);
    Call<op::Fill>(out, Scalar(1.5));
    ExpectEqual(out, std::vector<double>(kRows * kColumns, 1.5));
    ExpectGapsUntouched(out);
  }
  INFINI_TRAIN_EXPECT_NATIVE(Fill);
}

class Rung06Add : public KernelRung {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Rung06Add);

TEST_P(Rung06Add, SumsAreRoundedOnce) {
  const Tensor a = Random({kRows, kColumns}, 1);
  const Tensor row = Random({kColumns}, 2);
  const Tensor sum = a + row;
  std::vector<double> expected = ToDoubles(a);
  const std::vector<double> added = ToDoubles(row);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] += added[i % added.size()];
  ExpectClose(sum, expected, {.operations = 0});
  INFINI_TRAIN_EXPECT_NATIVE(Add);
}

class Rung07Matmul : public KernelRung {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Rung07Matmul);

TEST_P(Rung07Matmul, ProductsOfEveryLayout) {
  constexpr std::int64_t kInner = 50;
  const Tensor a = Random({kRows, kInner}, 1);
  const Tensor b = Random({kInner, kColumns}, 2);
  const std::vector<double> left = ToDoubles(a);
  const std::vector<double> right = ToDoubles(b);
  std::vector<double> expected(kRows * kColumns, 0.0);
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t k = 0; k < kInner; ++k) {
      for (std::int64_t j = 0; j < kColumns; ++j) {
        expected[static_cast<std::size_t>(i * kColumns + j)] +=
            left[static_cast<std::size_t>(i * kInner + k)] *
            right[static_cast<std::size_t>(k * kColumns + j)];
      }
    }
  }
  const Tensor a_by_columns = Transpose(Contiguous(Transpose(a, 0, 1)), 0, 1);
  const Tensor b_by_columns = Transpose(Contiguous(Transpose(b, 0, 1)), 0, 1);
  for (const Tensor& x : {a, a_by_columns}) {
    for (const Tensor& y : {b, b_by_columns})
      ExpectClose(Matmul(x, y), expected, {.operations = kInner, .scale = kInner});
  }
  INFINI_TRAIN_EXPECT_NATIVE(Gemm);
}

class Rung08LayerNormWithGradient : public KernelRung {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Rung08LayerNormWithGradient);

TEST_P(Rung08LayerNormWithGradient, ResultAndGradientsAreTheCpus) {
  const Tensor x = Random({kRows, kColumns}, 1).set_requires_grad();
  const Tensor weight = Random({kColumns}, 2).set_requires_grad();
  const Tensor bias = Random({kColumns}, 3).set_requires_grad();
  const Tensor grad_y = Random({kRows, kColumns}, 4);
  const auto run = [](const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const Tensor& grad_y) {
    const Tensor y = LayerNorm(x, weight, bias);
    Backward({&y, 1}, {&grad_y, 1});
    return std::vector<Tensor>{y.Detach(), x.grad(), weight.grad(), bias.grad()};
  };
  const std::vector<Tensor> actual = run(x, weight, bias, grad_y);
  const auto host = [](const Tensor& tensor) {
    return To(tensor.Detach(), Device()).set_requires_grad();
  };
  const std::vector<Tensor> expected = run(host(x), host(weight), host(bias), To(grad_y, Device()));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << (i == 0 ? "result" : "gradient") << " " << i);
    ExpectClose(actual[i], ToDoubles(expected[i]), {.operations = 200, .scale = 4});
  }
  INFINI_TRAIN_EXPECT_NATIVE(LayerNorm);
  INFINI_TRAIN_EXPECT_NATIVE(LayerNormBackward);
}

class Rung09Gpt2Step : public KernelRung {};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(Rung09Gpt2Step);

/// The loss and the gradient's norm of one step of a tiny GPT-2, and the loss after it.
std::vector<double> Gpt2Step(Device device) {
  const models::Model host = models::CreateModel(trainer::TinyConfig(), 3);
  const models::Model model = models::CreateModel(trainer::TinyConfig(), 3, {device});
  model.module->LoadStateDict(host.module->StateDict());
  TokenBatch batch;
  batch.batch_size = 2;
  batch.sequence_length = 8;
  for (std::int64_t i = 0; i < 16; ++i) {
    batch.inputs.push_back(i * 7 % trainer::kTinyVocabulary);
    batch.targets.push_back((i * 7 + 1) % trainer::kTinyVocabulary);
  }
  batch.num_targets = 16;
  const std::vector<trainer::DeviceBatch> batches = {trainer::ToDevice(batch, device)};
  const Tensor loss = trainer::AccumulateGradients(model, batches, {});
  const optim::GradientNorm norm = optim::ComputeGradientNorm(model.module->Parameters(), 1.0);
  optim::AdamW optimizer(optim::DecayMatricesOnly(model.module->NamedParameters(), 0.1));
  optimizer.Step(1e-3, norm.factor);
  model.module->ZeroGrad();
  const Tensor after = trainer::AccumulateGradients(model, batches, {});
  return {loss.Item(), norm.norm.Item(), after.Item()};
}

TEST_P(Rung09Gpt2Step, LossAndGradientAreTheCpus) {
  const std::vector<double> actual = Gpt2Step(device());
  const std::vector<double> expected = Gpt2Step(Device());
  EXPECT_LT(actual[2], actual[0]) << "the step did not lower the loss";
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-5 * expected[i]);
  int native = 0;
  for (int i = 0; i < kNumOps; ++i)
    native += HasKernel(device().type(), static_cast<OpId>(i));
  std::cout << device().ToString() << " has kernels of its own for " << native << " of " << kNumOps
            << " ops\n";
}

}  // namespace
}  // namespace infini_train::test
