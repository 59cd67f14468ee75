#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "infini_train/core/json/json_node.h"

namespace infini_train {

/// A regular expression as Oniguruma reads it, which those of a tokenizer.json are written for;
/// those of PEFT's files, written for Python, mean the same for names of layers. What means the
/// same to PCRE2 is compiled with it (UTF, Unicode properties, JIT), `\s` and `\w` are spelled out
/// as Oniguruma defines them, and what PCRE2 would read otherwise is refused.
class Regex {
 public:
  /// `node` holds the pattern. Throws Error naming its place unless that is a string, and a pattern
  /// that can be compiled.
  explicit Regex(const JsonNode& node);
  /// Throws Error that begins with `place` unless the pattern can be compiled.
  Regex(const std::string& pattern, const std::string& place);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Finds the next match at or after byte `from` of `text`, which must be well-formed UTF-8. Safe
  /// to call from several threads. Throws Error if the pattern needs more than the bounds on
  /// backtracking and memory to decide.
  bool Find(std::string_view text, size_t from, size_t& begin, size_t& end) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace infini_train
