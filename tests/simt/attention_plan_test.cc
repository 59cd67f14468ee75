// In which pieces attention by products works: each score that counts is in one of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/simt/kernels/attention/attention_products_plan.h"

namespace infini_train::simt {
namespace {

std::vector<ProductsShape> Shapes() {
  std::vector<ProductsShape> shapes;
  for (const bool causal : {false, true}) {
    for (const std::int64_t window : {0, 1, 5, 40, 1000}) {
      for (const std::int64_t queries : {1, 31, 64, 100}) {
        for (const std::int64_t keys : {1, 33, 64, 97})
          shapes.push_back({3, 2, 1 + queries % 2, queries, keys, window, causal});
      }
    }
  }
  return shapes;
}

std::string ToString(const ProductsShape& shape) {
  return std::to_string(shape.queries) + " queries, " + std::to_string(shape.keys) +
         " keys, window " + std::to_string(shape.window) + (shape.causal ? ", causal" : "");
}

bool Sees(const ProductsShape& shape, std::int64_t query, std::int64_t key) {
  const std::int64_t end = shape.causal ? query + 1 + shape.keys - shape.queries : shape.keys;
  return key < end && (shape.window == 0 || key >= end - shape.window);
}

/// Expects that of the scores that count each is in one block.
void ExpectAllScores(const ProductsShape& shape, const std::vector<ScoresBlock>& blocks) {
  std::vector<int> counts(static_cast<std::size_t>(shape.queries * shape.keys));
  for (const ScoresBlock& block : blocks) {
    EXPECT_EQ(block.rows, block.queries * shape.group);
    EXPECT_GE(block.pitch, block.keys);
    EXPECT_EQ(block.pitch % ScoresBlock::kAlignment, 0);
    for (std::int64_t q = block.first_query; q < block.first_query + block.queries; ++q) {
      for (std::int64_t k = block.first_key; k < block.first_key + block.keys; ++k) {
        ASSERT_TRUE(q >= 0 && q < shape.queries && k >= 0 && k < shape.keys);
        ++counts[static_cast<std::size_t>(q * shape.keys + k)];
      }
    }
  }
  for (std::int64_t q = 0; q < shape.queries; ++q) {
    for (std::int64_t k = 0; k < shape.keys; ++k) {
      const int count = counts[static_cast<std::size_t>(q * shape.keys + k)];
      EXPECT_LE(count, 1);
      EXPECT_GE(count, Sees(shape, q, k) ? 1 : 0) << "query " << q << ", key " << k;
    }
  }
}

constexpr ProductsLimits kSmall = {.positions = 32, .scores = 5000, .heads = 4};

TEST(AttentionPlan, BlocksOfQueriesHaveTheKeysThatTheySee) {
  for (const ProductsShape& shape : Shapes()) {
    SCOPED_TRACE(ToString(shape));
    const auto blocks = BlocksOfQueries(shape, kSmall);
    ExpectAllScores(shape, blocks);
    std::int64_t next = shape.FirstSeeing();
    for (std::int64_t q = 0; q < next; ++q) {
      for (std::int64_t k = 0; k < shape.keys; ++k)
        EXPECT_FALSE(Sees(shape, q, k));
    }
    for (const ScoresBlock& block : blocks) {
      EXPECT_EQ(block.first_query, next);
      EXPECT_LE(block.queries, kSmall.positions);
      EXPECT_TRUE(Sees(shape, block.first_query, block.first_key));
      next += block.queries;
      EXPECT_TRUE(Sees(shape, next - 1, block.first_key + block.keys - 1));
    }
    EXPECT_EQ(next, shape.queries);
  }
}

TEST(AttentionPlan, BlocksOfKeysHaveTheQueriesThatSeeThem) {
  for (const ProductsShape& shape : Shapes()) {
    SCOPED_TRACE(ToString(shape));
    const auto blocks = BlocksOfKeys(shape, kSmall);
    ExpectAllScores(shape, blocks);
    std::int64_t next = 0;
    for (const ScoresBlock& block : blocks) {
      EXPECT_EQ(block.first_key, next);
      EXPECT_LE(block.keys, kSmall.positions);
      next += block.keys;
      const auto sees_any = [&](std::int64_t query) {
        bool sees = false;
        for (std::int64_t k = block.first_key; k < next; ++k)
          sees = sees || Sees(shape, query, k);
        return sees;
      };
      if (block.queries > 0) {
        EXPECT_TRUE(sees_any(block.first_query));
        EXPECT_TRUE(sees_any(block.first_query + block.queries - 1));
      }
    }
    EXPECT_EQ(next, shape.keys);
  }
}

TEST(AttentionPlan, AScoreAboveTheDiagonalIsInTheBlocksOnItAlone) {
  const ProductsShape shape{1, 1, 1, 1024, 1024, 0, true};
  std::int64_t scores = 0;
  for (const auto& blocks : {BlocksOfQueries(shape), BlocksOfKeys(shape)}) {
    EXPECT_EQ(blocks.size(), 4u);
    for (const ScoresBlock& block : blocks)
      scores += block.scores();
  }
  EXPECT_EQ(scores, 2 * 256 * (256 + 512 + 768 + 1024));
}

TEST(AttentionPlan, PiecesAreAboutEqual) {
  EXPECT_EQ(PieceLength(1024, 256), 256);
  EXPECT_EQ(PieceLength(300, 256), 160);
  EXPECT_EQ(PieceLength(256, 256), 256);
  EXPECT_EQ(PieceLength(64, 256), 64);
  EXPECT_EQ(PieceLength(1, 256), 32);
}

TEST(AttentionPlan, ChunksOfLinesHaveEachHeadOnce) {
  for (const std::int64_t batch : {1, 2, 7}) {
    for (const std::int64_t kv_heads : {1, 3, 5}) {
      const ProductsShape shape{batch, kv_heads, 2, 64, 64, 0, true};
      for (const HeadLines& lines : {HeadLines::All(shape), HeadLines::Longest(shape)}) {
        for (const std::int64_t keys : {8, 32, 64}) {
          const ScoresBlock block(shape, 0, 32, 0, keys);
          std::vector<int> counts(static_cast<std::size_t>(batch * kv_heads));
          for (std::int64_t line = 0; line < lines.lines; ++line) {
            std::int64_t offset = 0;
            for (const HeadChunk& chunk : ChunksOf(lines, line, block, kSmall)) {
              EXPECT_EQ(chunk.offset, offset);
              offset += chunk.count;
              EXPECT_LE(chunk.count, kSmall.heads);
              EXPECT_TRUE(chunk.count == 1 || chunk.count * block.scores() <= kSmall.scores);
              for (std::int64_t i = 0; i < chunk.count; ++i)
                ++counts.at(static_cast<std::size_t>(chunk.first + i * chunk.step));
            }
            EXPECT_EQ(offset, lines.length);
          }
          EXPECT_TRUE(
              std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; }));
        }
      }
    }
  }
}

TEST(AttentionPlan, TheLongestLinesAreOfSamplesOrOfHeads) {
  const HeadLines samples = HeadLines::Longest({64, 12, 1, 8, 8, 0, true});
  EXPECT_EQ(samples.lines, 12);
  EXPECT_EQ(samples.length, 64);
  EXPECT_EQ(samples.step, 12);
  const HeadLines heads = HeadLines::Longest({2, 8, 4, 8, 8, 0, true});
  EXPECT_EQ(heads.lines, 2);
  EXPECT_EQ(heads.length, 8);
  EXPECT_EQ(heads.step, 1);
}

}  // namespace
}  // namespace infini_train::simt
