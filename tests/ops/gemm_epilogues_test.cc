// Products with GELU, its slope, and row sums, against float64 references.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

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

double TanhOf(double x) {
  return std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
}

double Gelu(double x) {
  return 0.5 * x * (1 + TanhOf(x));
}

double GeluSlope(double x) {
  const double t = TanhOf(x);
  const double inner = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

struct Case {
  std::int64_t m, n, k;
  DataType dtype = DataType::kFloat32;
  Layout a = Layout::kContiguous;
  Layout b = Layout::kContiguous;
  bool bias = false;
};

std::string ToString(const Case& c) {
  return std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) + " " +
         std::string(ToString(c.dtype)) + ", layouts " + testing::PrintToString(c.a) + ", " +
         testing::PrintToString(c.b) + (c.bias ? ", bias" : "");
}

class GemmEpilogueTest : public DeviceTest {
 protected:
  static Tensor MakeA(const Case& c) {
    return MakeTensor(device(), c.dtype, {c.m, c.k}, RandomValues(c.m * c.k, -1, 1, 1), c.a);
  }
  static Tensor MakeB(const Case& c) {
    return MakeTensor(device(), c.dtype, {c.k, c.n}, RandomValues(c.k * c.n, -1, 1, 2), c.b);
  }

  /// What follows a product of this scale is off by the product's error, which slopes of up to 1.13
  /// make larger, by that of its rounding to a half type, and by a dozen operations of its own.
  static void ExpectCloseBehindProduct(const Tensor& actual, const std::vector<double>& expected,
                                       std::int64_t k, const Product& product) {
    const bool half = SizeOf(actual.dtype()) == 2;
    std::vector<double> scales = product.scales;
    for (std::size_t i = 0; half && i < scales.size(); ++i)
      scales[i] = std::max({std::abs(product.values[i]), std::abs(expected[i]), 1e-2});
    const Tolerance tolerance = half ? Tolerance{.operations = 3, .compute = actual.dtype()}
                                     : Tolerance{.operations = 2 * static_cast<double>(k) + 40};
    ExpectClose(actual, expected, tolerance, scales);
  }

  static void CheckGelu(const Case& c) {
    SCOPED_TRACE(ToString(c));
    const Tensor a = MakeA(c), b = MakeB(c);
    const Tensor bias =
        c.bias ? MakeTensor(device(), c.dtype, {c.n}, RandomValues(c.n, -1, 1, 3)) : Tensor();
    Tensor out = MakeOutput(device(), c.dtype, {c.m, c.n});
    Tensor pre = MakeOutput(device(), c.dtype, {c.m, c.n});
    Call<op::GemmGelu>(out, pre, a, b, bias);
    const Product product = Multiply(a, b, c.bias ? ToDoubles(bias) : std::vector<double>(), {});
    ExpectClose(pre, product.values, {.operations = static_cast<double>(c.k) + 2}, product.scales);
    std::vector<double> activated = product.values;
    std::transform(activated.begin(), activated.end(), activated.begin(), Gelu);
    ExpectCloseBehindProduct(out, activated, c.k, product);
    ExpectGapsUntouched(out);
    ExpectGapsUntouched(pre);
  }

