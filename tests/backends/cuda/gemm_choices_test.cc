// The file of algorithms for matrix products.

#include "kernels/gemm_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "infini_train/core/file.h"
#include "tests/common/temporary_folder.h"

namespace infini_train::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

GemmProblem::Key KeyOf(std::int64_t rows) {
  GemmProblem problem;
  problem.out.rows = rows;
  return problem.MakeKey();
}

cublasLtMatmulAlgo_t MakeAlgorithm(std::uint64_t seed) {
  cublasLtMatmulAlgo_t algorithm;
  for (std::uint64_t& word : algorithm.data)
    word = seed *= 0x9E3779B97F4A7C15u;
  return algorithm;
}

bool operator==(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) {
  return std::equal(std::begin(a.data), std::end(a.data), std::begin(b.data));
}

class GemmChoicesTest : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
  std::string path_ = folder_ / "new/gemm.txt";
};

TEST_F(GemmChoicesTest, AreKeptForTheNextProcess) {
  GemmChoices first(path_);
  EXPECT_TRUE(first.has_file());
  EXPECT_FALSE(first.Find("a GPU", KeyOf(1)).has_value());
  first.Keep("a GPU", KeyOf(1), MakeAlgorithm(1));
  first.Keep("a GPU", KeyOf(2), MakeAlgorithm(2));
  const GemmChoices second(path_);
  EXPECT_TRUE(second.Find("a GPU", KeyOf(1)).value() == MakeAlgorithm(1));
  EXPECT_TRUE(second.Find("a GPU", KeyOf(2)).value() == MakeAlgorithm(2));
  EXPECT_FALSE(second.Find("a GPU", KeyOf(3)).has_value());
  EXPECT_FALSE(second.Find("another GPU", KeyOf(1)).has_value());
}

TEST_F(GemmChoicesTest, TheFirstOneStaysUntilItIsDropped) {
  GemmChoices choices(path_);
  EXPECT_TRUE(choices.Keep("a GPU", KeyOf(1), MakeAlgorithm(1)) == MakeAlgorithm(1));
  EXPECT_TRUE(choices.Keep("a GPU", KeyOf(1), MakeAlgorithm(2)) == MakeAlgorithm(1));
  choices.Drop("a GPU", KeyOf(1));
  EXPECT_TRUE(choices.Keep("a GPU", KeyOf(1), MakeAlgorithm(3)) == MakeAlgorithm(3));
  EXPECT_TRUE(GemmChoices(path_).Find("a GPU", KeyOf(1)).value() == MakeAlgorithm(3));
}

TEST_F(GemmChoicesTest, OfTwoProcessesAddUp) {
  GemmChoices one(path_), other(path_);
  one.Keep("a GPU", KeyOf(1), MakeAlgorithm(1));
  other.Keep("a GPU", KeyOf(2), MakeAlgorithm(2));
  const GemmChoices both(path_);
  EXPECT_TRUE(both.Find("a GPU", KeyOf(1)).has_value());
  EXPECT_TRUE(both.Find("a GPU", KeyOf(2)).has_value());
}

TEST_F(GemmChoicesTest, LinesThatAreDamagedAreDropped) {
  GemmChoices(path_).Keep("a GPU", KeyOf(1), MakeAlgorithm(1));
  WriteFileAtomically(path_, ReadFile(path_) + "half a li");
  CaptureStderr();
  GemmChoices choices(path_);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("is damaged"));
  EXPECT_TRUE(choices.Find("a GPU", KeyOf(1)).has_value());
  EXPECT_TRUE(choices.has_file());
  choices.Keep("a GPU", KeyOf(2), MakeAlgorithm(2));
  EXPECT_TRUE(GemmChoices(path_).Find("a GPU", KeyOf(2)).has_value());
}

TEST_F(GemmChoicesTest, AFileOfAnotherKindIsLeftAlone) {
  const std::string path = folder_ / "letter.txt";
  WriteFileAtomically(path, "Dear reader,\n");
  CaptureStderr();
  GemmChoices choices(path);
  choices.Keep("a GPU", KeyOf(1), MakeAlgorithm(1));
  EXPECT_THAT(GetCapturedStderr(), StartsWith("warning: "));
  EXPECT_FALSE(choices.has_file());
  EXPECT_TRUE(choices.Find("a GPU", KeyOf(1)).has_value());
  EXPECT_EQ(ReadFile(path), "Dear reader,\n");
}

TEST_F(GemmChoicesTest, NoPathMeansNoFile) {
  CaptureStderr();
  GemmChoices choices("");
  choices.Keep("a GPU", KeyOf(1), MakeAlgorithm(1));
  EXPECT_EQ(GetCapturedStderr(), "");
  EXPECT_FALSE(choices.has_file());
  EXPECT_TRUE(choices.Find("a GPU", KeyOf(1)).has_value());
}

}  // namespace
}  // namespace infini_train::cuda
