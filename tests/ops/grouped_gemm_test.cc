// Products by groups of rows against a float64 reference.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/matmul_precision.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectEqual;
using test::ExpectGapsUntouched;
using test::ExpectSameBits;
using test::kFloatingTypes;
using test::Layout;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;
using testing::HasSubstr;
using testing::ThrowsMessage;

using Counts = std::vector<std::int64_t>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr DataType kFloat32 = DataType::kFloat32;
constexpr Layout kTransposed = Layout::kTransposed;
constexpr Layout kLayouts[] = {Layout::kContiguous, kTransposed, Layout::kSliced};

std::int64_t Total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Sums in float64, and the sums of the terms' magnitudes.
struct Sums {
  explicit Sums(std::vector<double> former) : values(std::move(former)) {
    for (const double value : values)
      scales.push_back(std::abs(value));
  }
  void Add(std::int64_t i, double a, double b) {
    values[i] += a * b;
    scales[i] += std::abs(a * b);
  }

  std::vector<double> values, scales;
};

struct Case {
  Counts counts;
  std::int64_t unused = 0;  ///< rows of no group
  std::int64_t m = 0;       ///< of KGroupedGemm
  std::int64_t n = 0;
  std::int64_t k = 0;  ///< of GroupedGemm
  DataType input = kFloat32;
  DataType output = kFloat32;
  Layout a = Layout::kContiguous;
  Layout b = Layout::kContiguous;
  Layout out = Layout::kContiguous;
  bool accumulate = false;

  std::int64_t groups() const { return static_cast<std::int64_t>(counts.size()); }
  std::int64_t rows() const { return Total(counts) + unused; }
  std::string Describe() const {
    return testing::PrintToString(counts) + " + " + std::to_string(unused) + " rows, " +
           std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " " +
           std::string(ToString(input)) + " to " + std::string(ToString(output)) + ", layouts " +
           testing::PrintToString(a) + ", " + testing::PrintToString(b) + " to " +
           testing::PrintToString(out) + (accumulate ? ", accumulate" : "");
  }
};

class GroupedGemmTest : public DeviceTest {
 protected:
  void TearDown() override { SetMatmulPrecision(MatmulPrecision::kFloat32); }

  static Tensor MakeCounts(const Counts& counts) {
    return MakeTensor(device(), DataType::kInt64, {static_cast<std::int64_t>(counts.size())},
                      std::vector<double>(counts.begin(), counts.end()));
  }

  static Tensor MakeResult(const Case& c, const Dims& shape) {
    return c.accumulate
               ? MakeTensor(device(), c.output, shape, RandomValues(Numel(shape), -1, 1, 4), c.out)
               : MakeOutput(device(), c.output, shape, c.out);
  }
  static Sums Former(const Case& c, const Tensor& out) {
    return Sums(c.accumulate ? ToDoubles(out)
                             : std::vector<double>(static_cast<std::size_t>(out.numel()), 0.0));
  }
  static void ExpectResult(const Tensor& out, const Sums& expected, std::int64_t terms) {
    ExpectClose(out, expected.values, {.operations = static_cast<double>(terms) + 2},
                expected.scales);
    ExpectGapsUntouched(out);
  }

  static void CheckGrouped(const Case& c) {
    SCOPED_TRACE("GroupedGemm " + c.Describe());
    const std::int64_t rows = c.rows(), used = Total(c.counts);
    std::vector<double> a_values = RandomValues(rows * c.k, -1, 1, 1);
    std::fill(a_values.begin() + used * c.k, a_values.end(), kNan);
    const Tensor a = MakeTensor(device(), c.input, {rows, c.k}, a_values, c.a);
    const Tensor b = MakeTensor(device(), c.input, {c.groups(), c.k, c.n},
                                RandomValues(c.groups() * c.k * c.n, -1, 1, 2), c.b);
    Tensor out = MakeResult(c, {rows, c.n});
    Sums expected = Former(c, out);
    const std::vector<double> av = ToDoubles(a), bv = ToDoubles(b);
    std::int64_t row = 0;
    for (std::int64_t e = 0; e < c.groups(); ++e) {
      for (const std::int64_t end = row + c.counts[e]; row < end; ++row) {
        for (std::int64_t x = 0; x < c.k; ++x) {
          for (std::int64_t j = 0; j < c.n; ++j)
            expected.Add(row * c.n + j, av[row * c.k + x], bv[(e * c.k + x) * c.n + j]);
        }
      }
    }
    Call<op::GroupedGemm>(out, a, b, MakeCounts(c.counts), c.accumulate);
    ExpectResult(out, expected, c.k);
  }

