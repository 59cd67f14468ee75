// Gemm against a float64 reference.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"
#include "tests/ops/gemm_reference.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectGapsUntouched;
using test::Layout;
using test::MakeOutput;
using test::MakeTensor;
using test::Multiply;
using test::Product;
using test::RandomValues;
using test::ToDoubles;
using test::Tolerance;

struct Case {
  std::int64_t m, n, k;
  DataType input = DataType::kFloat32;
  DataType output = DataType::kFloat32;
  Layout a = Layout::kContiguous;
  Layout b = Layout::kContiguous;
  Layout out = Layout::kContiguous;
  bool bias = false;
  bool accumulate = false;
};

class GemmTest : public DeviceTest {
 protected:
  static void Check(const Case& c) {
    SCOPED_TRACE(std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) + " " +
                 std::string(ToString(c.input)) + " to " + std::string(ToString(c.output)) +
                 ", layouts " + testing::PrintToString(c.a) + ", " + testing::PrintToString(c.b) +
                 " to " + testing::PrintToString(c.out) + (c.bias ? ", bias" : "") +
                 (c.accumulate ? ", accumulate" : ""));
    const Tensor a =
        MakeTensor(device(), c.input, {c.m, c.k}, RandomValues(c.m * c.k, -1, 1, 1), c.a);
    const Tensor b =
        MakeTensor(device(), c.input, {c.k, c.n}, RandomValues(c.k * c.n, -1, 1, 2), c.b);
    const Tensor bias =
        c.bias ? MakeTensor(device(), c.input, {c.n}, RandomValues(c.n, -1, 1, 3)) : Tensor();
    Tensor out = c.accumulate ? MakeTensor(device(), c.output, {c.m, c.n},
                                           RandomValues(c.m * c.n, -1, 1, 4), c.out)
                              : MakeOutput(device(), c.output, {c.m, c.n}, c.out);
    const Product expected = Multiply(a, b, c.bias ? ToDoubles(bias) : std::vector<double>(),
                                      c.accumulate ? ToDoubles(out) : std::vector<double>());
    Call<op::Gemm>(out, a, b, bias, c.accumulate);
    ExpectClose(out, expected.values, {.operations = static_cast<double>(c.k) + 2},
                expected.scales);
    ExpectGapsUntouched(out);
  }
};

TEST_P(GemmTest, EveryLayoutTypeAndExtra) {
  constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kTransposed, Layout::kSliced};
  for (const DataType dtype : test::kFloatingTypes) {
    for (const Layout a : kLayouts) {
      for (const Layout b : kLayouts) {
        for (const Layout out : kLayouts) {
          for (const bool extra : {false, true})
            Check({37, 43, 29, dtype, dtype, a, b, out, extra, extra});
        }
      }
    }
    Check({37, 43, 29, dtype, dtype, {}, {}, {}, true, false});
    Check({37, 43, 29, dtype, dtype, {}, {}, {}, false, true});
  }
}

TEST_P(GemmTest, HalfInputsToFloat) {
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const std::int64_t m : {1, 3, 40}) {
      Check({m, 50, 70, dtype, DataType::kFloat32, {}, Layout::kTransposed});
      Check({m, 50, 70, dtype, DataType::kFloat32, {}, {}, {}, true, true});
      Check({m, 50, 70, dtype, DataType::kFloat32, {}, {}, Layout::kTransposed, true, true});
    }
  }
}

TEST_P(GemmTest, ShapesAroundTheSizesOfTiles) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kFloat64}) {
    for (const std::int64_t m : {1, 2, 3, 4, 5, 11, 12, 13, 25}) {
      for (const std::int64_t n : {1, 2, 5, 15, 16, 17, 31, 33, 64, 65}) {
        for (const std::int64_t k : {1, 7, 16, 33}) {
          Check({m, n, k, dtype, dtype, Layout::kTransposed, {}, {}, true});
          Check({m, n, k, dtype, dtype, {}, Layout::kTransposed, {}, false, true});
        }
      }
    }
  }
}

// Around the widths of warps, and the vocabularies of GPT-2 and LLaMA 3.
TEST_P(GemmTest, WidthsThatBreakThings) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t m : {31, 32, 33, 63, 64, 65})
      Check({m, 96 - m / 2, m + 1, dtype, dtype, {}, Layout::kTransposed, {}, true});
    Check({3, 50257, 2, dtype, DataType::kFloat32, {}, Layout::kTransposed});
    Check({2, 128256, 1, dtype, dtype});
    Check({1000, 1, 65, dtype, dtype, {}, {}, {}, true});
    Check({20, 65, 1000, dtype, dtype, Layout::kTransposed});
  }
}

// More products than a grid of the emulator has blocks.
TEST_P(GemmTest, ManySmallProducts) {
  constexpr std::int64_t kCount = 66'000;
  const Tensor a =
      MakeTensor(device(), DataType::kFloat32, {kCount, 1, 2}, RandomValues(kCount * 2, -1, 1, 1));
  const Tensor b =
      MakeTensor(device(), DataType::kFloat32, {kCount, 2, 1}, RandomValues(kCount * 2, -1, 1, 2));
  Tensor out = MakeOutput(device(), DataType::kFloat32, {kCount, 1, 1});
  Call<op::Gemm>(out, a, b, Tensor(), false);
  const Product expected = Multiply(a, b, {}, {});
  ExpectClose(out, expected.values, {.operations = 4}, expected.scales);
}

