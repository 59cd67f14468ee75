#include "infini_train/ops/op_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace infini_train {
namespace {

double Bytes(const Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return 0.0;
  // A broadcast tensor is as large as what lies in memory.
  const ByteRange range = tensor.storage_range();
  return static_cast<double>(std::min(tensor.nbytes(), range.end - range.begin));
}

double Bytes(TensorList tensors) {
  double sum = 0.0;
  for (const Tensor& tensor : tensors)
    sum += Bytes(tensor);
  return sum;
}

double Count(const Tensor& tensor) {
  return static_cast<double>(tensor.numel());
}

/// Of out = a @ b.
double ProductFlops(const Tensor& out, const Tensor& a) {
  return 2.0 * Count(out) * static_cast<double>(a.size(-1));
}

/// Pairs of a query and a key that it sees.
double VisiblePairs(std::int64_t queries, std::int64_t keys, const AttentionParams& params) {
  double pairs = 0.0;
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t last = params.causal ? i + keys - queries : keys - 1;
    std::int64_t seen = std::max<std::int64_t>(last + 1, 0);
    if (params.sliding_window > 0) seen = std::min(seen, params.sliding_window);
    pairs += static_cast<double>(seen);
  }
  return pairs;
}

/// Of q k^T and of the product with v. The device knows how long packed samples are: they count as
/// equally long, the least that they can cost.
double AttentionFlops(const Tensor& q, const Tensor& k, const Tensor& cumulative_lengths,
                      const AttentionParams& params) {
  const std::int64_t samples =
      cumulative_lengths.defined() ? std::max<std::int64_t>(cumulative_lengths.numel() - 1, 1) : 1;
  const double heads = static_cast<double>(q.size(0) * q.size(1) * samples);
  const auto head_size = static_cast<double>(q.size(3));
  return 4.0 * heads * head_size * VisiblePairs(q.size(2) / samples, k.size(2) / samples, params);
}

double FlopsOf(OpId id, const OpArguments& arguments) {
  const auto tensor = [&](std::size_t i) -> const Tensor& { return *arguments.tensors[i]; };
  switch (id) {
    case OpId::kGemm:
    case OpId::kFp8Gemm:
    case OpId::kGroupedGemm:
      return ProductFlops(tensor(0), tensor(1));
    case OpId::kKGroupedGemm:
      return 2.0 * Count(tensor(1)) * static_cast<double>(tensor(2).size(1));
    case OpId::kGemmGelu:
    case OpId::kGemmGeluBackward:
    case OpId::kGemmRowSums:
      return ProductFlops(tensor(0), tensor(2));
    case OpId::kAttention:
      return AttentionFlops(tensor(2), tensor(3), tensor(5), *arguments.attention);
    case OpId::kAttentionBackward:
      // Five products of the forward's two.
      return 2.5 * AttentionFlops(tensor(6), tensor(7), tensor(9), *arguments.attention);
    case OpId::kLinearCrossEntropy:
    case OpId::kFp8LinearCrossEntropy: {
      // The FP8 form has one output more.
      const std::size_t hidden = id == OpId::kLinearCrossEntropy ? 3 : 4;
      const double product =
          2.0 * Count(tensor(hidden)) * static_cast<double>(tensor(hidden + 1).size(0));
      return product *
             (1.0 + (tensor(1).defined() ? 1.0 : 0.0) + (tensor(2).defined() ? 1.0 : 0.0));
    }
    default:
      return 0.0;
  }
}

double BytesOf(OpId id, const OpArguments& arguments) {
  const auto tensor = [&](std::size_t i) -> const Tensor& { return *arguments.tensors[i]; };
  const auto accumulates = [&] { return !arguments.switches.empty() && arguments.switches.back(); };
  double sum = 0.0;
  for (const Tensor* argument : arguments.tensors)
    sum += Bytes(*argument);
  for (const TensorList list : arguments.lists)
    sum += Bytes(list);
  for (const TensorList list : arguments.updated)
    sum += 2.0 * Bytes(list);
  switch (id) {
    case OpId::kGemm:
    case OpId::kGemmRowSums:
    case OpId::kFp8Gemm:
    case OpId::kGroupedGemm:
    case OpId::kKGroupedGemm:
      return accumulates() ? sum + Bytes(tensor(0)) : sum;
    case OpId::kAddScaled:
      return sum + Bytes(tensor(0));
    case OpId::kCopyAll:
      // Written, but not read.
      return sum - Bytes(arguments.updated.front());
    case OpId::kEmbedding:
    case OpId::kGather:
    case OpId::kIndexSelect:
      // Of the table, only what is taken is read.
      return sum - Bytes(tensor(1)) + Bytes(tensor(0));
    case OpId::kEmbeddingBackward:
      // Only the rows that are named are updated.
      return Bytes(tensor(1)) + Bytes(tensor(2)) +
             2.0 * static_cast<double>(SizeOf(tensor(0).dtype())) *
                 std::min(Count(tensor(0)), Count(tensor(1)));
    default:
      return sum;
  }
}

bool IsTransposed(const Tensor& tensor) {
  const int rank = tensor.shape().size();
  return rank >= 2 && tensor.strides()[rank - 2] == 1 && tensor.size(-2) > 1 &&
         tensor.strides()[rank - 1] != 1;
}

}  // namespace

OpCost CostOf(OpId id, const OpArguments& arguments) {
  return {BytesOf(id, arguments), FlopsOf(id, arguments)};
}

std::string DescribeTensors(const OpArguments& arguments) {
  std::string text;
  std::optional<DataType> dtype;
  const auto add = [&](const std::string& part) {
    if (!text.empty()) text += ", ";
    text += part;
  };
  for (const Tensor* tensor : arguments.tensors) {
    if (!tensor->defined()) continue;
    const std::string shape = tensor->shape().ToString() + (IsTransposed(*tensor) ? "^T" : "");
    add(tensor->dtype() == dtype ? shape : fmt::format("{} {}", ToString(tensor->dtype()), shape));
    dtype = tensor->dtype();
  }
  for (const auto* lists : {&arguments.updated, &arguments.lists}) {
    for (const TensorList list : *lists) {
      if (!list.empty()) add(fmt::format("{} tensors", list.size()));
    }
  }
  return text;
}

}  // namespace infini_train
