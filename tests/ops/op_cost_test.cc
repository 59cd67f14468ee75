#include "infini_train/ops/op_cost.h"

#include <gtest/gtest.h>

#include <vector>

namespace infini_train {
namespace {

constexpr double kMiB = 1 << 20;

Tensor Make(const Dims& shape, DataType dtype = DataType::kFloat32) {
  return Tensor::Empty(shape, dtype);
}

template <typename... Arguments>
OpCost Cost(OpId id, const Arguments&... arguments) {
  return CostOf(id, detail::CollectArguments(arguments...));
}

TEST(OpCost, ProductsReadTheirOperandsOnceAndTheOutputWhereTheyAddToIt) {
  const Tensor out = Make({512, 256});
  const Tensor a = Make({512, 1024});
  const Tensor b = Make({1024, 256});
  const OpCost plain = Cost(OpId::kGemm, out, a, b, Tensor(), false);
  EXPECT_EQ(plain.flops, 2.0 * 512 * 1024 * 256);
  EXPECT_EQ(plain.bytes, 3.5 * kMiB);
  const OpCost added = Cost(OpId::kGemm, out, a, b, Tensor(), true);
  EXPECT_EQ(added.flops, plain.flops);
  EXPECT_EQ(added.bytes, 4.0 * kMiB);
  EXPECT_EQ(Cost(OpId::kGemmGelu, out, out, a, b, Tensor()).flops, plain.flops);
  EXPECT_EQ(Cost(OpId::kGemmGeluBackward, out, Tensor(), a, b, out).flops, plain.flops);
  const Tensor sums = Make({512});
  EXPECT_EQ(Cost(OpId::kGemmRowSums, out, sums, a, b, false).flops, plain.flops);
  EXPECT_EQ(Cost(OpId::kGemmRowSums, out, sums, a, b, true).bytes, 4.0 * kMiB + 2048);
  const Tensor batches = Make({3, 4, 5});
  EXPECT_EQ(Cost(OpId::kGemm, batches, Make({3, 4, 7}), Make({3, 7, 5}), Tensor(), false).flops,
            2.0 * 3 * 4 * 5 * 7);
}

TEST(OpCost, ProductsByGroupsUseEachRowOnce) {
  const Tensor counts = Make({8}, DataType::kInt64);
  const Tensor x = Make({512, 64});
  const Tensor y = Make({512, 32});
  const Tensor weights = Make({8, 64, 32});
  const OpCost rows = Cost(OpId::kGroupedGemm, y, x, weights, counts, false);
  EXPECT_EQ(rows.flops, 2.0 * 512 * 64 * 32);
  EXPECT_EQ(rows.bytes, 4.0 * (512 * 32 + 512 * 64 + 8 * 64 * 32) + 64);
  const Tensor columns = x.AsStrided({64, 512}, {1, 64}, 0);
  const OpCost depth = Cost(OpId::kKGroupedGemm, weights, columns, y, counts, true);
  EXPECT_EQ(depth.flops, rows.flops);
  EXPECT_EQ(depth.bytes, rows.bytes + 4.0 * 8 * 64 * 32);
}

TEST(OpCost, AttentionCountsThePairsThatAreSeen) {
  const Tensor q = Make({2, 8, 16, 64});
  const Tensor k = Make({2, 4, 24, 64});
  const Tensor lse = Make({2, 8, 16});
  AttentionParams params;
  const auto pairs = [&] {
    const OpCost cost = Cost(OpId::kAttention, q, lse, q, k, k, Tensor(), params);
    const OpCost backward =
        Cost(OpId::kAttentionBackward, q, k, k, q, q, lse, q, k, k, Tensor(), params);
    EXPECT_EQ(backward.flops, 2.5 * cost.flops);
    return cost.flops / (4.0 * 2 * 8 * 64);
  };
  EXPECT_EQ(pairs(), 16 * 8 + 16 * 17 / 2) << "query i sees 9 + i keys";
  params.sliding_window = 3;
  EXPECT_EQ(pairs(), 16 * 3);
  params.causal = false;
  params.sliding_window = 0;
  EXPECT_EQ(pairs(), 16 * 24);
}

TEST(OpCost, PackedSamplesCountAsEquallyLong) {
  const Tensor q = Make({1, 8, 20, 64});
  const Tensor lse = Make({1, 8, 20});
  const Tensor lengths = Make({5}, DataType::kInt32);
  const AttentionParams params;
  const OpCost cost = Cost(OpId::kAttention, q, lse, q, q, q, lengths, params);
  EXPECT_EQ(cost.flops, 4.0 * 8 * 64 * 4 * (5 * 6 / 2));
  const OpCost backward =
      Cost(OpId::kAttentionBackward, q, q, q, q, q, lse, q, q, q, lengths, params);
  EXPECT_EQ(backward.flops, 2.5 * cost.flops);
}

TEST(OpCost, TheHeadCountsAProductForEachGradient) {
  const Tensor loss = Make({});
  const Tensor hidden = Make({10, 4});
  const Tensor weight = Make({7, 4});
  const Tensor targets = Make({10}, DataType::kInt64);
  const auto flops = [&](const Tensor& grad_hidden, const Tensor& grad_weight) {
    return Cost(OpId::kLinearCrossEntropy, loss, grad_hidden, grad_weight, hidden, weight, targets,
                std::int64_t{-100}, 1.0)
        .flops;
  };
  EXPECT_EQ(flops(Tensor(), Tensor()), 2.0 * 10 * 4 * 7);
  EXPECT_EQ(flops(hidden, Tensor()), 2 * 2.0 * 10 * 4 * 7);
  EXPECT_EQ(flops(hidden, weight), 3 * 2.0 * 10 * 4 * 7);
}

TEST(OpCost, TablesCountTheRowsThatAreTaken) {
  const Tensor table = Make({50000, 64});
  const Tensor ids = Make({32}, DataType::kInt64);
  const Tensor rows = Make({32, 64});
  const double taken = 32 * 64 * 4.0;
  EXPECT_EQ(Cost(OpId::kEmbedding, rows, table, ids).bytes, 2 * taken + 32 * 8);
  EXPECT_EQ(Cost(OpId::kEmbeddingBackward, table, rows, ids).bytes, 3 * taken + 32 * 8);
  EXPECT_EQ(Cost(OpId::kIndexSelect, rows, table, ids, 0).bytes, 2 * taken + 32 * 8);
}

TEST(OpCost, ListsThatAreUpdatedAreReadAndWritten) {
  std::vector<Tensor> parameters = {Make({100}), Make({28})};
  const std::vector<Tensor> gradients = {Make({100}), Make({28})};
  const MutableTensorList updated(parameters);
  const OpCost cost = Cost(OpId::kAdamW, updated, TensorList(gradients), updated, updated,
                           MutableTensorList(), Make({4}, DataType::kFloat64), AdamWParams());
  EXPECT_EQ(cost.bytes, 128 * 4 * 7 + 32);
  EXPECT_EQ(cost.flops, 0.0);
}

TEST(OpCost, ABroadcastOperandIsAsLargeAsItsMemory) {
  const Tensor out = Make({256, 1024});
  const Tensor row = Make({1024}).AsStrided({256, 1024}, {0, 1}, 0);
  EXPECT_EQ(Cost(OpId::kAdd, out, out, row).bytes, 2 * kMiB + 4096);
}

TEST(OpArguments, AreDescribed) {
  const Tensor a = Make({3, 4}, DataType::kBFloat16);
  const Tensor transposed = a.AsStrided({4, 3}, {1, 4}, 0);
  std::vector<Tensor> list = {a, a};
  EXPECT_EQ(DescribeTensors(detail::CollectArguments(a, Tensor(), transposed, Make({4}), true)),
            "bfloat16 [3, 4], [4, 3]^T, float32 [4]");
  EXPECT_EQ(DescribeTensors(detail::CollectArguments(MutableTensorList(list), TensorList(), a)),
            "bfloat16 [3, 4], 2 tensors");
}

}  // namespace
}  // namespace infini_train