// Blocks of depth, of rows, and several passes over the depth.
TEST_P(GemmTest, LongSums) {
  for (const DataType dtype : test::kFloatingTypes) {
    Check({5, 33, 4096 + 300, dtype, dtype, {}, Layout::kTransposed, {}, true, true});
    Check({2, 7, 1000, dtype, dtype, {}, Layout::kTransposed});
    Check({13, 40, 513, dtype, dtype, Layout::kTransposed, {}, Layout::kTransposed, true, true});
  }
  Check({6, 9, 8195, DataType::kBFloat16, DataType::kFloat32, Layout::kTransposed, {}, {}, true});
  Check({530, 35, 260, DataType::kFloat32, DataType::kFloat32, {}, Layout::kTransposed, {}, true});
}

TEST_P(GemmTest, NoTermsGiveTheBiasOrZero) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const bool bias : {false, true}) {
      for (const bool accumulate : {false, true})
        Check({40, 30, 0, dtype, dtype, {}, {}, {}, bias, accumulate});
    }
    Check({0, 30, 20, dtype, dtype, {}, {}, {}, true});
    Check({30, 0, 20, dtype, dtype, {}, {}, {}, true});
  }
}

TEST_P(GemmTest, Batches) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const std::int64_t m : {1, 3, 20}) {
      const Tensor a = MakeTensor(device(), dtype, {2, 3, m, 24},
                                  RandomValues(6 * m * 24, -1, 1, 1), Layout::kSliced);
      const Tensor b = MakeTensor(device(), dtype, {2, 3, 24, 18},
                                  RandomValues(6 * 24 * 18, -1, 1, 2), Layout::kTransposed);
      Tensor out = MakeOutput(device(), dtype, {2, 3, m, 18}, Layout::kTransposed);
      Call<op::Gemm>(out, a, b, Tensor(), false);
      const Product expected = Multiply(a, b, {}, {});
      ExpectClose(out, expected.values, {.operations = 26}, expected.scales);
      ExpectGapsUntouched(out);
    }
  }
}

// Batch strides of 0, and batches that are one matrix of more rows.
TEST_P(GemmTest, SharedOperands) {
  for (const DataType dtype : test::kFloatingTypes) {
    const Tensor a = MakeTensor(device(), dtype, {4, 10, 24}, RandomValues(960, -1, 1, 1));
    const Tensor b = MakeTensor(device(), dtype, {4, 24, 18}, RandomValues(4 * 24 * 18, -1, 1, 2),
                                Layout::kExpanded);
    const Tensor bias = MakeTensor(device(), dtype, {18}, RandomValues(18, -1, 1, 3));
    const Product expected = Multiply(a, b, ToDoubles(bias), {});
    for (const Layout layout : {Layout::kContiguous, Layout::kSliced, Layout::kTransposed}) {
      Tensor out = MakeOutput(device(), dtype, {4, 10, 18}, layout);
      Call<op::Gemm>(out, a, b, bias, false);
      ExpectClose(out, expected.values, {.operations = 26}, expected.scales);
      ExpectGapsUntouched(out);
    }
    const Tensor shared =
        MakeTensor(device(), dtype, {4, 10, 24}, RandomValues(960, -1, 1, 4), Layout::kExpanded);
    Tensor out = MakeOutput(device(), dtype, {4, 10, 18});
    Call<op::Gemm>(out, shared, b, Tensor(), false);
    const Product other = Multiply(shared, b, {}, {});
    ExpectClose(out, other.values, {.operations = 26}, other.scales);
  }
}

TEST_P(GemmTest, NanAndInfinityPassThrough) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const std::int64_t m : {1, 2, 30}) {
      std::vector<double> values = RandomValues(m * 40, 0.5, 1, 1);
      values[7] = std::numeric_limits<double>::quiet_NaN();
      if (m > 1) values[40] = std::numeric_limits<double>::infinity();
      const Tensor a = MakeTensor(device(), dtype, {m, 40}, values);
      const Tensor b = MakeTensor(device(), dtype, {40, 50}, RandomValues(2000, 0.5, 1, 2));
      Tensor out = MakeOutput(device(), dtype, {m, 50});
      Call<op::Gemm>(out, a, b, Tensor(), false);
      const std::vector<double> actual = ToDoubles(out);
      for (std::int64_t i = 0; i < m * 50; ++i) {
        if (i / 50 == 0) {
          EXPECT_TRUE(std::isnan(actual[i]));
        } else if (i / 50 == 1) {
          EXPECT_TRUE(std::isinf(actual[i]));
        } else {
          EXPECT_TRUE(std::isfinite(actual[i]));
        }
      }
    }
  }
}

TEST_P(GemmTest, SameBitsTwice) {
  for (const DataType dtype : test::kFloatingTypes) {
    const Tensor a = MakeTensor(device(), dtype, {130, 300}, RandomValues(130 * 300, -1, 1, 1));
    const Tensor b = MakeTensor(device(), dtype, {300, 210}, RandomValues(300 * 210, -1, 1, 2),
                                Layout::kTransposed);
    Tensor first = MakeOutput(device(), dtype, {130, 210});
    Tensor second = MakeOutput(device(), dtype, {130, 210});
    Call<op::Gemm>(first, a, b, Tensor(), false);
    Call<op::Gemm>(second, a, b, Tensor(), false);
    test::ExpectSameBits(first, second);
  }
}

TEST_P(GemmTest, OtherOutputTypesAreErrors) {
  const Tensor a = MakeTensor(device(), DataType::kFloat32, {2, 2}, {1, 2, 3, 4});
  Tensor out = MakeOutput(device(), DataType::kBFloat16, {2, 2});
  EXPECT_THROW(Call<op::Gemm>(out, a, a, Tensor(), false), Error);
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(GemmTest);

}  // namespace
}  // namespace infini_train
