#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <type_traits>

#include "infini_train/core/error.h"

namespace infini_train::test {

/// The message of the Error that `call(body)` throws; fails the test, and is empty, when it throws
/// none.
inline std::string MessageOf(void (*call)(void*), void* body) {
  try {
    call(body);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << "expected one line: " << message;
    return message;
  }
  ADD_FAILURE() << "expected an infini_train::Error";
  return "";
}

/// The message of the Error that `body` throws, likewise.
template <typename Body>
std::string MessageOf(Body body) {
  return MessageOf([](void* function) { (*static_cast<Body*>(function))(); }, &body);
}

/// Expects an infini_train::Error whose message contains `part`. GoogleMock's ThrowsMessage would
/// compile matchers for each statement.
#define EXPECT_ERROR(statement, part)                                      \
  EXPECT_THAT(::infini_train::test::MessageOf([&] { (void)(statement); }), \
              ::testing::HasSubstr(part))

}  // namespace infini_train::test
