// What is wrong with the tensors of a file is said in one message that names all of them.

#include "infini_train/checkpoint/tensor_checklist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/checkpoint/safetensors.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"

namespace infini_train::checkpoint {
namespace {

using infini_train::testing::MessageOf;
using infini_train::testing::TemporaryFolder;

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

TEST(TensorChecklist, NamesAllThatIsWrong) {
  const TemporaryFolder folder;
  const std::string path = folder / "t.safetensors";
  WriteSafetensors(path, {{"h.0.a", Zeros({2})},
                          {"h.1.a", Zeros({3})},
                          {"h.0.b", Zeros({1}, DataType::kInt32)},
                          {"old", Zeros({1})},
                          {"buffer", Zeros({1})}});
  TensorChecklist checklist{SafetensorsFile(path)};
  EXPECT_TRUE(checklist.ContainsPrefix("h."));
  EXPECT_FALSE(checklist.ContainsPrefix("i."));
  EXPECT_TRUE(checklist.Expect("h.0.a", {2}));
  EXPECT_FALSE(checklist.Expect("h.1.a", {2}));
  EXPECT_FALSE(checklist.Expect("h.0.b", {1}));
  EXPECT_FALSE(checklist.Expect("h.0.c", {1}));
  EXPECT_FALSE(checklist.Expect("h.1.c", {1}));
  EXPECT_EQ(MessageOf([&] {
              checklist.ThrowIfWrong("the test",
                                     [](std::string_view name) { return name == "buffer"; });
            }),
            path +
                " does not fit the test; missing: h.{0-1}.c; unexpected: old; wrong shape: h.1.a "
                "(expected [2], found [3]); wrong type: h.0.b (expected a floating type, found "
                "int32)");
}

TEST(TensorChecklist, AllowsWhatIsAsExpected) {
  const TemporaryFolder folder;
  const std::string path = folder / "t.safetensors";
  WriteSafetensors(path, {{"a", Zeros({2})}});
  TensorChecklist checklist{SafetensorsFile(path)};
  EXPECT_TRUE(checklist.Expect("a", {2}));
  EXPECT_NO_THROW(checklist.ThrowIfWrong("the test"));
}

}  // namespace
}  // namespace infini_train::checkpoint
