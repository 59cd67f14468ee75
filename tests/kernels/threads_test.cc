#include <gtest/gtest.h>
#include <omp.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

// Kernels that sum over rows or tensors give the same bits for any number of threads.
namespace infini_train {
namespace {

using test::ExpectSameBits;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;

/// Runs `compute`, which gives its results, with several numbers of threads.
void ExpectThreadsDoNotMatter(const std::function<std::vector<Tensor>()>& compute) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<Tensor> expected = compute();
  for (const int threads : {2, 3, 7}) {
    SCOPED_TRACE(testing::Message() << threads << " threads");
    omp_set_num_threads(threads);
    const std::vector<Tensor> results = compute();
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t k = 0; k < results.size(); ++k)
      ExpectSameBits(results[k], expected[k]);
  }
  omp_set_num_threads(before);
}

Tensor Random(const Dims& shape, std::uint64_t seed, DataType dtype = DataType::kFloat32) {
  return MakeTensor({}, dtype, shape, RandomValues(Numel(shape), -1, 1, seed));
}

Tensor Output(const Dims& shape, DataType dtype = DataType::kFloat32) {
  return MakeOutput({}, dtype, shape);
}

TEST(ThreadsTest, NormGradients) {
  constexpr std::int64_t kRows = 501;
  constexpr std::int64_t kHidden = 200;
  const Tensor x = Random({kRows, kHidden}, 1);
  const Tensor grad_y = Random({kRows, kHidden}, 2);
  const Tensor weight = Random({kHidden}, 3);
  const Tensor mean = Random({kRows}, 4);
  const Tensor rstd = Random({kRows}, 5);
  ExpectThreadsDoNotMatter([&] {
    std::vector<Tensor> results = {Output({kRows, kHidden}), Output({kHidden}), Output({kHidden}),
                                   Output({kRows, kHidden}), Output({kHidden})};
    Call<op::LayerNormBackward>(results[0], results[1], results[2], grad_y, x, weight, mean, rstd);
    Call<op::RmsNormBackward>(results[3], results[4], grad_y, x, weight, rstd);
    return results;
  });
}

TEST(ThreadsTest, EmbeddingGradient) {
  constexpr std::int64_t kTokens = 900;
  constexpr std::int64_t kHidden = 200;
  std::vector<double> ids;
  for (std::int64_t i = 0; i < kTokens; ++i)
    ids.push_back(static_cast<double>(i % 7 == 0 ? 3 : i * i % 31));
  const Tensor id_tensor = MakeTensor({}, DataType::kInt64, {kTokens}, ids);
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    const Tensor grad_y = Random({kTokens, kHidden}, 1, dtype);
    ExpectThreadsDoNotMatter([&] {
      Tensor grad_weight = Random({31, kHidden}, 2, dtype);
      Call<op::EmbeddingBackward>(grad_weight, grad_y, id_tensor);
      return std::vector<Tensor>{grad_weight};
    });
  }
}

TEST(ThreadsTest, GlobalNormAndAdamW) {
  const std::vector<Tensor> grads = {Random({100'001}, 1), Random({3}, 2), Random({70'000}, 3)};
  ExpectThreadsDoNotMatter([&] {
    Tensor norm = Output({});
    Call<op::GlobalNorm>(norm, TensorList(grads));
    std::vector<Tensor> params, first, second, masters;
    for (const Tensor& grad : grads) {
      params.push_back(Random(grad.shape(), 4));
      first.push_back(Random(grad.shape(), 5));
      second.push_back(
          MakeTensor({}, DataType::kFloat32, grad.shape(), RandomValues(grad.numel(), 0, 1, 6)));
    }
    Call<op::AdamW>(MutableTensorList(params), TensorList(grads), MutableTensorList(first),
                    MutableTensorList(second), MutableTensorList(masters),
                    MakeTensor({}, DataType::kFloat64, {4}, {0.1, 0.2, 0.3, 0.4}), AdamWParams{});
    params.push_back(norm);
    return params;
  });
}

TEST(ThreadsTest, CrossEntropy) {
  constexpr std::int64_t kRows = 40;
  constexpr std::int64_t kClasses = 3001;
  const Tensor logits = Random({kRows, kClasses}, 1);
  const Tensor targets = MakeTensor({}, DataType::kInt64, {kRows},
                                    std::vector<double>(static_cast<std::size_t>(kRows), 7.0));
  ExpectThreadsDoNotMatter([&] {
    std::vector<Tensor> results = {Output({kRows}), Output({kRows}), Output({}), Output({}),
                                   Output({kRows, kClasses})};
    Call<op::CrossEntropy>(results[0], results[1], logits, targets, -100);
    Call<op::MeanOverTargets>(results[2], results[3], results[0], targets, -100);
    Call<op::CrossEntropyBackward>(results[4], results[0], logits, results[1], targets, -100);
    return results;
  });
}

}  // namespace
}  // namespace infini_train
