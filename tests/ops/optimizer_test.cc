#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/split_float.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectEqual;
using test::kFloatingTypes;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;
using testing::HasSubstr;
using testing::ThrowsMessage;

// One element, an odd count, none, and more than a kernel would take in one piece.
const Dims kShapes[] = {{}, {3, 7}, {0}, {20'001}};
const std::span<const Dims> kShortShapes = std::span(kShapes).first(3);

/// Lists for one optimizer step over parameters of several shapes, and the same numbers in float64.
struct Lists {
  /// Without masters, low-precision parameters are updated as they are.
  Lists(Device device, DataType dtype, DataType grad_type, bool with_masters,
        std::span<const Dims> shapes) {
    const DataType stat = PromoteTypes(dtype, DataType::kFloat32);
    const bool narrow = dtype != stat;
    std::uint64_t seed = 1;
    for (const Dims& shape : shapes) {
      const std::int64_t count = Numel(shape);
      const auto random = [&](DataType type, double low, double high) {
        return MakeTensor(device, type, shape, RandomValues(count, low, high, seed++));
      };
      grads.push_back(random(grad_type, -1, 1));
      first.push_back(random(stat, -1, 1));
      second.push_back(random(stat, 0.01, 1));
      if (narrow && with_masters) {
        masters.push_back(random(stat, -2, 2));
        params.push_back(MakeOutput(device, dtype, shape));
        values.push_back(ToDoubles(masters.back()));
      } else {
        if (with_masters) masters.emplace_back();
        params.push_back(random(dtype, -2, 2));
        values.push_back(ToDoubles(params.back()));
      }
      grad_values.push_back(ToDoubles(grads.back()));
      first_values.push_back(ToDoubles(first.back()));
      second_values.push_back(ToDoubles(second.back()));
    }
  }

  /// Expects the parameters (and masters) to be `values` by now.
  void ExpectUpdated(test::Tolerance tolerance) const {
    for (std::size_t k = 0; k < params.size(); ++k) {
      if (!masters.empty() && masters[k].defined()) {
        ExpectClose(masters[k], values[k], tolerance);
        ExpectEqual(params[k], ToDoubles(RoundedTo(params[k].dtype(), masters[k])));
      } else {
        ExpectClose(params[k], values[k], tolerance);
      }
    }
  }

  static Tensor RoundedTo(DataType dtype, const Tensor& x) {
    return MakeTensor(x.device(), dtype, x.shape(), ToDoubles(x));
  }

  std::vector<Tensor> params, grads, first, second, masters;
  std::vector<std::vector<double>> values, grad_values, first_values, second_values;
};

class OptimizerTest : public DeviceTest {
 protected:
  /// Each dtype of parameters with each of gradients, with and without masters.
  template <typename Body>
  static void ForEachCase(std::span<const Dims> shapes, const Body& body) {
    for (const DataType dtype : kFloatingTypes) {
      for (const DataType grad_type : {dtype, DataType::kFloat32}) {
        for (const bool with_masters : {true, false}) {
          SCOPED_TRACE(testing::Message()
                       << ToString(dtype) << ", gradients " << ToString(grad_type)
                       << (with_masters ? ", with masters" : ""));
          Lists lists(device(), dtype, grad_type, with_masters, shapes);
          body(lists);
        }
        if (grad_type == DataType::kFloat32 && dtype == DataType::kFloat32) break;
      }
    }
  }

  static Tensor Scalars(const std::vector<double>& values) {
    return MakeTensor(device(), DataType::kFloat64, {static_cast<std::int64_t>(values.size())},
                      values);
  }
};

TEST_P(OptimizerTest, GlobalNorm) {
  std::vector<Tensor> xs;
  long double squares = 0;
  for (const DataType dtype : kFloatingTypes) {
    for (const Dims& shape : kShapes) {
      xs.push_back(
          MakeTensor(device(), dtype, shape, RandomValues(Numel(shape), -1, 1, xs.size())));
      for (const double value : ToDoubles(xs.back()))
        squares += value * value;
    }
  }
  Tensor norm = MakeOutput(device(), DataType::kFloat32, {});
  Call<op::GlobalNorm>(norm, TensorList(xs));
  ExpectClose(norm, {std::sqrt(static_cast<double>(squares))}, {});
}

TEST_P(OptimizerTest, GlobalNormOfNothingAndOfExtremes) {
  Tensor norm = MakeOutput(device(), DataType::kFloat32, {});
  Call<op::GlobalNorm>(norm, TensorList());
  ExpectEqual(norm, {0});
  // Their squares are outside of float32.
  std::vector<Tensor> xs = {MakeTensor(device(), DataType::kFloat32, {2}, {3e30, -4e30})};
  Call<op::GlobalNorm>(norm, TensorList(xs));
  ExpectClose(norm, {5e30}, {});
  xs = {MakeTensor(device(), DataType::kFloat32, {2}, {3e-30, 4e-30})};
  Call<op::GlobalNorm>(norm, TensorList(xs));
  ExpectClose(norm, {5e-30}, {});
  xs.push_back(MakeTensor(device(), DataType::kBFloat16, {1}, {std::nan("")}));
  Call<op::GlobalNorm>(norm, TensorList(xs));
  EXPECT_TRUE(std::isnan(ToDoubles(norm)[0]));
}

TEST_P(OptimizerTest, ScaleAll) {
  for (const double factor : {0.37, 1.0, 0.0}) {
    std::vector<Tensor> xs;
    std::vector<std::vector<double>> expected;
    const Tensor scale = MakeTensor(device(), DataType::kFloat32, {}, {factor});
    for (const DataType dtype : kFloatingTypes) {
      for (const Dims& shape : kShapes) {
        xs.push_back(
            MakeTensor(device(), dtype, shape, RandomValues(Numel(shape), -1, 1, xs.size())));
        expected.push_back(ToDoubles(xs.back()));
        for (double& value : expected.back())
          value *= ToDoubles(scale)[0];
      }
    }
    Call<op::ScaleAll>(MutableTensorList(xs), scale);
    for (std::size_t k = 0; k < xs.size(); ++k)
      ExpectClose(xs[k], expected[k], {});
  }
}

TEST_P(OptimizerTest, AdamW) {
  const AdamWParams hyper{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  const double lr = 3e-2;
  const double correction1 = 1 - std::pow(0.9, 3);
  const double correction2 = 1 - std::pow(0.95, 3);
  const double factor = 0.75;
  ForEachCase(kShapes, [&](Lists& lists) {
    Call<op::AdamW>(MutableTensorList(lists.params), TensorList(lists.grads),
                    MutableTensorList(lists.first), MutableTensorList(lists.second),
                    MutableTensorList(lists.masters),
                    Scalars({lr, correction1, correction2, factor}), hyper);
    for (std::size_t k = 0; k < lists.params.size(); ++k) {
      for (std::size_t i = 0; i < lists.values[k].size(); ++i) {
        const double g = lists.grad_values[k][i] * factor;
        double& m = lists.first_values[k][i];
        double& v = lists.second_values[k][i];
        double& p = lists.values[k][i];
        m = 0.9 * m + (1 - 0.9) * g;
        v = 0.95 * v + (1 - 0.95) * g * g;
        p = p * (1 - lr * 0.1) - lr * (m / correction1) / (std::sqrt(v / correction2) + 1e-6);
      }
      ExpectClose(lists.first[k], lists.first_values[k], {.operations = 4, .scale = 1});
      ExpectClose(lists.second[k], lists.second_values[k], {.operations = 6});
    }
    // The second term is at most 0.03 * 3.7 / 0.25.
    lists.ExpectUpdated({.operations = 16, .scale = 2});
  });
}

/// Parameters in bfloat16 with what they lack of these masters in place of the masters.
struct SplitMasters {
  explicit SplitMasters(const std::vector<Tensor>& masters) {
    for (const Tensor& master : masters) {
      std::vector<double> high, low;
      for (const double value : ToDoubles(master)) {
        const SplitFloat split(static_cast<float>(value));
        high.push_back(static_cast<float>(split.high));
        low.push_back(split.low);
      }
      params.push_back(MakeTensor(master.device(), DataType::kBFloat16, master.shape(), high));
      lows.push_back(MakeTensor(master.device(), DataType::kUInt16, master.shape(), low));
    }
  }

  void ExpectToBe(const std::vector<Tensor>& masters) const {
    const SplitMasters expected(masters);
    for (std::size_t k = 0; k < masters.size(); ++k) {
      test::ExpectSameBits(params[k], expected.params[k]);
      test::ExpectSameBits(lows[k], expected.lows[k]);
    }
  }

  std::vector<Tensor> params, lows;
};

TEST_P(OptimizerTest, HalvesOfMastersAreUpdatedAsWholeOnes) {
  const AdamWParams adamw{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  for (const DataType grad_type : {DataType::kBFloat16, DataType::kFloat32}) {
    Lists whole(device(), DataType::kBFloat16, grad_type, true, kShapes);
    Lists other(device(), DataType::kBFloat16, grad_type, true, kShapes);
    SplitMasters split(whole.masters);
    const auto update = [&](Lists& lists, std::vector<Tensor>& params,
                            std::vector<Tensor>& masters) {
      Call<op::AdamW>(MutableTensorList(params), TensorList(lists.grads),
                      MutableTensorList(lists.first), MutableTensorList(lists.second),
                      MutableTensorList(masters), Scalars({3e-2, 0.271, 0.143, 0.75}), adamw);
      Call<op::Sgd>(MutableTensorList(params), TensorList(lists.grads),
                    MutableTensorList(lists.first), MutableTensorList(masters), Scalars({0.1, 0.5}),
                    SgdParams{.momentum = 0.9});
    };
    update(whole, whole.params, whole.masters);
    update(other, split.params, split.lows);
    split.ExpectToBe(whole.masters);
  }
}

// m <- 0.9 m + 0.1 g and so on in float64 give 0.850000 after step 300 and 0.712946 after step
// 1000; a step number kept in bfloat16 would give 0.7548, a master kept in it exactly 1.
TEST_P(OptimizerTest, AdamWTakesAThousandSteps) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    SCOPED_TRACE(ToString(dtype));
    std::vector<Tensor> params = {MakeTensor(device(), dtype, {}, {1})};
    std::vector<Tensor> masters;
    if (dtype == DataType::kBFloat16) {
      masters = {MakeTensor(device(), DataType::kFloat32, {}, {1})};
    }
    std::vector<Tensor> first = {MakeTensor(device(), DataType::kFloat32, {}, {0})};
    std::vector<Tensor> second = {MakeTensor(device(), DataType::kFloat32, {}, {0})};
    const Tensor exact = masters.empty() ? params[0] : masters[0];
    for (int t = 1; t <= 1000; ++t) {
      const std::vector<Tensor> grads = {MakeTensor(device(), dtype, {}, {t <= 300 ? 1.0 : 0.25})};
      Call<op::AdamW>(MutableTensorList(params), TensorList(grads), MutableTensorList(first),
                      MutableTensorList(second), MutableTensorList(masters),
                      Scalars({5e-4, 1 - std::pow(0.9, t), 1 - std::pow(0.999, t), 1}),
                      AdamWParams{.weight_decay = 0});
      if (t == 300) {
        EXPECT_NEAR(ToDoubles(exact)[0], 0.85, 3e-5);
      }
    }
    EXPECT_NEAR(ToDoubles(exact)[0], 0.712943, 3e-5);
    // The nearest bfloat16 numbers are 0x1p-8 apart.
    EXPECT_NEAR(ToDoubles(params[0])[0], 0.712943, dtype == DataType::kBFloat16 ? 0x1p-8 : 3e-5);
  }
}

// More tensors than a kernel takes at once, none of them aligned as the one before.
TEST_P(OptimizerTest, ManySmallSlices) {
  constexpr std::size_t kCount = 400;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    SCOPED_TRACE(ToString(dtype));
    std::int64_t total = 0;
    for (std::size_t k = 0; k < kCount; ++k)
      total += static_cast<std::int64_t>(k % 13);
    const auto slices = [&](DataType type, double low, std::uint64_t seed) {
      const Tensor all = MakeTensor(device(), type, {total}, RandomValues(total, low, 1, seed));
      std::vector<Tensor> result;
      std::int64_t begin = 0;
      for (std::size_t k = 0; k < kCount; ++k) {
        const auto size = static_cast<std::int64_t>(k % 13);
        result.push_back(all.AsStrided({size}, {1}, begin));
        begin += size;
      }
      return result;
    };
    std::vector<Tensor> params = slices(dtype, -1, 1);
    const std::vector<Tensor> grads = slices(dtype, -1, 2);
    std::vector<Tensor> first = slices(DataType::kFloat32, -1, 3);
    std::vector<Tensor> second = slices(DataType::kFloat32, 0.01, 4);
    std::vector<std::vector<double>> expected;
    double squares = 0;
    for (std::size_t k = 0; k < kCount; ++k) {
      expected.push_back(ToDoubles(params[k]));
      const std::vector<double> g = ToDoubles(grads[k]), m = ToDoubles(first[k]),
                                v = ToDoubles(second[k]);
      for (std::size_t i = 0; i < g.size(); ++i) {
        squares += g[i] * g[i];
        expected[k][i] -= 0.1 * (0.9 * m[i] + 0.1 * g[i]) /
                          (std::sqrt(0.999 * v[i] + 0.001 * g[i] * g[i]) + 1e-8);
      }
    }
    Call<op::AdamW>(MutableTensorList(params), TensorList(grads), MutableTensorList(first),
                    MutableTensorList(second), MutableTensorList(), Scalars({0.1, 1, 1, 1}),
                    AdamWParams{.weight_decay = 0});
    for (std::size_t k = 0; k < kCount; ++k)
      ExpectClose(params[k], expected[k], {.operations = 16, .scale = 2});

    Tensor norm = MakeOutput(device(), DataType::kFloat32, {});
    Call<op::GlobalNorm>(norm, TensorList(grads));
    ExpectClose(norm, {std::sqrt(squares)}, {});
    const std::vector<double> before = ToDoubles(grads.back());
    std::vector<Tensor> scaled = grads;
    Call<op::ScaleAll>(MutableTensorList(scaled),
                       MakeTensor(device(), DataType::kFloat32, {}, {0.5}));
    Call<op::GlobalNorm>(norm, TensorList(scaled));
    ExpectClose(norm, {0.5 * std::sqrt(squares)}, {});
    EXPECT_EQ(ToDoubles(grads.back())[0], 0.5 * before[0]);
  }
}

TEST_P(OptimizerTest, Sgd) {
  const double lr = 0.05;
  const double factor = 0.5;
  for (const SgdParams& hyper :
       {SgdParams{}, SgdParams{.weight_decay = 0.1},
        SgdParams{.momentum = 0.9, .dampening = 0.2, .weight_decay = 0.1},
        SgdParams{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
        SgdParams{.momentum = 0.9, .dampening = 0.2, .first_step = true},
        SgdParams{.momentum = 0.9, .nesterov = true, .first_step = true}}) {
    const bool has_momentum = hyper.momentum != 0;
    SCOPED_TRACE(testing::Message() << "momentum " << hyper.momentum << ", nesterov "
                                    << hyper.nesterov << ", first step " << hyper.first_step);
    ForEachCase(kShortShapes, [&](Lists& lists) {
      if (!has_momentum) lists.first.clear();
      if (hyper.first_step) {
        for (Tensor& buffer : lists.first)
          buffer = MakeOutput(device(), buffer.dtype(), buffer.shape());
      }
      Call<op::Sgd>(MutableTensorList(lists.params), TensorList(lists.grads),
                    MutableTensorList(lists.first), MutableTensorList(lists.masters),
                    Scalars({lr, factor}), hyper);
      for (std::size_t k = 0; k < lists.params.size(); ++k) {
        for (std::size_t i = 0; i < lists.values[k].size(); ++i) {
          double& p = lists.values[k][i];
          double& b = lists.first_values[k][i];
          const double g = lists.grad_values[k][i] * factor + hyper.weight_decay * p;
          b = hyper.first_step ? g : hyper.momentum * b + (1 - hyper.dampening) * g;
          if (!has_momentum) b = g;
          p -= lr * (hyper.nesterov ? g + hyper.momentum * b : b);
        }
        if (has_momentum) {
          ExpectClose(lists.first[k], lists.first_values[k], {.operations = 8, .scale = 2});
        }
      }
      lists.ExpectUpdated({.operations = 8, .scale = 2.2});
    });
  }
}

TEST_P(OptimizerTest, AFactorThatIsNotFiniteWritesNothing) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double factor : {std::nan(""), kInfinity, -kInfinity}) {
    SCOPED_TRACE(factor);
    ForEachCase(kShapes, [&](Lists& lists) {
      const auto values = [&] {
        std::vector<std::vector<double>> result;
        for (const auto* list : {&lists.params, &lists.first, &lists.second, &lists.masters}) {
          for (const Tensor& tensor : *list) {
            if (tensor.defined()) result.push_back(ToDoubles(tensor));
          }
        }
        return result;
      };
      for (std::size_t k = 0; k < lists.params.size(); ++k) {
        if (lists.masters.empty() || !lists.masters[k].defined()) continue;
        lists.params[k] = Lists::RoundedTo(lists.params[k].dtype(), lists.masters[k]);
      }
      const std::vector<std::vector<double>> before = values();
      Call<op::AdamW>(MutableTensorList(lists.params), TensorList(lists.grads),
                      MutableTensorList(lists.first), MutableTensorList(lists.second),
                      MutableTensorList(lists.masters), Scalars({0.1, 0.5, 0.5, factor}),
                      AdamWParams{.weight_decay = 0.1});
      EXPECT_EQ(values(), before) << "AdamW";
      for (const bool first_step : {true, false}) {
        Call<op::Sgd>(MutableTensorList(lists.params), TensorList(lists.grads),
                      MutableTensorList(lists.first), MutableTensorList(lists.masters),
                      Scalars({0.1, factor}),
                      SgdParams{.momentum = 0.9, .weight_decay = 0.1, .first_step = first_step});
        EXPECT_EQ(values(), before) << "Sgd";
      }
    });
  }
}

