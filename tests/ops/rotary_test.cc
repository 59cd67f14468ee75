#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectClose;
using test::ExpectSameBits;
using test::FlatIndex;
using test::ForEachIndex;
using test::kFloatingTypes;
using test::MakeOutput;
using test::MakeTensor;
using test::RandomValues;
using test::ToDoubles;

/// [B, H, T, D]
const Dims kShapes[] = {{1, 1, 1, 2}, {2, 3, 5, 8}, {2, 2, 3, 70}, {0, 2, 3, 4}, {1, 2, 0, 4}};

/// How x or out lies in memory; the last stride is always 1.
enum class Memory { kHeadsOutside, kHeadsInside, kPacked };

/// [B, H, T, D] out of row-major memory, of memory with heads inside of positions, or of memory
/// where other heads lie between.
Tensor Arrange(const Tensor& flat, const Dims& shape, Memory memory) {
  const std::int64_t heads = shape[1];
  const std::int64_t length = shape[2];
  const std::int64_t size = shape[3];
  switch (memory) {
    case Memory::kHeadsOutside:
      return flat.AsStrided(shape, ContiguousStrides(shape), 0);
    case Memory::kHeadsInside:
      return flat.AsStrided(shape, {length * heads * size, size, heads * size, 1}, 0);
    default:
      return flat.AsStrided(shape, {length * 3 * heads * size, size, 3 * heads * size, 1},
                            Numel(shape) == 0 ? 0 : heads * size);
  }
}

class RotaryTest : public DeviceTest {
 protected:
  /// x [B, H, T, D] of random numbers in [-1, 1).
  static Tensor MakeX(DataType dtype, const Dims& shape, Memory memory) {
    const std::int64_t count = 3 * Numel(shape);
    return Arrange(MakeTensor(device(), dtype, {count}, RandomValues(count, -1, 1, 5)), shape,
                   memory);
  }
  static Tensor MakeOut(DataType dtype, const Dims& shape, Memory memory) {
    return Arrange(MakeOutput(device(), dtype, {3 * Numel(shape)}), shape, memory);
  }
};

TEST_P(RotaryTest, RotatesPairs) {
  for (const DataType dtype : kFloatingTypes) {
    const DataType stat = PromoteTypes(dtype, DataType::kFloat32);
    for (const Dims& shape : kShapes) {
      const std::int64_t length = shape[2];
      const std::int64_t pairs = shape[3] / 2;
      const std::vector<double> angles = RandomValues(length * pairs, -7, 7, 6);
      std::vector<double> cosines;
      std::vector<double> sines;
      for (const double angle : angles) {
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
      // Rows of a longer table.
      const Tensor cos =
          MakeTensor(device(), stat, {length, pairs}, cosines, test::Layout::kSliced);
      const Tensor sin = MakeTensor(device(), stat, {length, pairs}, sines);
      const std::vector<double> cos_values = ToDoubles(cos);
      const std::vector<double> sin_values = ToDoubles(sin);
      for (const Memory x_memory : {Memory::kHeadsOutside, Memory::kHeadsInside, Memory::kPacked}) {
        for (const Memory out_memory : {Memory::kHeadsOutside, Memory::kHeadsInside}) {
          for (const bool interleaved : {false, true}) {
            for (const bool inverse : {false, true}) {
              SCOPED_TRACE(testing::Message()
                           << ToString(dtype) << " " << shape.ToString() << " memory "
                           << static_cast<int>(x_memory) << " to " << static_cast<int>(out_memory)
                           << (interleaved ? " interleaved" : "") << (inverse ? " inverse" : ""));
              const Tensor x = MakeX(dtype, shape, x_memory);
              const std::vector<double> values = ToDoubles(x);
              std::vector<double> expected(values.size());
              ForEachIndex(shape, [&](std::int64_t flat, const Dims& index) {
                const std::int64_t d = index[3];
                const std::int64_t pair = interleaved ? d / 2 : d % pairs;
                const bool second = interleaved ? d % 2 == 1 : d >= pairs;
                Dims other = index;
                other[3] = interleaved ? d ^ 1 : (d + pairs) % (2 * pairs);
                const double mine = values[static_cast<std::size_t>(flat)];
                const double its = values[static_cast<std::size_t>(FlatIndex(shape, other))];
                const auto at = static_cast<std::size_t>(index[2] * pairs + pair);
                const double s = (inverse ? -1 : 1) * sin_values[at];
                expected[static_cast<std::size_t>(flat)] =
                    mine * cos_values[at] + (second ? its * s : -its * s);
              });
              Tensor out = MakeOut(dtype, shape, out_memory);
              Call<op::Rotary>(out, x, cos, sin, interleaved, inverse);
              ExpectClose(out, expected, {.operations = 3, .scale = 2});
            }
          }
        }
      }
    }
  }
}

TEST_P(RotaryTest, InPlace) {
  const Dims shape = {2, 3, 4, 38};
  const Tensor cos = MakeTensor(device(), DataType::kFloat32, {4, 19}, RandomValues(76, -1, 1, 1));
  const Tensor sin = MakeTensor(device(), DataType::kFloat32, {4, 19}, RandomValues(76, -1, 1, 2));
  for (const bool interleaved : {false, true}) {
    Tensor x = MakeX(DataType::kBFloat16, shape, Memory::kHeadsInside);
    Tensor out = MakeOut(DataType::kBFloat16, shape, Memory::kHeadsInside);
    Call<op::Rotary>(out, x, cos, sin, interleaved, false);
    Call<op::Rotary>(x, x, cos, sin, interleaved, false);
    ExpectSameBits(x, out);
  }
}

// Angles of neighbouring positions differ by much less than bfloat16 resolves: tables in float32
// keep the product of q at p + 1 and k at p at cos(1) for any p.
TEST_P(RotaryTest, HalfPrecisionHeadsUseFloatTables) {
  constexpr std::int64_t kSize = 64;
  for (const double p : {0.0, 256.0, 300.0, 4094.0, 8190.0}) {
    SCOPED_TRACE(p);
    std::vector<double> cosines;
    std::vector<double> sines;
    for (const double position : {p, p + 1}) {
      for (int i = 0; i < kSize / 2; ++i) {
        const double angle = position * std::pow(500000.0, -2.0 * i / kSize);
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
    }
    const Tensor cos = MakeTensor(device(), DataType::kFloat32, {2, kSize / 2}, cosines);
    const Tensor sin = MakeTensor(device(), DataType::kFloat32, {2, kSize / 2}, sines);
    std::vector<double> unit(2 * kSize, 0.0);
    unit[0] = unit[kSize] = 1;
    for (const DataType dtype : kFloatingTypes) {
      if (dtype == DataType::kFloat64) continue;
      const Tensor x = MakeTensor(device(), dtype, {1, 1, 2, kSize}, unit);
      Tensor out = MakeOutput(device(), dtype, {1, 1, 2, kSize});
      Call<op::Rotary>(out, x, cos, sin, false, false);
      const std::vector<double> values = ToDoubles(out);
      double product = 0;
      for (std::size_t i = 0; i < kSize; ++i)
        product += values[i] * values[kSize + i];
      EXPECT_NEAR(product, std::cos(1.0), dtype == DataType::kFloat32 ? 1e-6 : 1e-2)
          << ToString(dtype);
    }
  }
}

INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RotaryTest);

}  // namespace
}  // namespace infini_train