  static void CheckKGrouped(const Case& c) {
    SCOPED_TRACE("KGroupedGemm " + c.Describe());
    const std::int64_t rows = c.rows(), used = Total(c.counts);
    std::vector<double> a_values = RandomValues(c.m * rows, -1, 1, 1);
    std::vector<double> b_values = RandomValues(rows * c.n, -1, 1, 2);
    for (std::int64_t i = 0; i < c.m; ++i)
      std::fill_n(a_values.begin() + i * rows + used, c.unused, kNan);
    std::fill(b_values.begin() + used * c.n, b_values.end(), kNan);
    const Tensor a = MakeTensor(device(), c.input, {c.m, rows}, a_values, c.a);
    const Tensor b = MakeTensor(device(), c.input, {rows, c.n}, b_values, c.b);
    Tensor out = MakeResult(c, {c.groups(), c.m, c.n});
    Sums expected = Former(c, out);
    const std::vector<double> av = ToDoubles(a), bv = ToDoubles(b);
    std::int64_t row = 0;
    std::int64_t most = 0;
    for (std::int64_t e = 0; e < c.groups(); ++e) {
      most = std::max(most, c.counts[e]);
      for (const std::int64_t end = row + c.counts[e]; row < end; ++row) {
        for (std::int64_t i = 0; i < c.m; ++i) {
          for (std::int64_t j = 0; j < c.n; ++j)
            expected.Add((e * c.m + i) * c.n + j, av[i * rows + row], bv[row * c.n + j]);
        }
      }
    }
    Call<op::KGroupedGemm>(out, a, b, MakeCounts(c.counts), c.accumulate);
    ExpectResult(out, expected, most);
  }

  static void CheckBoth(const Case& c) {
    CheckGrouped(c);
    CheckKGrouped(c);
  }
};

TEST_P(GroupedGemmTest, EveryLayoutAndType) {
  for (const DataType dtype : kFloatingTypes) {
    for (const Layout a : kLayouts) {
      for (const Layout b : kLayouts) {
        for (const Layout out : kLayouts) {
          for (const bool accumulate : {false, true})
            CheckBoth({{3, 0, 11, 1, 20}, 4, 21, 43, 29, dtype, dtype, a, b, out, accumulate});
        }
      }
    }
  }
}

TEST_P(GroupedGemmTest, HalfInputsToFloat) {
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const bool accumulate : {false, true}) {
      const Counts counts = {30, 2, 70};
      CheckGrouped({counts, 5, 0, 50, 70, dtype, kFloat32, {}, kTransposed, {}, accumulate});
      CheckKGrouped({counts, 5, 50, 72, 0, dtype, kFloat32, kTransposed, {}, {}, accumulate});
    }
  }
}

// The layouts of a layer's forward pass and gradients, with extents that allow vectors and with
// tails, over several tiles and steps of the depth.
TEST_P(GroupedGemmTest, LayersOfExperts) {
  const std::vector<Counts> routings = {{150, 0, 7, 131}, {1, 256, 64}, {40}, {0, 0, 9, 0}};
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    for (std::size_t i = 0; i < routings.size(); ++i) {
      const std::int64_t unused = i % 2 == 0 ? 0 : 6;
      const std::int64_t n = i % 2 == 0 ? 264 : 136, k = 208 - n / 2;
      for (const std::int64_t odd : {0, 3}) {
        CheckGrouped({routings[i], unused, 0, n + odd, k, dtype, dtype, {}, kTransposed});
        CheckGrouped({routings[i], unused, 0, n + odd, k, dtype, dtype});
        CheckKGrouped({routings[i], unused, k, n + odd, 0, dtype, dtype, kTransposed});
        CheckKGrouped(
            {routings[i], unused, k + odd, n, 0, dtype, kFloat32, kTransposed, {}, {}, true});
      }
    }
  }
}

