#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectEqual;
using test::kFloatingTypes;
using test::kRowLengths;
using test::Layout;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::int64_t kVocabulary = 11;

class EmbeddingTest : public DeviceTest {
 protected:
  /// Ids that repeat, among them the first and the last.
  static std::vector<double> Ids(std::int64_t count) {
    std::vector<double> ids;
    for (std::int64_t i = 0; i < count; ++i)
      ids.push_back(static_cast<double>((i * i * 3 + 10) % kVocabulary));
    return ids;
  }
};

TEST_P(EmbeddingTest, TakesRows) {
  for (const DataType dtype : kFloatingTypes) {
    for (const DataType index_type : {DataType::kInt64, DataType::kInt32}) {
      for (const std::int64_t hidden : {1, 7, 130, 0}) {
        for (const Dims& ids_shape : {Dims{}, Dims{5}, Dims{2, 9}, Dims{0}}) {
          SCOPED_TRACE(testing::Message() << ToString(dtype) << ", " << ToString(index_type) << " "
                                          << ids_shape.ToString() << ", hidden " << hidden);
          const Tensor weight = MakeTensor(device(), dtype, {kVocabulary, hidden},
                                           RandomValues(kVocabulary * hidden, -1, 1, 1));
          const std::vector<double> ids = Ids(Numel(ids_shape));
          const std::vector<double> rows = ToDoubles(weight);
          std::vector<double> expected;
          for (const double id : ids) {
            const auto begin = static_cast<std::ptrdiff_t>(id) * hidden;
            expected.insert(expected.end(), rows.begin() + begin, rows.begin() + begin + hidden);
          }
          Dims shape = ids_shape;
          shape.push_back(hidden);
          Tensor out = MakeOutput(device(), dtype, shape);
          Call<op::Embedding>(out, weight, MakeTensor(device(), index_type, ids_shape, ids));
          ExpectEqual(out, expected);
        }
      }
    }
  }
}

TEST_P(EmbeddingTest, BackwardAddsRows) {
  for (const DataType dtype : kFloatingTypes) {
    for (const DataType weight_type : {dtype, PromoteTypes(dtype, DataType::kFloat32)}) {
      for (const DataType index_type : {DataType::kInt64, DataType::kInt32}) {
        for (const std::int64_t hidden : {1, 7, 130, 0}) {
          for (const Dims& ids_shape : {Dims{}, Dims{40}, Dims{2, 9}, Dims{0}}) {
            SCOPED_TRACE(testing::Message() << ToString(dtype) << " to " << ToString(weight_type)
                                            << ", " << ToString(index_type) << " "
                                            << ids_shape.ToString() << ", hidden " << hidden);
            Tensor grad_weight = MakeTensor(device(), weight_type, {kVocabulary, hidden},
                                            RandomValues(kVocabulary * hidden, -1, 1, 1));
            const std::vector<double> ids = Ids(Numel(ids_shape));
            Dims shape = ids_shape;
            shape.push_back(hidden);
            const Tensor grad_y =
                MakeTensor(device(), dtype, shape, RandomValues(Numel(shape), -1, 1, 2));
            std::vector<double> expected = ToDoubles(grad_weight);
            const std::vector<double> grads = ToDoubles(grad_y);
            for (std::size_t i = 0; i < ids.size(); ++i) {
              for (std::int64_t j = 0; j < hidden; ++j) {
                expected[static_cast<std::size_t>(static_cast<std::int64_t>(ids[i]) * hidden +
                                                  j)] +=
                    grads[i * static_cast<std::size_t>(hidden) + static_cast<std::size_t>(j)];
              }
            }
            Call<op::EmbeddingBackward>(grad_weight, grad_y,
                                        MakeTensor(device(), index_type, ids_shape, ids));
            ExpectClose(grad_weight, expected,
                        {.operations = 41, .scale = 1.0 + static_cast<double>(ids.size())});
          }
        }
      }
    }
  }
}

