#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "infini_train/core/json/json_node.h"
#include "infini_train/core/regex/regex.h"

namespace infini_train {

/// An entry of `added_tokens`: text that becomes one token before anything else looks at it.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      ///< left out by decoding on request
  bool lstrip = false;       ///< takes the white space before it along
  bool rstrip = false;       ///< takes the white space after it along
  bool single_word = false;  ///< not inside a word
  bool normalized = false;   ///< looked for in the normalized text
};

std::vector<AddedToken> LoadAddedTokens(const JsonNode& node);

/// Finds tokens in text: from the left, the longest of those that start at a place.
class AddedTokenSplitter {
 public:
  /// Contents are the tokens' as they appear in the text.
  explicit AddedTokenSplitter(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  /// Calls `on_text` for the stretches between tokens, which are not empty, and `on_token` for the
  /// tokens' ids, in order.
  template <typename OnText, typename OnToken>
  void Split(std::string_view text, OnText&& on_text, OnToken&& on_token) const {
    size_t taken = 0;
    Found found;
    for (size_t from = 0; Find(text, from, taken, found); from = found.next) {
      if (found.begin > taken) on_text(text.substr(taken, found.begin - taken));
      on_token(found.id);
      taken = found.end;
    }
    if (taken < text.size()) on_text(text.substr(taken));
  }

 private:
  struct Found {
    size_t begin = 0, end = 0;  // with the white space that the token takes along
    size_t next = 0;            // where to look on
    int32_t id = 0;
  };
  struct Node {
    int32_t token = -1;
    std::vector<std::pair<unsigned char, uint32_t>> children;  // by byte
  };

  bool Find(std::string_view text, size_t from, size_t taken, Found& found) const;
  // The longest token at `at`, or null.
  const AddedToken* LongestAt(std::string_view text, size_t at) const;
  bool IsInsideWord(std::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};  // bytes that a token starts with
  std::optional<Regex> word_;       // one character of a word
};

}  // namespace infini_train