  static void CheckGeluBackward(const Case& c) {
    SCOPED_TRACE(ToString(c));
    const Tensor a = MakeA(c), b = MakeB(c);
    const Tensor pre = MakeTensor(device(), c.dtype, {c.m, c.n}, RandomValues(c.m * c.n, -5, 5, 3));
    const std::vector<double> pre_values = ToDoubles(pre);
    Tensor out = MakeOutput(device(), c.dtype, {c.m, c.n});
    Tensor column_sums = MakeOutput(device(), c.dtype, {c.n});
    Call<op::GemmGeluBackward>(out, column_sums, a, b, pre);
    const Product product = Multiply(a, b, {}, {});
    std::vector<double> expected = pre_values;
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = product.values[i] * GeluSlope(expected[i]);
    ExpectCloseBehindProduct(out, expected, c.k, product);
    ExpectGapsUntouched(out);
    // Sums of what is stored or of what was before rounding.
    std::vector<double> sums(static_cast<std::size_t>(c.n), 0);
    std::vector<double> scales(sums.size(), 0);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      sums[i % sums.size()] += expected[i];
      scales[i % sums.size()] += product.scales[i];
    }
    const double operations = 2 * static_cast<double>(c.k) + static_cast<double>(c.m) + 40;
    ExpectClose(column_sums, sums,
                SizeOf(c.dtype) == 2 ? Tolerance{.operations = 4, .compute = c.dtype}
                                     : Tolerance{.operations = operations},
                scales);
    Tensor alone = MakeOutput(device(), c.dtype, {c.m, c.n}), none;
    Call<op::GemmGeluBackward>(alone, none, a, b, pre);
    ExpectCloseBehindProduct(alone, expected, c.k, product);
  }

  static void CheckRowSums(const Case& c, DataType output, DataType sums, Layout out_layout,
                           bool accumulate) {
    SCOPED_TRACE(ToString(c) + " to " + std::string(ToString(output)) + ", layout " +
                 testing::PrintToString(out_layout) + (accumulate ? ", accumulate" : "") +
                 ", sums " + std::string(ToString(sums)));
    const Tensor a = MakeA(c), b = MakeB(c);
    Tensor out = accumulate ? MakeTensor(device(), output, {c.m, c.n},
                                         RandomValues(c.m * c.n, -1, 1, 4), out_layout)
                            : MakeOutput(device(), output, {c.m, c.n}, out_layout);
    Tensor row_sums = MakeOutput(device(), sums, {c.m});
    const Product product = Multiply(a, b, {}, accumulate ? ToDoubles(out) : std::vector<double>());
    Call<op::GemmRowSums>(out, row_sums, a, b, accumulate);
    const double operations = static_cast<double>(c.k) + 2;
    ExpectClose(out, product.values, {.operations = operations}, product.scales);
    const Tensor ones = MakeTensor({}, DataType::kFloat64, {c.k, 1}, std::vector<double>(c.k, 1));
    const Product expected = Multiply(a, ones, {}, {});
    ExpectClose(row_sums, expected.values, {.operations = operations}, expected.scales);
    ExpectGapsUntouched(out);
    ExpectGapsUntouched(row_sums);
  }
};

constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kTransposed, Layout::kSliced};

TEST_P(GemmEpilogueTest, GeluOfEveryLayoutAndType) {
  for (const DataType dtype : test::kFloatingTypes) {
    for (const Layout a : kLayouts) {
      for (const Layout b : kLayouts) {
        for (const bool bias : {false, true})
          CheckGelu({37, 43, 29, dtype, a, b, bias});
        CheckGeluBackward({37, 43, 29, dtype, a, b});
      }
    }
  }
}

// Around the tiles of kernels; narrow ones; and those that libraries have epilogues for.
TEST_P(GemmEpilogueTest, GeluOfManyShapes) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t m : {1, 16, 65}) {
      for (const std::int64_t n : {1, 8, 136}) {
        for (const std::int64_t k : {1, 64}) {
          CheckGelu({m, n, k, dtype, {}, Layout::kTransposed, m % 2 == 0});
          CheckGeluBackward({m, n, k, dtype});
        }
      }
    }
    CheckGelu({128, 256, 64, dtype, {}, Layout::kTransposed, true});
    CheckGeluBackward({128, 256, 64, dtype});
    CheckGeluBackward({530, 520, 4, dtype});  // Columns are summed in parts.
  }
}

TEST_P(GemmEpilogueTest, RowSumsOfEveryLayoutAndType) {
  for (const DataType dtype : test::kFloatingTypes) {
    const DataType wide = dtype == DataType::kFloat64 ? dtype : DataType::kFloat32;
    for (const Layout a : kLayouts) {
      for (const Layout b : kLayouts) {
        for (const Layout out : kLayouts) {
          for (const bool accumulate : {false, true})
            CheckRowSums({37, 43, 29, dtype, a, b}, wide, wide, out, accumulate);
        }
        CheckRowSums({37, 43, 29, dtype, a, b}, dtype, dtype, {}, false);
        CheckRowSums({37, 43, 29, dtype, a, b}, wide, dtype, {}, true);
      }
    }
  }
}