TEST_P(EmbeddingTest, RowsOfEveryLengthAndAlignment) {
  for (const std::int64_t hidden : kRowLengths) {
    for (const Layout layout : {Layout::kContiguous, Layout::kShifted}) {
      SCOPED_TRACE(testing::Message() << hidden << " " << testing::PrintToString(layout));
      const std::vector<double> ids = {2, 0, 2, 1, 2};
      const auto size = static_cast<std::size_t>(hidden);
      const Tensor indices = MakeTensor(device(), DataType::kInt64, {5}, ids);
      const Tensor weight = MakeTensor(device(), DataType::kBFloat16, {3, hidden},
                                       RandomValues(3 * hidden, -1, 1, 1), layout);
      const std::vector<double> rows = ToDoubles(weight);
      Tensor out = MakeOutput(device(), DataType::kBFloat16, {5, hidden}, layout);
      Call<op::Embedding>(out, weight, indices);
      std::vector<double> taken;
      std::vector<double> sums(3 * size, 1.0);
      for (const double id : ids) {
        const std::size_t begin = static_cast<std::size_t>(id) * size;
        for (std::size_t i = begin; i < begin + size; ++i) {
          taken.push_back(rows[i]);
          sums[i] += rows[i];
        }
      }
      ExpectEqual(out, taken);
      Tensor grad = MakeTensor(device(), DataType::kFloat32, {3, hidden},
                               std::vector<double>(3 * size, 1.0), layout);
      Call<op::EmbeddingBackward>(grad, out, indices);
      ExpectClose(grad, sums, {.operations = 5, .scale = 4});
    }
  }
}

// A vocabulary's worth of ids, one of them very often: rows that many parts of the work share.
TEST_P(EmbeddingTest, BackwardOfManyIdsIsTheSameEveryTime) {
  constexpr std::int64_t kTokens = 2500;
  constexpr std::int64_t kHidden = 24;
  std::vector<double> ids;
  for (std::int64_t i = 0; i < kTokens; ++i)
    ids.push_back(static_cast<double>(i % 3 == 0 ? 7 : i * 7919 % 50257));
  const Tensor indices = MakeTensor(device(), DataType::kInt32, {kTokens}, ids);
  const Tensor grad_y = MakeTensor(device(), DataType::kBFloat16, {kTokens, kHidden},
                                   RandomValues(kTokens * kHidden, -1, 1, 3));
  const std::vector<double> grads = ToDoubles(grad_y);
  std::vector<double> expected(50257 * kHidden, 0.0);
  for (std::size_t i = 0; i < grads.size(); ++i)
    expected[static_cast<std::size_t>(ids[i / kHidden]) * kHidden + i % kHidden] += grads[i];
  Tensor first;
  for (int run = 0; run < 2; ++run) {
    Tensor grad = MakeTensor(device(), DataType::kFloat32, {50257, kHidden},
                             std::vector<double>(50257 * kHidden, 0.0));
    Call<op::EmbeddingBackward>(grad, grad_y, indices);
    if (run == 0) {
      ExpectClose(grad, expected, {.operations = 64, .scale = 840});
      first = grad;
    } else {
      test::ExpectSameBits(grad, first);
    }
  }
}

// Added one by one to a bfloat16 row, ones stop counting at 256.
TEST_P(EmbeddingTest, BackwardRoundsASumOnce) {
  constexpr std::int64_t kTokens = 3000;
  Tensor grad_weight = MakeTensor(device(), DataType::kBFloat16, {2, 2}, {0, 8, 5, 5});
  const Tensor grad_y = MakeTensor(device(), DataType::kBFloat16, {kTokens, 2},
                                   std::vector<double>(2 * kTokens, 1.0));
  const Tensor ids =
      MakeTensor(device(), DataType::kInt64, {kTokens}, std::vector<double>(kTokens, 0.0));
  Call<op::EmbeddingBackward>(grad_weight, grad_y, ids);
  ExpectEqual(grad_weight, {3008, 3008, 5, 5});
}

TEST_P(EmbeddingTest, WrongIdIsNamed) {
  if (!device().is_cpu()) GTEST_SKIP() << "only the CPU can tell at once";
  const Tensor weight = MakeTensor(device(), DataType::kFloat32, {3, 2}, {0, 1, 2, 3, 4, 5});
  Tensor out = MakeOutput(device(), DataType::kFloat32, {2, 2, 2});
  Tensor grad = MakeTensor(device(), DataType::kFloat32, {3, 2}, {0, 1, 2, 3, 4, 5});
  for (const int wrong : {3, -1}) {
    const Tensor ids = MakeTensor(device(), DataType::kInt32, {2, 2}, {0, 2, 1.0 * wrong, 1});
    const std::string text = "id " + std::to_string(wrong) + " at position 2 is outside [0, 3)";
    EXPECT_THAT([&] { Call<op::Embedding>(out, weight, ids); },
                ThrowsMessage<Error>(HasSubstr(text)));
    EXPECT_THAT([&] { Call<op::EmbeddingBackward>(grad, out, ids); },
                ThrowsMessage<Error>(HasSubstr(text)));
    ExpectEqual(grad, {0, 1, 2, 3, 4, 5});
  }
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(EmbeddingTest);

}  // namespace
}  // namespace infini_train