TEST_P(OptimizerTest, ListsMustFit) {
  std::vector<Tensor> two = {MakeTensor(device(), DataType::kFloat32, {1}, {1}),
                             MakeTensor(device(), DataType::kFloat32, {2}, {1, 2})};
  std::vector<Tensor> one = {MakeTensor(device(), DataType::kFloat32, {1}, {1})};
  std::vector<Tensor> other = {MakeTensor(device(), DataType::kFloat32, {1}, {1}),
                               MakeTensor(device(), DataType::kFloat32, {3}, {1, 2, 3})};
  if (!device().is_cpu()) GTEST_SKIP() << "device kernels trust the optimizer";
  const auto adamw = [&](std::vector<Tensor>& grads, std::vector<Tensor>& moments) {
    Call<op::AdamW>(MutableTensorList(two), TensorList(grads), MutableTensorList(two),
                    MutableTensorList(moments), MutableTensorList(), Scalars({1, 1, 1, 1}),
                    AdamWParams{});
  };
  EXPECT_THAT([&] { adamw(one, two); }, ThrowsMessage<Error>(HasSubstr("a gradient")));
  EXPECT_THAT([&] { adamw(two, other); },
              ThrowsMessage<Error>(HasSubstr("a second moment of parameter 1 has shape [3]")));
  EXPECT_THAT(
      [&] {
        Call<op::Sgd>(MutableTensorList(two), TensorList(two), MutableTensorList(one),
                      MutableTensorList(), Scalars({1, 1}), SgdParams{.momentum = 0.9});
      },
      ThrowsMessage<Error>(HasSubstr("a momentum buffer")));
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(OptimizerTest);

}  // namespace
}  // namespace infini_train