TEST_P(GroupedGemmTest, RowsAroundTheSizesOfTiles) {
  for (const DataType dtype : {kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t rows : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257})
      CheckBoth({{rows, 2, rows}, 0, 16, 24, 40, dtype, dtype, kTransposed});
  }
}

// More tiles than a device has multiprocessors, of one step and of several.
TEST_P(GroupedGemmTest, ManyGroups) {
  Counts counts;
  for (std::int64_t e = 0; e < 400; ++e)
    counts.push_back(e % 60 == 0 ? 150 : e * e % 5);
  for (const DataType dtype : {kFloat32, DataType::kBFloat16}) {
    for (const std::int64_t k : {8, 200}) {
      CheckGrouped({counts, 1, 0, 16, k, dtype, dtype, {}, kTransposed});
      CheckGrouped({counts, 1, 0, 16, k, dtype, dtype});
    }
    for (const std::int64_t n : {8, 264})
      CheckKGrouped({counts, 1, 8, n, 0, dtype, kFloat32, kTransposed, {}, {}, true});
  }
}

TEST_P(GroupedGemmTest, NothingToMultiply) {
  for (const DataType dtype : kFloatingTypes) {
    for (const bool accumulate : {false, true}) {
      const auto check = [&](const Counts& counts, std::int64_t unused, std::int64_t m,
                             std::int64_t n, std::int64_t k) {
        CheckBoth({counts, unused, m, n, k, dtype, dtype, {}, {}, {}, accumulate});
      };
      check({0, 0, 0}, 0, 20, 30, 10);
      check({0, 0, 0}, 40, 20, 30, 10);
      check({5, 6}, 3, 20, 0, 10);
      check({5, 6}, 3, 0, 30, 0);
      check({}, 7, 20, 30, 10);
    }
  }
}

TEST_P(GroupedGemmTest, SharedGroupOperand) {
  const Counts counts = {4, 9, 0, 20};
  for (const DataType dtype : kFloatingTypes)
    CheckGrouped({counts, 0, 0, 24, 40, dtype, dtype, {}, Layout::kExpanded});
}

// What rows of one group hold stays in it.
TEST_P(GroupedGemmTest, GroupsDoNotMix) {
  for (const DataType dtype : kFloatingTypes) {
    std::vector<double> values = RandomValues(std::int64_t{20} * 16, 0.5, 1, 1);
    std::fill(values.begin() + 7 * 16, values.begin() + 12 * 16, kNan);
    const Tensor x = MakeTensor(device(), dtype, {20, 16}, values);
    const Tensor columns = x.AsStrided({16, 20}, {1, 16}, x.offset());
    const Tensor counts = MakeCounts({7, 5, 8});
    Tensor out = MakeOutput(device(), dtype, {3, 16, 16});
    Call<op::KGroupedGemm>(out, columns, x, counts, false);
    const std::vector<double> sums = ToDoubles(out);
    for (std::size_t i = 0; i < sums.size(); ++i)
      EXPECT_EQ(std::isnan(sums[i]), i / 256 == 1);
    Tensor rows = MakeOutput(device(), dtype, {20, 16});
    Call<op::GroupedGemm>(rows, x, out, counts, false);
    const std::vector<double> products = ToDoubles(rows);
    for (std::size_t i = 0; i < products.size(); ++i)
      EXPECT_EQ(std::isnan(products[i]), i / 16 >= 7 && i / 16 < 12);
  }
}

TEST_P(GroupedGemmTest, SameBitsTwice) {
  for (const DataType dtype : kFloatingTypes) {
    const Tensor x = MakeTensor(device(), dtype, {200, 64}, RandomValues(200 * 64, -1, 1, 1));
    const Tensor columns = x.AsStrided({64, 200}, {1, 64}, x.offset());
    const Tensor counts = MakeCounts({90, 0, 110});
    Tensor first = MakeOutput(device(), dtype, {3, 64, 64});
    Tensor second = MakeOutput(device(), dtype, {3, 64, 64});
    Call<op::KGroupedGemm>(first, columns, x, counts, false);
    Call<op::KGroupedGemm>(second, columns, x, counts, false);
    ExpectSameBits(first, second);
    Tensor rows = MakeOutput(device(), dtype, {200, 64});
    Tensor again = MakeOutput(device(), dtype, {200, 64});
    Call<op::GroupedGemm>(rows, x, first, counts, false);
    Call<op::GroupedGemm>(again, x, first, counts, false);
    ExpectSameBits(rows, again);
  }
}

