#pragma once

#include <cstdint>

namespace infini_train {

/// Where a stretch of text lies, which decides whether it gets a prefix.
enum class TextPlace : std::uint8_t {
  kStart,         ///< at the start of a text
  kContinuation,  ///< likewise, of a text that goes on where another ended: never with a prefix
  kInside,        ///< behind an added token, or behind a cut
};

}  // namespace infini_train
