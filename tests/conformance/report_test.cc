#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "infini_train/conformance/runner.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/fallback.h"
#include "tests/core/child_process.h"
#include "tests/core/mock_provider.h"

namespace infini_train {
namespace {

using test::InChildProcess;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

const Device kMock(DeviceType::kPrivateUse1, 0);

void RightNeg(const KernelContext& context, Tensor& out, const Tensor& x) {
  CallOnCpu<op::Neg>(context, out, x);
}
/// |x| where x^2 is asked for.
void WrongSquare(const KernelContext& context, Tensor& out, const Tensor& x) {
  CallOnCpu<op::Abs>(context, out, x);
}
/// Right, but for the memory behind each element.
void CarelessSqrt(const KernelContext& context, Tensor& out, const Tensor& x) {
  CallOnCpu<op::Sqrt>(context, out, x);
  if (out.offset() != 1 || out.strides().back() != 2) return;
  Tensor gaps = out.AsStrided(out.shape(), out.strides(), out.offset() - 1);
  CallOnCpu<op::Fill>(context, gaps, 0);
}
/// Takes float32 and bfloat16 only.
void NarrowExp(const KernelContext& context, Tensor& out, const Tensor& x) {
  if (x.dtype() == DataType::kFloat64 || x.dtype() == DataType::kFloat16)
    throw Error("Exp: no float64 and no float16 here");
  CallOnCpu<op::Exp>(context, out, x);
}
/// Takes every dtype, but float16 only where it is contiguous.
void UnevenAbs(const KernelContext& context, Tensor& out, const Tensor& x) {
  if (x.dtype() == DataType::kFloat16 && !x.IsContiguous())
    throw Error("Abs: no strided float16 here");
  CallOnCpu<op::Abs>(context, out, x);
}

REGISTER_KERNEL(kPrivateUse1, Neg, &RightNeg);
REGISTER_KERNEL(kPrivateUse1, Square, &WrongSquare);
REGISTER_KERNEL(kPrivateUse1, Sqrt, &CarelessSqrt);
REGISTER_KERNEL(kPrivateUse1, Exp, &NarrowExp);
REGISTER_KERNEL(kPrivateUse1, Abs, &UnevenAbs);

TEST(ConformanceSuites, CoverEveryDeclaredOp) {
  std::set<OpId> covered;
  for (const conformance::OpSuite& suite : conformance::OpSuites()) {
    EXPECT_FALSE(suite.shapes.empty());
    EXPECT_FALSE(suite.dtypes.empty());
    EXPECT_FALSE(suite.layouts.empty());
    covered.insert(suite.op);
  }
  for (int i = 0; i < kNumOps; ++i) {
    const auto id = static_cast<OpId>(i);
    EXPECT_TRUE(covered.contains(id)) << GetOpInfo(id).name << " has no suite";
  }
}

TEST(Conformance, TellsRightFromWrongNativeFromFallback) {
  InChildProcess([] {
    test::RegisterMockProvider();
    SetFallbackMode(FallbackMode::kSilent);
    const conformance::Report report = conformance::Run(
        {kMock, {"Neg", "Square", "Sqrt", "Exp", "Abs", "Log"}, /*benchmark=*/false, nullptr});
    ASSERT_EQ(report.ops.size(), 6u);
    EXPECT_EQ(report.device, kMock.ToString());
    EXPECT_EQ(report.NumNative(), 5);
    EXPECT_EQ(report.NumFailedOps(), 3);
    const auto result = [&](OpId id) {
      for (const conformance::OpResult& op : report.ops)
        if (op.op == id) return op;
      ADD_FAILURE() << "no result for " << GetOpInfo(id).name;
      return conformance::OpResult();
    };

    const conformance::OpResult neg = result(OpId::kNeg);
    EXPECT_TRUE(neg.is_native);
    EXPECT_THAT(neg.failures, ::testing::IsEmpty());
    ASSERT_FALSE(neg.accuracy.empty());
    EXPECT_EQ(neg.accuracy[0].worst_ulps, 0);
    EXPECT_GT(neg.accuracy[0].trials, 10);

    const conformance::OpResult square = result(OpId::kSquare);
    ASSERT_FALSE(square.failures.empty());
    EXPECT_THAT(square.failures[0], HasSubstr("float32 contiguous"));
    EXPECT_THAT(square.failures[0], HasSubstr("expected"));

    const conformance::OpResult root = result(OpId::kSqrt);
    ASSERT_FALSE(root.failures.empty());
    EXPECT_THAT(root.failures[0], HasSubstr("between the elements"));

    const conformance::OpResult exp = result(OpId::kExp);
    EXPECT_THAT(exp.failures, ::testing::IsEmpty());
    EXPECT_EQ(exp.skipped.size(), 2u);

    const conformance::OpResult abs = result(OpId::kAbs);
    EXPECT_THAT(abs.skipped, ::testing::IsEmpty());
    ASSERT_FALSE(abs.failures.empty());
    EXPECT_THAT(abs.failures[0], HasSubstr("no strided float16 here"));

    const conformance::OpResult log = result(OpId::kLog);
    EXPECT_FALSE(log.is_native);
    EXPECT_GT(log.fallbacks, 0u);
    EXPECT_THAT(log.failures, ::testing::IsEmpty());

    const auto json = nlohmann::json::parse(conformance::ToJson(report));
    EXPECT_EQ(json["num_failed"], 3);
    EXPECT_EQ(json["ops"].size(), 6u);
    EXPECT_EQ(json["ops"][0]["name"], "Neg");
    EXPECT_EQ(json["ops"][0]["support"], "native");
    const std::string markdown = conformance::ToMarkdown(report);
    EXPECT_THAT(markdown, HasSubstr("| Square | native |"));
    EXPECT_THAT(markdown,
                HasSubstr("| Log | falls back (" + std::to_string(log.fallbacks) + " times) |"));
    const std::string html = conformance::ToHtml(report);
    EXPECT_THAT(html, HasSubstr("5 / 6"));
    EXPECT_THAT(html, Not(HasSubstr("nan")));
  });
}

TEST(Conformance, MeasuresSpeed) {
  const conformance::Report report = conformance::Run({{}, {"Add"}, /*benchmark=*/true, nullptr});
  ASSERT_EQ(report.ops.size(), 1u);
  ASSERT_EQ(report.ops[0].speed.size(), 2u);
  for (const conformance::Speed& speed : report.ops[0].speed) {
    EXPECT_GT(speed.seconds, 0);
    EXPECT_GT(speed.least_bytes, 0);
  }
  EXPECT_THAT(conformance::ToMarkdown(report), HasSubstr("GB/s"));
}

TEST(Conformance, RefusesAnUnknownOp) {
  EXPECT_THAT(
      [] {
        conformance::Run({{}, {"Addd"}, false, nullptr});
      },
      ThrowsMessage<Error>(HasSubstr("no op 'Addd'")));
}

}  // namespace
}  // namespace infini_train