TEST_P(GroupedGemmTest, SumsInFloat64WhereThePolicyAsksForIt) {
  SetMatmulPrecision(MatmulPrecision::kFloat64);
  const std::vector<double> cancelling = {0x1p30, 1, -0x1p30, 0x1p30, 0x1p-10, -0x1p30};
  const Tensor x = MakeTensor(device(), kFloat32, {2, 3}, cancelling);
  const Tensor b = MakeTensor(device(), kFloat32, {2, 3, 1}, {1, 1, 1, 2, 2, 2});
  Tensor rows = MakeOutput(device(), kFloat32, {2, 1});
  Call<op::GroupedGemm>(rows, x, b, MakeCounts({1, 1}), false);
  ExpectEqual(rows, {1, 0x1p-9});
  const Tensor columns = MakeTensor(device(), kFloat32, {1, 6}, cancelling);
  const Tensor ones = MakeTensor(device(), kFloat32, {6, 1}, {1, 1, 1, 1, 1, 1});
  Tensor sums = MakeTensor(device(), kFloat32, {1, 1, 1}, {1});
  Call<op::KGroupedGemm>(sums, columns, ones, MakeCounts({6}), true);
  ExpectEqual(sums, {2 + 0x1p-10});
}

// The CPU refuses them, and so does a device that falls back; other devices stay inside of the
// tensors, give to each group what is left, and count a negative number as none.
TEST_P(GroupedGemmTest, CountsThatAreWrong) {
  const std::vector<Counts> wrong = {{-3, 2, 1}, {2, 7, 1}, {std::int64_t{1} << 62, 1, 1}};
  const std::vector<Counts> meant = {{0, 2, 1}, {2, 3, 0}, {5, 0, 0}};
  for (const DataType dtype : {kFloat32, DataType::kBFloat16}) {
    const Tensor x = MakeTensor(device(), dtype, {5, 8}, RandomValues(40, -1, 1, 1));
    const Tensor columns = x.AsStrided({8, 5}, {1, 8}, x.offset());
    const Tensor b = MakeTensor(device(), dtype, {3, 8, 8}, RandomValues(192, -1, 1, 2));
    for (std::size_t i = 0; i < wrong.size(); ++i) {
      Tensor rows = MakeOutput(device(), dtype, {5, 8});
      Tensor sums = MakeOutput(device(), dtype, {3, 8, 8});
      const auto multiply = [&](const Counts& counts) {
        Call<op::GroupedGemm>(rows, x, b, MakeCounts(counts), false);
        Call<op::KGroupedGemm>(sums, columns, x, MakeCounts(counts), false);
      };
      if (device().is_cpu() || !HasKernel(device().type(), OpId::kGroupedGemm)) {
        EXPECT_THAT([&] { multiply(wrong[i]); },
                    ThrowsMessage<Error>(HasSubstr("GroupedGemm: group ")));
        continue;
      }
      multiply(meant[i]);
      const std::vector<double> expected_rows = ToDoubles(rows);
      const std::vector<double> expected_sums = ToDoubles(sums);
      multiply(wrong[i]);
      ExpectEqual(rows, expected_rows);
      ExpectEqual(sums, expected_sums);
    }
  }
}

TEST_P(GroupedGemmTest, OtherOutputTypesAreErrors) {
  const Tensor x = MakeTensor(device(), kFloat32, {2, 2}, {1, 2, 3, 4});
  const Tensor b = MakeTensor(device(), kFloat32, {1, 2, 2}, {1, 2, 3, 4});
  Tensor out = MakeOutput(device(), DataType::kBFloat16, {2, 2});
  Tensor sums = MakeOutput(device(), DataType::kBFloat16, {1, 2, 2});
  EXPECT_THROW(Call<op::GroupedGemm>(out, x, b, MakeCounts({2}), false), Error);
  EXPECT_THROW(Call<op::KGroupedGemm>(sums, x, x, MakeCounts({2}), false), Error);
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(GroupedGemmTest);

}  // namespace
}  // namespace infini_train
