// What is wrong with tensors is said in one message that names all of them.

#include "infini_train/core/checklist/tensor_checklist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/common/errors.h"

namespace infini_train {
namespace {

using infini_train::test::MessageOf;

TEST(JoinNames, PutsNamesTogetherThatDifferInANumber) {
  EXPECT_EQ(JoinNames({}), "");
  EXPECT_EQ(JoinNames({"ln_f.weight"}), "ln_f.weight");
  EXPECT_EQ(JoinNames({"h.3.bias"}), "h.3.bias");
  EXPECT_EQ(JoinNames({"h.0.a", "h.0.b", "h.1.a", "h.1.b", "z", "h.2.a", "h.5.a"}),
            "h.{0-2,5}.a, h.{0-1}.b, z");
  EXPECT_EQ(JoinNames({"h.10.a", "h.9.a", "h.1.a"}), "h.{1,9-10}.a");
  EXPECT_EQ(JoinNames({"1", "0"}), "{0-1}");
  EXPECT_EQ(JoinNames({"a", "a", "h.1.a", "h.1.a"}), "a, h.1.a");
}

TEST(JoinNames, TakesNumbersOneAfterAnother) {
  std::vector<std::string> names;
  for (int layer = 0; layer < 2; ++layer) {
    for (int expert = 0; expert < 3; ++expert)
      names.push_back("l." + std::to_string(layer) + ".e." + std::to_string(expert) + ".w1");
  }
  EXPECT_EQ(JoinNames(names), "l.{0-1}.e.{0-2}.w1");
  EXPECT_EQ(JoinNames({"l.0.e.0.w", "l.1.e.1.w"}), "l.0.e.0.w, l.1.e.1.w");
}

TEST(JoinNames, LeavesOtherNumbersAsTheyAre) {
  EXPECT_EQ(JoinNames({"h.01.a", "h.02.a"}), "h.01.a, h.02.a");
  EXPECT_EQ(JoinNames({"w1.a", "w2.a"}), "w1.a, w2.a");
  EXPECT_EQ(JoinNames({"h.12345678901234567890.a", "h.1.a"}), "h.12345678901234567890.a, h.1.a");
  EXPECT_EQ(JoinNames({"h.0.a (found [2.5])", "h.1.a (found [2.5])", "h.2.a (found [3])"}),
            "h.{0-1}.a (found [2.5]), h.2.a (found [3])");
  EXPECT_EQ(JoinNames({".", "..", "{", "{}"}), "., .., {, {}");
}

Tensor Of(const Dims& shape, DataType dtype = DataType::kFloat32) {
  return Tensor::Empty(shape, dtype);
}

TEST(TensorChecklist, NamesAllThatIsWrong) {
  TensorChecklist checklist("a file", {{"h.0.a", Of({2})},
                                       {"h.1.a", Of({3})},
                                       {"h.0.b", Of({1}, DataType::kInt32)},
                                       {"h.1.b", Of({1}, DataType::kFloat64)},
                                       {"old", Of({1})},
                                       {"buffer", Of({1})}});
  EXPECT_TRUE(checklist.Contains("h.0.a"));
  EXPECT_FALSE(checklist.Contains("h.0.c"));
  EXPECT_TRUE(checklist.ContainsPrefix("h."));
  EXPECT_FALSE(checklist.ContainsPrefix("i."));
  EXPECT_TRUE(checklist.Expect("h.0.a", {2}));
  EXPECT_FALSE(checklist.Expect("h.1.a", {2}));
  EXPECT_FALSE(checklist.ExpectFloating("h.0.b", {1}));
  EXPECT_FALSE(checklist.ExpectType("h.1.b", {1}, DataType::kFloat32));
  EXPECT_FALSE(checklist.ExpectFloating("h.0.c", {1}));
  EXPECT_FALSE(checklist.ExpectType("h.1.c", {1}, DataType::kFloat32));
  checklist.NoteValues("h.0.a", "0 or 1", 2);
  EXPECT_EQ(MessageOf([&] {
              checklist.ThrowIfWrong("the test",
                                     [](std::string_view name) { return name == "buffer"; });
            }),
            "a file does not fit the test; missing: h.{0-1}.c; unexpected: old; wrong shape: h.1.a "
            "(expected [2], found [3]); wrong type: h.0.b (expected a floating type, found int32), "
            "h.1.b (expected float32, found float64); wrong values: h.0.a (expected 0 or 1, found "
            "2)");
}

TEST(TensorChecklist, AllowsWhatIsAsExpected) {
  TensorChecklist checklist("a file", {{"a", Of({2})}, {"b", Of({}, DataType::kInt32)}});
  EXPECT_TRUE(checklist.ExpectFloating("a", {2}));
  EXPECT_TRUE(checklist.ExpectType("b", {}, DataType::kInt32));
  EXPECT_NO_THROW(checklist.ThrowIfWrong("the test"));
}

TEST(TensorChecklist, KnowsTheTensorsOfAFile) {
  struct File {
    std::string path() const { return "a file"; }
    std::vector<std::string> Names() const { return {"a"}; }
    DataType dtype(const std::string&) const { return DataType::kFloat32; }
    Dims shape(const std::string&) const { return {2}; }
  };
  auto checklist = TensorChecklist::Of(File());
  EXPECT_ERROR(checklist.ThrowIfWrong("the test"), "a file does not fit the test; unexpected: a");
  EXPECT_TRUE(checklist.ExpectFloating("a", {2}));
  EXPECT_NO_THROW(checklist.ThrowIfWrong("the test"));
}

}  // namespace
}  // namespace infini_train
