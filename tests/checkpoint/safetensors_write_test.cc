// What is written is what the reference writer writes, and reads back bit for bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/file.h"
#include "tests/common/bytes.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"

namespace infini_train::checkpoint {
namespace {

using infini_train::test::BytesOf;
using infini_train::test::MessageOf;
using infini_train::test::NamesIn;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteBytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr DataType kAllTypes[] = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                                  DataType::kBFloat16, DataType::kInt64,   DataType::kInt32,
                                  DataType::kUInt8,    DataType::kUInt16,  DataType::kBool};
static_assert(std::size(kAllTypes) == kNumDataTypes);

/// Every byte different, or 0 and 1 for bool.
Tensor Pattern(const Dims& shape, DataType dtype) {
  Tensor tensor = Tensor::Empty(shape, dtype);
  std::vector<unsigned char> bytes(tensor.nbytes());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(dtype == DataType::kBool ? i % 2 : 37 * i + 11);
  }
  tensor.CopyFromHost(bytes.data(), bytes.size());
  return tensor;
}

std::string HeaderOf(const std::string& path) {
  const std::string bytes = ReadFile(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return bytes.substr(sizeof(length), length);
}

TEST(SafetensorsWrite, ConvertsFloatingTensors) {
  const TemporaryFolder folder;
  const Tensor base = Tensor::FromVector(std::vector<float>{1, 2, 3, 4, 5, 0.1F}, {2, 3});
  WriteSafetensors(folder / "file",
                   {{"a", base.AsStrided({3, 2}, {1, 3}, 0)},
                    {"b", Tensor::FromVector(std::vector<double>{0.1}, {1})},
                    {"c", Tensor::FromVector(std::vector<std::int32_t>{7}, {1})}},
                   {}, DataType::kBFloat16);
  const SafetensorsFile file(folder / "file");
  const std::vector<BFloat16> found = file.Load("a").ToVector<BFloat16>();
  const std::vector<float> expected = {1, 4, 2, 5, 3, 0.1F};
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(static_cast<float>(found[i]), static_cast<float>(BFloat16(expected[i]))) << i;
  EXPECT_EQ(file.dtype("b"), DataType::kBFloat16);
  EXPECT_EQ(file.Load("c").ToVector<std::int32_t>(), std::vector<std::int32_t>{7});
}

TEST(SafetensorsWrite, EveryTypeRoundTripsBitForBit) {
  const TemporaryFolder folder;
  NamedTensors tensors;
  for (const DataType dtype : kAllTypes) {
    for (const Dims& shape : {Dims({3, 5}), Dims({0, 4}), Dims(), Dims({1, 1, 2, 1, 3, 1, 1, 2})}) {
      tensors.emplace_back(std::string(ToString(dtype)) + shape.ToString(), Pattern(shape, dtype));
    }
  }
  WriteSafetensors(folder / "file", tensors, {{"format", "pt"}, {"note", "Grüße \"\n"}});
  const SafetensorsFile file(folder / "file");
  EXPECT_EQ(file.Names().size(), tensors.size());
  EXPECT_EQ(file.metadata().at("note"), "Grüße \"\n");
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(file.dtype(name), tensor.dtype()) << name;
    EXPECT_EQ(file.shape(name), tensor.shape()) << name;
    EXPECT_EQ(BytesOf(file.Load(name)), BytesOf(tensor)) << name;
  }
}

TEST(SafetensorsWrite, LaysOutAsTheReferenceWriter) {
  const TemporaryFolder folder;
  NamedTensors tensors;
  for (const DataType dtype : kAllTypes)
    tensors.emplace_back(ToString(dtype), Pattern({1}, dtype));
  tensors.emplace_back("a", Pattern({1}, DataType::kFloat32));
  WriteSafetensors(folder / "file", tensors);
  const std::string header = HeaderOf(folder / "file");
  const std::string expected = R"({"__metadata__":{"format":"pt"},)"
                               R"("int64":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                               R"("float64":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},)"
                               R"("a":{"dtype":"F32","shape":[1],"data_offsets":[16,20]},)"
                               R"("float32":{"dtype":"F32","shape":[1],"data_offsets":[20,24]},)"
                               R"("int32":{"dtype":"I32","shape":[1],"data_offsets":[24,28]},)"
                               R"("bfloat16":{"dtype":"BF16","shape":[1],"data_offsets":[28,30]},)"
                               R"("float16":{"dtype":"F16","shape":[1],"data_offsets":[30,32]},)"
                               R"("uint16":{"dtype":"U16","shape":[1],"data_offsets":[32,34]},)"
                               R"("uint8":{"dtype":"U8","shape":[1],"data_offsets":[34,35]},)"
                               R"("bool":{"dtype":"BOOL","shape":[1],"data_offsets":[35,36]}})";
  EXPECT_EQ(header.size() % 8, 0u);
  EXPECT_LT(header.size() - expected.size(), 8u);
  EXPECT_EQ(header, expected + std::string(header.size() - expected.size(), ' '));
}

