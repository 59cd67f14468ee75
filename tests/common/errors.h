#pragma once

#include <gmock/gmock.h>

#include <string>

#include "infini_train/core/error.h"

namespace infini_train::testing {

/// The message of the Error that `body` throws; fails the test, and is empty, when it throws none.
template <typename Body>
std::string MessageOf(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << "expected one line: " << message;
    return message;
  }
  ADD_FAILURE() << "expected an infini_train::Error";
  return "";
}

}  // namespace infini_train::testing
