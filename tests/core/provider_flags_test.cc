#include "infini_train/core/device/provider_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

bool fast = true;
std::int64_t limit = 3;

TEST(ProviderFlags, AreKeptByName) {
  RegisterProviderFlag({"chip_limit", "how many", &limit});
  RegisterProviderFlag({"chip_fast", "whether to hurry", &fast});
  RegisterProviderFlag({"chip_fast", "whether to hurry", &fast});
  const std::vector<ProviderFlag> flags = ProviderFlags();
  ASSERT_EQ(flags.size(), 2u);
  EXPECT_EQ(flags[0].name, "chip_fast");
  EXPECT_EQ(std::get<bool*>(flags[0].value), &fast);
  EXPECT_EQ(flags[1].name, "chip_limit");
}

TEST(ProviderFlags, RefusesBadNamesAndASecondOwner) {
  RegisterProviderFlag({"chip_fast", "", &fast});
  static bool other = false;
  EXPECT_THAT(
      [] {
        RegisterProviderFlag({"chip_fast", "", &other});
      },
      ThrowsMessage<Error>(HasSubstr("'chip_fast' is registered already")));
  for (const char* name : {"", "--chip", "Chip"}) {
    EXPECT_THAT(
        [&] {
          RegisterProviderFlag({name, "", &other});
        },
        ThrowsMessage<Error>(HasSubstr("is malformed")));
  }
}

}  // namespace
}  // namespace infini_train
