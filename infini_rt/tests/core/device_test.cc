#include <infini/rt.h>

#include <unordered_set>

#include <gtest/gtest.h>

namespace infini::rt {
namespace {

TEST(Device, PrintsAndParsesEveryType) {
  for (int i = 0; i < static_cast<int>(Device::Type::kCount); ++i) {
    Device device(static_cast<Device::Type>(i), i + 3);
    std::string text = device.ToString();
    EXPECT_EQ(Device::FromString(text), device) << text;
    EXPECT_EQ(Device::TypeFromString(Device::StringFromType(device.type())), device.type());
  }
}

TEST(Device, IndexMayBeLeftOut) {
  EXPECT_EQ(Device::FromString("metax"), Device(Device::Type::kMetax, 0));
  EXPECT_EQ(Device().ToString(), "cpu:0");
}

TEST(Device, RejectsAnythingElse) {
  for (const char* text : {"", "cuda", "CPU", "cpu:", "cpu:-1", "cpu:+1", "cpu: 1", "cpu:1x",
                           "cpu:1:2", ":1", "cpu:99999999999999999999"}) {
    EXPECT_FALSE(Device::FromString(text).has_value()) << text;
  }
  EXPECT_FALSE(Device::TypeFromString("unknown").has_value());
  EXPECT_EQ(Device::StringFromType(Device::Type::kCount), "unknown");
}

TEST(Device, HashesTypeAndIndex) {
  std::unordered_set<Device> devices;
  for (int i = 0; i < 8; ++i) {
    devices.insert(Device(Device::Type::kCpu, i));
    devices.insert(Device(Device::Type::kAscend, i));
    devices.insert(Device(Device::Type::kAscend, i));
  }
  EXPECT_EQ(devices.size(), 16u);
}

TEST(DataType, SizesAndNames) {
  const std::pair<const char*, std::size_t> expected[] = {
      {"int8", 1},    {"int16", 2},    {"int32", 4},   {"int64", 8},
      {"uint8", 1},   {"uint16", 2},   {"uint32", 4},  {"uint64", 8},
      {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}};
  for (int i = 0; i < kDataTypeCount; ++i) {
    auto type = static_cast<DataType>(i);
    EXPECT_EQ(ToString(type), expected[i].first);
    EXPECT_EQ(SizeOf(type), expected[i].second);
    EXPECT_EQ(DataTypeFromString(expected[i].first), type);
  }
  EXPECT_FALSE(DataTypeFromString("half").has_value());
  EXPECT_EQ(ToString(static_cast<DataType>(99)), "unknown");
  EXPECT_EQ(SizeOf(static_cast<DataType>(99)), 0u);
}

}  // namespace
}  // namespace infini::rt
