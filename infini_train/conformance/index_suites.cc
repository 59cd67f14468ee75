#include <algorithm>
#include <array>
#include <numeric>

#include "infini_train/conformance/suites.h"

namespace infini_train::conformance {
namespace {

constexpr int kDim = 1;

// Shapes are [rows of x, columns, extent of the index]; the indexed dimension is the second.

std::function<void()> GatherCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input({shape[0], shape[1]});
  const Tensor index = trial.Indices({shape[0], shape[2]}, shape[1]);
  Tensor out = trial.Output({shape[0], shape[2]});
  return [=]() mutable { Call<op::Gather>(out, x, index, kDim); };
}

/// Distinct positions in each row, so that the order of writes does not show.
std::function<void()> ScatterCall(Trial& trial, const Dims& shape) {
  Tensor out = trial.InOut({shape[0], shape[1]});
  const std::int64_t count = std::min(shape[1], shape[2]);
  std::vector<double> positions;
  for (std::int64_t row = 0; row < shape[0]; ++row)
    for (std::int64_t i = 0; i < count; ++i)
      positions.push_back(static_cast<double>((row + i) % shape[1]));
  const Tensor index = trial.FixedValues({shape[0], count}, DataType::kInt64, positions);
  const Tensor src = trial.Input({shape[0], count});
  return [=]() mutable { Call<op::Scatter>(out, index, src, kDim); };
}

std::function<void()> ScatterAddCall(Trial& trial, const Dims& shape) {
  Tensor out = trial.InOut({shape[0], shape[1]});
  const Tensor index = trial.Indices({shape[0], shape[2]}, shape[1]);
  const Tensor src = trial.Input({shape[0], shape[2]});
  return [=]() mutable { Call<op::ScatterAdd>(out, index, src, kDim); };
}

std::function<void()> IndexSelectCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input({shape[0], shape[1]});
  const Tensor index = trial.Indices({shape[2]}, shape[1]);
  Tensor out = trial.Output({shape[0], shape[2]});
  return [=]() mutable { Call<op::IndexSelect>(out, x, index, kDim); };
}

std::function<void()> IndexAddCall(Trial& trial, const Dims& shape) {
  Tensor out = trial.InOut({shape[0], shape[1]});
  const Tensor index = trial.Indices({shape[2]}, shape[1]);
  const Tensor src = trial.Input({shape[0], shape[2]});
  return [=]() mutable { Call<op::IndexAdd>(out, index, src, kDim); };
}

// Shapes are [tokens, vocabulary, hidden size].

std::function<void()> EmbeddingCall(Trial& trial, const Dims& shape) {
  const Tensor weight = trial.Input({shape[1], shape[2]});
  const Tensor ids = trial.Indices({shape[0]}, shape[1]);
  Tensor out = trial.Output({shape[0], shape[2]});
  trial.SetLeastBytes(2 * out.nbytes() + ids.nbytes());
  return [=]() mutable { Call<op::Embedding>(out, weight, ids); };
}

std::function<void()> EmbeddingBackwardCall(Trial& trial, const Dims& shape) {
  Tensor grad_weight = trial.StatInOut({shape[1], shape[2]});
  const Tensor grad_y = trial.Input({shape[0], shape[2]});
  const Tensor ids = trial.Indices({shape[0]}, shape[1]);
  trial.SetLeastBytes(grad_y.nbytes() + ids.nbytes() +
                      2 * static_cast<std::size_t>(std::min(shape[0], shape[1]) * shape[2]) *
                          SizeOf(grad_weight.dtype()));
  return [=]() mutable { Call<op::EmbeddingBackward>(grad_weight, grad_y, ids); };
}

template <bool kDescending>
std::function<void()> SortCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape);
  Tensor values = trial.Output(shape);
  Tensor indices = trial.FixedOutput(shape, DataType::kInt64);
  return [=]() mutable { Call<op::Sort>(values, indices, x, kDescending); };
}

std::function<void()> TopKCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape);
  const std::int64_t k = std::min<std::int64_t>(shape[1], 8);
  Tensor values = trial.Output({shape[0], k});
  Tensor indices = trial.FixedOutput({shape[0], k}, DataType::kInt64);
  return [=]() mutable { Call<op::TopK>(values, indices, x, true); };
}

/// The longest sum in an element: all of the index at one position.
double IndexExtent(const Dims& shape) {
  return 1 + static_cast<double>(shape[2]);
}
double Tokens(const Dims& shape) {
  return 1 + static_cast<double>(shape[0]);
}

}  // namespace

void AppendIndexSuites(std::vector<OpSuite>& suites) {
  const std::vector<Dims> shapes = {{1, 1, 1}, {5, 33, 64}, {3, 100, 7}, {2, 4, 0}};
  const Dims benchmark = {64, 1000, 500};
  const auto index = [&](OpId op, std::span<const DataType> dtypes, TrialBody body,
                         ShapeFunction operations) {
    suites.push_back({op, dtypes, kAnyStrides, shapes, body, operations, benchmark});
  };
  index(OpId::kGather, kAllTypes, &GatherCall, Zero);
  index(OpId::kScatter, kAllTypes, &ScatterCall, Zero);
  index(OpId::kScatterAdd, kArithmeticTypes, &ScatterAddCall, IndexExtent);
  index(OpId::kIndexSelect, kAllTypes, &IndexSelectCall, Zero);
  index(OpId::kIndexAdd, kArithmeticTypes, &IndexAddCall, IndexExtent);
  const std::vector<Dims> embeddings = {
      {1, 1, 1}, {9, 5, 33}, {70, 50257, 64}, {300, 3, 65}, {0, 5, 4}};
  suites.push_back({OpId::kEmbedding,
                    kFloatingTypes,
                    kRowMajor,
                    embeddings,
                    &EmbeddingCall,
                    Zero,
                    {256, 1000, 256}});
  suites.push_back({OpId::kEmbeddingBackward,
                    kFloatingTypes,
                    kRowMajor,
                    embeddings,
                    &EmbeddingBackwardCall,
                    Tokens,
                    {256, 1000, 256}});
  const std::vector<Dims> rows = {{3, 1}, {5, 31}, {5, 64}, {5, 65}, {3, 1000}, {2, 50257}};
  suites.push_back(
      {OpId::kSort, kFloatingTypes, kRowMajor, rows, &SortCall<false>, Zero, {4, 4096}});
  suites.push_back({OpId::kSort, kFloatingTypes, kContiguousOnly, rows, &SortCall<true>, Zero});
  suites.push_back({OpId::kTopK, kFloatingTypes, kRowMajor, rows, &TopKCall, Zero, {4, 4096}});
}

}  // namespace infini_train::conformance
