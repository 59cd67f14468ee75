#include <infini/rt.h>

#include <gtest/gtest.h>

namespace infini::rt::runtime {
namespace {

TEST(ErrorText, NamesAreTheEnumerators) {
  EXPECT_STREQ(GetErrorName(kSuccess), "kSuccess");
  EXPECT_STREQ(GetErrorName(kErrorInvalidValue), "kErrorInvalidValue");
  EXPECT_STREQ(GetErrorName(kErrorStreamCaptureWrongThread), "kErrorStreamCaptureWrongThread");
  EXPECT_STREQ(GetErrorString(kSuccess), "no error");
}

TEST(ErrorText, UnknownCodesHaveFixedTexts) {
  auto unknown = static_cast<Error>(123456);
  ASSERT_NE(GetErrorName(unknown), nullptr);
  ASSERT_NE(GetErrorString(unknown), nullptr);
  EXPECT_STREQ(GetErrorName(unknown), "unrecognized error code");
}

TEST(Error, NumbersAreCudas) {
  EXPECT_EQ(static_cast<int>(kErrorMemoryAllocation), 2);
  EXPECT_EQ(static_cast<int>(kErrorInvalidMemcpyDirection), 21);
  EXPECT_EQ(static_cast<int>(kErrorInvalidDevice), 101);
  EXPECT_EQ(static_cast<int>(kErrorInvalidResourceHandle), 400);
  EXPECT_EQ(static_cast<int>(kErrorNotReady), 600);
  EXPECT_EQ(static_cast<int>(kErrorNotSupported), 801);
  EXPECT_EQ(static_cast<int>(kErrorStreamCaptureUnsupported), 900);
  EXPECT_EQ(static_cast<int>(kErrorCapturedEvent), 907);
}

TEST(Flags, BitsAreCudas) {
  EXPECT_EQ(kEventBlockingSync, 1u);
  EXPECT_EQ(kEventDisableTiming, 2u);
  EXPECT_EQ(kStreamNonBlocking, 1u);
}

}  // namespace
}  // namespace infini::rt::runtime
