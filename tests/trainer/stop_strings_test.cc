#include "infini_train/trainer/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "infini_train/core/error.h"
#include "tests/core/child_process.h"

namespace infini_train::trainer {
namespace {

TEST(StopStrings, WithoutAnyTextPassesAtOnce) {
  StopStrings stop({});
  EXPECT_EQ(stop.Push("abc"), "abc");
  EXPECT_EQ(stop.Finish(), "");
  EXPECT_FALSE(stop.found());
}

TEST(StopStrings, CutsAtTheFirstOfSeveral) {
  StopStrings stop({"END", "stop"});
  EXPECT_EQ(stop.Push("a stop and an END"), "a ");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.Push("more"), "");
  EXPECT_EQ(stop.Finish(), "");
}

TEST(StopStrings, FindsAStringThatArrivesInPieces) {
  StopStrings stop({"\n\nQ:"});
  EXPECT_EQ(stop.Push("answer\n"), "answer") << "the line end may begin the stop string";
  EXPECT_EQ(stop.Push("\n"), "");
  EXPECT_EQ(stop.Push("Q"), "");
  EXPECT_EQ(stop.Push(": next"), "");
  EXPECT_TRUE(stop.found());
}

TEST(StopStrings, ReleasesWhatTurnsOutToBeNone) {
  StopStrings stop({"aab"});
  EXPECT_EQ(stop.Push("xa"), "x");
  EXPECT_EQ(stop.Push("a"), "");
  EXPECT_EQ(stop.Push("a"), "a") << "the last two may still begin it";
  EXPECT_EQ(stop.Push("c"), "aac");
  EXPECT_EQ(stop.Push("aa"), "");
  EXPECT_EQ(stop.Finish(), "aa");
  EXPECT_FALSE(stop.found());
}

TEST(StopStrings, RefusesAnEmptyString) {
  EXPECT_ERROR(StopStrings({"a", ""}), "stop: expected text, got an empty string");
}

}  // namespace
}  // namespace infini_train::trainer
