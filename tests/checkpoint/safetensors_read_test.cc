// What a safetensors file may hold, and that everything else is refused with a message.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "infini_train/checkpoint/safetensors.h"
#include "tests/checkpoint/safetensors_bytes.h"
#include "tests/common/bytes.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"

namespace infini_train::checkpoint {
namespace {

using infini_train::test::HeaderLength;
using infini_train::test::MessageOf;
using infini_train::test::OneToFour;
using infini_train::test::SafetensorsBytes;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteBytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::TestWithParam;
using ::testing::ValuesIn;

std::string HeaderOf(const std::string& offsets) {
  return R"({"t":{"dtype":"F32","shape":[4],"data_offsets":)" + offsets + "}}";
}

SafetensorsFile Open(const TemporaryFolder& folder, const std::string& bytes) {
  WriteBytes(folder / "file", bytes);
  return SafetensorsFile(folder / "file");
}

TEST(SafetensorsRead, HeadersOfAnyLength) {
  const TemporaryFolder folder;
  for (std::size_t padding = 0; padding < 9; ++padding) {
    const std::string header = HeaderOf("[0,16]") + std::string(padding, ' ');
    const SafetensorsFile file = Open(folder, SafetensorsBytes(header, OneToFour()));
    EXPECT_THAT(file.Names(), ElementsAre("t"));
    EXPECT_EQ(file.dtype("t"), DataType::kFloat32);
    EXPECT_THAT(file.Load("t").ToVector<float>(), ElementsAre(1, 2, 3, 4)) << padding;
  }
}

TEST(SafetensorsRead, EmptyTensorsAndScalarsAndMetadata) {
  const TemporaryFolder folder;
  const SafetensorsFile file =
      Open(folder, SafetensorsBytes(R"({"__metadata__":{"format":"pt"},)"
                                    R"("e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},)"
                                    R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                                    OneToFour().substr(0, 4)));
  EXPECT_THAT(file.Names(), ElementsAre("e", "s"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.shape("e"), Dims({0, 3}));
  EXPECT_THAT(file.Load("e").ToVector<float>(), ElementsAre());
  EXPECT_EQ(file.shape("s"), Dims());
  EXPECT_EQ(file.Load("s").Item(), 1.0);
}

TEST(SafetensorsRead, NoTensorsAtAll) {
  const TemporaryFolder folder;
  EXPECT_THAT(Open(folder, SafetensorsBytes("{}", "")).Names(), ElementsAre());
}

TEST(SafetensorsRead, DataThatIsNotAligned) {
  const TemporaryFolder folder;
  const SafetensorsFile file =
      Open(folder, SafetensorsBytes(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                    R"("t":{"dtype":"F32","shape":[4],"data_offsets":[1,17]}})",
                                    "x" + OneToFour()));
  EXPECT_THAT(file.Load("t").ToVector<float>(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(file.Load("b").ToVector<std::uint8_t>(), ElementsAre('x'));
}

TEST(SafetensorsRead, HeaderInAnotherOrderThanData) {
  const TemporaryFolder folder;
  const SafetensorsFile file =
      Open(folder, SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
                                    R"("z":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                                    OneToFour()));
  EXPECT_THAT(file.Load("a").ToVector<float>(), ElementsAre(3, 4));
  EXPECT_THAT(file.Load("z").ToVector<float>(), ElementsAre(1, 2));
}

TEST(SafetensorsRead, ViewsOutliveTheFile) {
  const TemporaryFolder folder;
  Tensor view;
  {
    const std::string header = HeaderOf("[0,16]") + "   ";
    view = Open(folder, SafetensorsBytes(header, OneToFour())).Load("t");
  }
  EXPECT_THAT(view.ToVector<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(SafetensorsRead, UnknownNamesAreSaid) {
  const TemporaryFolder folder;
  const SafetensorsFile file = Open(folder, SafetensorsBytes("{}", ""));
  EXPECT_THAT(MessageOf([&] { file.Load("absent"); }), HasSubstr("absent"));
}

TEST(SafetensorsRead, BoolsAreZeroOrOne) {
  const TemporaryFolder folder;
  const std::string header = R"({"t":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})";
  const SafetensorsFile right = Open(folder, SafetensorsBytes(header, std::string("\0\1", 2)));
  EXPECT_TRUE(right.Load("t").data<bool>()[1]);
  const SafetensorsFile wrong = Open(folder, SafetensorsBytes(header, "\1\2"));
  EXPECT_ERROR(wrong.Load("t"), "tensor t: expected 0 or 1 for a bool, found 2");
}

struct BadFile {
  std::string name;
  std::string bytes;
  /// In the message, besides the file's name.
  std::string expected;
};

void PrintTo(const BadFile& bad, std::ostream* out) {
  *out << bad.name;
}

std::string OfDtype(const std::string& dtype) {
  return SafetensorsBytes(R"({"t":{"dtype":)" + dtype + R"(,"shape":[4],"data_offsets":[0,16]}})",
                          OneToFour());
}
std::string OfShape(const std::string& shape) {
  return SafetensorsBytes(R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,16]}})",
                          OneToFour());
}
std::string TwoTensors(const std::string& a, const std::string& c, std::size_t bytes) {
  return SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":)" + a +
                              R"(},"c":{"dtype":"F32","shape":[4],"data_offsets":)" + c + "}}",
                          std::string(bytes, '\1'));
}

std::vector<BadFile> BadFiles() {
  const std::string data = OneToFour();
  return {
      {"OffsetsTooShort", SafetensorsBytes(HeaderOf("[0,12]"), data), "tensor t"},
      {"DataTooShort", SafetensorsBytes(HeaderOf("[0,16]"), data.substr(0, 12)), "tensor t"},
      {"OffsetsDescend", SafetensorsBytes(HeaderOf("[16,0]"), data), "tensor t"},
      {"OffsetsWrap", SafetensorsBytes(HeaderOf("[18446744073709551608,8]"), data), "tensor t"},
      {"OffsetsNegative", SafetensorsBytes(HeaderOf("[-16,0]"), data), "tensor t"},
      {"Overlap", TwoTensors("[0,16]", "[8,24]", 24), "tensor c"},
      {"SameData", TwoTensors("[0,16]", "[0,16]", 16), "tensor c"},
      {"Hole", TwoTensors("[0,16]", "[20,36]", 36), "tensor c"},
      {"HoleAtStart", TwoTensors("[4,20]", "[20,36]", 36), "tensor a"},
      {"BytesLeftOver", SafetensorsBytes(HeaderOf("[0,16]"), data + "12345"), "5 bytes after"},
      {"DataWithoutTensors", SafetensorsBytes("{}", "12345"), "5 bytes after"},
      {"OneOffset", SafetensorsBytes(HeaderOf("[0]"), data), "tensor t"},
      {"ThreeOffsets", SafetensorsBytes(HeaderOf("[0,16,32]"), data), "tensor t"},
      {"OffsetsNoList", SafetensorsBytes(HeaderOf("16"), data), "tensor t"},
      {"OffsetsReal", SafetensorsBytes(HeaderOf("[0,16.0]"), data), "tensor t"},
      {"OffsetsNested", SafetensorsBytes(HeaderOf("[[0],16]"), data), "tensor t"},
      {"UnknownType", OfDtype(R"("F33")"), "tensor t"},
      {"TypeIsNumber", OfDtype("32"), "tensor t"},
      {"TypeMissing", SafetensorsBytes(R"({"t":{"shape":[4],"data_offsets":[0,16]}})", data),
       "dtype"},
      {"EntryNoObject", SafetensorsBytes(R"({"t":[1,2]})", data), "tensor t"},
      {"ShapeNegative", OfShape("[-4]"), "tensor t"},
      {"ShapeWraps", OfShape("[4294967296,4294967296,4]"), "tensor t"},
      {"ShapeWrapsToSize", OfShape("[4611686018427387905,4]"), "tensor t"},
      {"ShapeBytesWrap", OfShape("[4611686018427387908]"), "tensor t"},
      {"StridesWrap",
       SafetensorsBytes(R"({"t":{"dtype":"F32","shape":[0,4611686018427387904,4],)"
                        R"("data_offsets":[0,0]}})",
                        ""),
       "tensor t: shape [0, 4611686018427387904, 4] has too many elements"},
      {"ShapeBeyondInt64", OfShape("[18446744073709551615]"), "tensor t"},
      {"ShapeOfTooManyDimensions", OfShape("[1,1,1,1,1,1,1,1,1,1,1,4]"), "tensor t"},
      {"ShapeNoList", OfShape(R"("4")"), "tensor t"},
      {"LengthBeyondFile", HeaderLength(1'000'000) + HeaderOf("[0,16]"), "1000000"},
      {"LengthOfAllBits", HeaderLength(~std::uint64_t{0}) + HeaderOf("[0,16]"), "header"},
      {"LengthBeyondFormat", HeaderLength(100'000'001) + HeaderOf("[0,16]"), "header"},
      {"EmptyFile", "", "found 0"},
      {"FourBytes", "abcd", "found 4"},
      {"LengthZero", HeaderLength(0), "header of 0 bytes"},
      {"HeaderIsList", SafetensorsBytes("[]", ""), "JSON object"},
      {"HeaderStartsWithSpace", SafetensorsBytes(" {}", ""), "JSON object"},
      {"HeaderCutInString", SafetensorsBytes(R"({"t":{"dtype":"F3)", ""), "JSON"},
      {"HeaderFollowedByText", SafetensorsBytes("{} x", ""), "JSON"},
      {"HeaderNotUtf8", SafetensorsBytes("{\"\xff\xfe\":1}", ""), "JSON"},
      {"HeaderTooDeep", SafetensorsBytes(R"({"t":)" + std::string(1'000'000, '['), ""), "nested"},
      {"NameTwice",
       SafetensorsBytes(R"({"t":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                        R"("t":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
                        data),
       "twice"},
      {"FieldTwice",
       SafetensorsBytes(R"({"t":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
                        data),
       "twice"},
      {"MetadataIsText", SafetensorsBytes(R"({"__metadata__":"pt"})", ""), "__metadata__"},
      {"MetadataOfNumber", SafetensorsBytes(R"({"__metadata__":{"a":1}})", ""), "__metadata__.a"},
  };
}

class SafetensorsBadFile : public TestWithParam<BadFile> {};

TEST_P(SafetensorsBadFile, IsRefused) {
  const TemporaryFolder folder;
  WriteBytes(folder / "file", GetParam().bytes);
  const std::string message = MessageOf([&] { SafetensorsFile(folder / "file"); });
  EXPECT_THAT(message, AllOf(HasSubstr(folder / "file"), HasSubstr(GetParam().expected)));
  EXPECT_LT(message.size(), 600u);
}

TEST_P(SafetensorsBadFile, IsRefusedAsSecondShard) {
  const TemporaryFolder folder;
  WriteSafetensors(folder / "model-00001-of-00002.safetensors",
                   {{"first", Tensor::FromVector(std::vector<float>{1}, {1})}});
  WriteBytes(folder / "model-00002-of-00002.safetensors", GetParam().bytes);
  WriteBytes(folder / "model.safetensors.index.json",
             R"({"weight_map":{"first":"model-00001-of-00002.safetensors",)"
             R"("t":"model-00002-of-00002.safetensors"}})");
  EXPECT_THAT(MessageOf([&] { SafetensorsFolder(folder.path()); }),
              AllOf(HasSubstr("model-00002-of-00002.safetensors"), HasSubstr(GetParam().expected)));
}

INSTANTIATE_TEST_SUITE_P(All, SafetensorsBadFile, ValuesIn(BadFiles()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace infini_train::checkpoint