TEST(SafetensorsWrite, DoesNotDependOnLayout) {
  const TemporaryFolder folder;
  const Tensor base = Tensor::FromVector(std::vector<float>{0, 1, 2, 3, 4, 5}, {2, 3});
  WriteSafetensors(folder / "file", {{"transposed", base.AsStrided({3, 2}, {1, 3}, 0)},
                                     {"column", base.AsStrided({2}, {3}, 1)},
                                     {"broadcast", base.AsStrided({2, 2}, {0, 1}, 4)}});
  const SafetensorsFile file(folder / "file");
  EXPECT_THAT(file.Load("transposed").ToVector<float>(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(file.Load("column").ToVector<float>(), ElementsAre(1, 4));
  EXPECT_THAT(file.Load("broadcast").ToVector<float>(), ElementsAre(4, 5, 4, 5));
}

TEST(SafetensorsWrite, RefusesNamesTwiceAndReservedOnes) {
  const TemporaryFolder folder;
  const Tensor tensor = Pattern({2}, DataType::kFloat32);
  EXPECT_THAT(MessageOf([&] {
                WriteSafetensors(folder / "f", {{"t", tensor}, {"t", tensor}});
              }),
              AllOf(HasSubstr(folder / "f"), HasSubstr("t")));
  EXPECT_THAT(MessageOf([&] {
                WriteSafetensors(folder / "f", {{"__metadata__", tensor}});
              }),
              HasSubstr("__metadata__"));
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre());
}

NamedTensors FourTensors() {
  return {{"d", Pattern({4}, DataType::kFloat32)},
          {"c", Pattern({4}, DataType::kBFloat16)},
          {"b", Pattern({100}, DataType::kUInt8)},
          {"a", Pattern({1}, DataType::kInt64)}};
}

TEST(SafetensorsFolder, ShardsHoldAtMostTheLimitOrOneTensor) {
  const TemporaryFolder folder;
  WriteSafetensorsFolder(folder.path(), FourTensors(), 24);
  EXPECT_THAT(NamesIn(folder.path()),
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  EXPECT_THAT(ReadFile(folder / "model.safetensors.index.json"), HasSubstr("\"total_size\": 132"));
  const SafetensorsFolder files(folder.path());
  EXPECT_THAT(files.Names(), ElementsAre("a", "b", "c", "d"));
  for (const auto& [name, tensor] : FourTensors()) {
    EXPECT_EQ(BytesOf(files.Load(name)), BytesOf(tensor)) << name;
    EXPECT_EQ(files.dtype(name), tensor.dtype());
    EXPECT_EQ(files.shape(name), tensor.shape());
  }
}

TEST(SafetensorsFolder, LaterSavesLeaveNothingStale) {
  const TemporaryFolder folder;
  for (const char* name :
       {"model-ema.safetensors", "adapter_model.safetensors", "model-1-of-2.txt"})
    WriteBytes(folder / name, "someone else's");
  const auto others = NamesIn(folder.path());
  const auto expect_only = [&](std::vector<std::string> names) {
    names.insert(names.end(), others.begin(), others.end());
    EXPECT_THAT(NamesIn(folder.path()), ::testing::UnorderedElementsAreArray(names));
    const SafetensorsFolder files(folder.path());
    for (const auto& [name, tensor] : FourTensors())
      EXPECT_EQ(BytesOf(files.Load(name)), BytesOf(tensor)) << name;
  };
  constexpr std::int64_t kWhole = 1 << 20;
  WriteSafetensorsFolder(folder.path(), FourTensors(), 24);
  WriteSafetensorsFolder(folder.path(), FourTensors(), kWhole);
  expect_only({"model.safetensors"});
  WriteSafetensorsFolder(folder.path(), FourTensors(), 100);
  expect_only({"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
               "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
  WriteSafetensorsFolder(folder.path(), FourTensors(), 124);
  expect_only({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
               "model.safetensors.index.json"});
}

TEST(SafetensorsFolder, NamesEverythingThatTheIndexMisses) {
  const TemporaryFolder folder;
  EXPECT_THAT(MessageOf([&] { SafetensorsFolder(folder.path()); }),
              AllOf(HasSubstr(folder.path()), HasSubstr("model.safetensors")));

  WriteSafetensorsFolder(folder.path(), FourTensors(), 24);
  std::filesystem::remove(folder / "model-00001-of-00003.safetensors");
  std::filesystem::remove(folder / "model-00003-of-00003.safetensors");
  EXPECT_THAT(MessageOf([&] { SafetensorsFolder(folder.path()); }),
              AllOf(HasSubstr("model-00001-of-00003.safetensors"),
                    HasSubstr("model-00003-of-00003.safetensors"),
                    Not(HasSubstr("model-00002-of-00003.safetensors"))));

  WriteSafetensors(folder / "one", {{"a", Pattern({1}, DataType::kInt32)}});
  WriteBytes(folder / "model.safetensors.index.json",
             R"({"weight_map":{"a":"one","b":"one","c":"one"}})");
  EXPECT_THAT(MessageOf([&] { SafetensorsFolder(folder.path()); }),
              AllOf(HasSubstr("b in one"), HasSubstr("c in one"), Not(HasSubstr("a in one"))));
}

TEST(SafetensorsFolder, RefusesBadIndexes) {
  const TemporaryFolder folder;
  const std::string long_name(5000, 'x');
  for (const std::string& index :
       {std::string(""), std::string("{"), std::string("[]"), std::string("{}"),
        std::string(R"({"weight_map":["model.safetensors"]})"),
        std::string(R"({"weight_map":"model.safetensors"})"),
        std::string(R"({"weight_map":{"a":1}})"), std::string(R"({"weight_map":{"a":""}})"),
        std::string(R"({"weight_map":{"a":"../a"}})"), std::string(R"({"weight_map":{"a":".."}})"),
        std::string(R"({"weight_map":{"a":"\u0000"}})"),
        std::string(R"({"weight_map":{"a":"one","a":"one"}})"),
        R"({"weight_map":{"a":")" + long_name + R"("}})",
        R"({"weight_map":)" + std::string(100'000, '[')}) {
    WriteBytes(folder / "model.safetensors.index.json", index);
    WriteSafetensors(folder / "one", {{"a", Pattern({1}, DataType::kInt32)}});
    EXPECT_THAT(MessageOf([&] { SafetensorsFolder(folder.path()); }), HasSubstr(folder.path()))
        << index.substr(0, 80);
  }
}

}  // namespace
}  // namespace infini_train::checkpoint