TEST_P(GemmEpilogueTest, RowSumsOfManyShapes) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t m : {1, 65, 128}) {
      for (const std::int64_t n : {1, 136}) {
        for (const std::int64_t k : {1, 300}) {
          const Case c{m, n, k, dtype, Layout::kTransposed};
          CheckRowSums(c, DataType::kFloat32, DataType::kFloat32, {}, true);
          CheckRowSums(c, DataType::kFloat32, DataType::kFloat32, {}, false);
          CheckRowSums(c, DataType::kFloat32, dtype, {}, true);
          CheckRowSums(c, dtype, dtype, {}, false);
        }
      }
    }
  }
}

TEST_P(GemmEpilogueTest, NoTermsAndNoElements) {
  for (const DataType dtype : test::kFloatingTypes) {
    CheckGelu({20, 30, 0, dtype, {}, {}, true});
    CheckGelu({0, 30, 20, dtype, {}, {}, true});
    CheckGelu({20, 0, 30, dtype});
    CheckGeluBackward({20, 30, 0, dtype});
    CheckGeluBackward({0, 30, 20, dtype});
    CheckRowSums({20, 30, 0, dtype}, dtype, dtype, {}, false);
    CheckRowSums({20, 0, 30, dtype}, dtype, dtype, {}, false);
    CheckRowSums({0, 20, 30, dtype}, dtype, dtype, {}, false);
  }
}

// Where tanh has saturated, GELU is x or 0 and its slope 1 or 0.
TEST_P(GemmEpilogueTest, FarFromZero) {
  for (const DataType dtype : test::kFloatingTypes) {
    const Tensor a = MakeTensor(device(), dtype, {16, 8}, std::vector<double>(16 * 8, 8));
    std::vector<double> signs(8 * 16);
    for (std::size_t i = 0; i < signs.size(); ++i)
      signs[i] = i % 2 == 0 ? 1 : -1;
    const Tensor b = MakeTensor(device(), dtype, {8, 16}, signs);
    Tensor out = MakeOutput(device(), dtype, {16, 16}), pre = MakeOutput(device(), dtype, {16, 16});
    Call<op::GemmGelu>(out, pre, a, b, Tensor());
    Tensor grad = MakeOutput(device(), dtype, {16, 16});
    Tensor none;
    Call<op::GemmGeluBackward>(grad, none, a, b, pre);
    std::vector<double> product(256), positive(256);
    for (std::size_t i = 0; i < product.size(); ++i) {
      product[i] = i % 2 == 0 ? 64 : -64;
      positive[i] = i % 2 == 0 ? 64 : 0;
    }
    test::ExpectEqual(pre, product);
    test::ExpectEqual(out, positive);
    test::ExpectEqual(grad, positive);
  }
}

TEST_P(GemmEpilogueTest, SameBitsTwice) {
  for (const DataType dtype : test::kFloatingTypes) {
    const Tensor a = MakeTensor(device(), dtype, {136, 304}, RandomValues(136 * 304, -1, 1, 1));
    const Tensor b = MakeTensor(device(), dtype, {304, 208}, RandomValues(304 * 208, -1, 1, 2),
                                Layout::kTransposed);
    Tensor outs[2], pres[2], grads[2], products[2], sums[2], column_sums[2];
    for (int i = 0; i < 2; ++i) {
      for (Tensor* tensor : {&outs[i], &pres[i], &grads[i], &products[i]})
        *tensor = MakeOutput(device(), dtype, {136, 208});
      sums[i] = MakeOutput(device(), dtype, {136});
      Call<op::GemmGelu>(outs[i], pres[i], a, b, Tensor());
      column_sums[i] = MakeOutput(device(), dtype, {208});
      Call<op::GemmGeluBackward>(grads[i], column_sums[i], a, b, pres[i]);
      Call<op::GemmRowSums>(products[i], sums[i], a, b, false);
    }
    test::ExpectSameBits(outs[0], outs[1]);
    test::ExpectSameBits(pres[0], pres[1]);
    test::ExpectSameBits(grads[0], grads[1]);
    test::ExpectSameBits(column_sums[0], column_sums[1]);
    test::ExpectSameBits(products[0], products[1]);
    test::ExpectSameBits(sums[0], sums[1]);
  }
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(GemmEpilogueTest);

}  // namespace
}  // namespace infini_train
