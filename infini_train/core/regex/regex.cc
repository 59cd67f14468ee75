#include "infini_train/core/regex/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

// Oniguruma's classes for UTF-8 text. PCRE2's own \s also matches U+180E and its \w lacks marks.
constexpr std::string_view kSpace = "\\p{White_Space}";
constexpr std::string_view kNotSpace = "\\P{White_Space}";
constexpr std::string_view kWordParts = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

constexpr uint32_t kMatchLimit = 10'000'000;    // backtracking points in one search
constexpr uint32_t kHeapLimitKib = 256 * 1024;  // memory for them, without JIT
constexpr size_t kJitStackBytes = size_t{64} << 20;

// Rewrites a pattern for PCRE2, or says why that cannot be done.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::optional<std::string> Run(std::string& translated) {
    while (!done()) {
      const char c = Take();
      if (c == '\\') {
        if (auto problem = Escape()) return problem;
      } else if (c == '[') {
        if (auto problem = OpenClass()) return problem;
      } else if (c == ']' && in_class_) {
        in_class_ = false;
        out_ += c;
      } else if (c == '&' && in_class_ && !done() && pattern_[at_] == '&') {
        return "the class intersection && is not supported";
      } else {
        out_ += c;
      }
    }
    translated = std::move(out_);
    return std::nullopt;
  }

 private:
  bool done() const { return at_ == pattern_.size(); }
  char Take() { return pattern_[at_++]; }

  std::optional<std::string> Escape() {
    if (done()) {
      out_ += '\\';
      return std::nullopt;
    }
    const char c = Take();
    switch (c) {
      case 's':
        out_ += kSpace;
        break;
      case 'S':
        out_ += kNotSpace;
        break;
      case 'w':
        out_ += in_class_ ? std::string(kWordParts) : fmt::format("[{}]", kWordParts);
        break;
      case 'W':
        if (in_class_) return "\\W inside a class is not supported";
        out_ += fmt::format("[^{}]", kWordParts);
        break;
      case 'h':
      case 'H':
      case 'b':
      case 'B':
        return fmt::format("\\{} is not supported", c);
      default:
        out_ += '\\';
        out_ += c;
    }
    return std::nullopt;
  }

  std::optional<std::string> OpenClass() {
    if (in_class_) {
      if (at_ < pattern_.size() && pattern_[at_] == ':') {
        out_ += '[';  // a POSIX class
        return std::nullopt;
      }
      return "a class inside a class is not supported";
    }
    in_class_ = true;
    out_ += '[';
    if (!done() && pattern_[at_] == '^') out_ += Take();
    if (!done() && pattern_[at_] == ']') {
      out_ += "\\]";
      ++at_;
    }
    return std::nullopt;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

std::string Pcre2Message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};

// What a search needs besides the expression; one for each thread, whatever it searches for.
struct Workspace {
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> match;
  std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack;
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context;
};

const Workspace& ThreadWorkspace() {
  thread_local const Workspace workspace = [] {
    Workspace w;
    w.match.reset(pcre2_match_data_create(1, nullptr));
    w.stack.reset(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr));
    w.context.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(w.context.get(), kMatchLimit);
    pcre2_set_heap_limit(w.context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(w.context.get(), nullptr, w.stack.get());
    return w;
  }();
  return workspace;
}

}  // namespace

struct Regex::Compiled {
  std::string place;
  std::string pattern;
  pcre2_code* code = nullptr;
  bool jit = false;

  ~Compiled() { pcre2_code_free(code); }
};

Regex::Regex(const JsonNode& node) : compiled_(std::make_unique<Compiled>()) {
  try {
    *this = Regex(node.String(), "");
  } catch (const Error& error) {
    node.Fail(error.what());
  }
}

Regex::Regex(const std::string& pattern, const std::string& place)
    : compiled_(std::make_unique<Compiled>()) {
  const std::string prefix = place.empty() ? "" : place + ": ";
  const auto fail = [&](const std::string& problem) {
    throw Error(
        fmt::format("{}expected a regular expression, found '{}': {}", prefix, pattern, problem));
  };
  compiled_->place = prefix;
  compiled_->pattern = pattern;
  std::string translated;
  if (const auto problem = Translator(pattern).Run(translated)) fail(*problem);

  const std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                    &offset, context.get());
  if (compiled_->code == nullptr) {
    fail(fmt::format("{} at byte {} of '{}'", Pcre2Message(code), offset, translated));
  }
  compiled_->jit = pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::Find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
  const Workspace& workspace = ThreadWorkspace();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (compiled_->jit) {
    result = pcre2_jit_match(compiled_->code, subject, text.size(), from, 0, workspace.match.get(),
                             workspace.context.get());
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result =
        pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                    workspace.match.get(), workspace.context.get());
  }
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    throw Error(
        fmt::format("{}the regular expression '{}' failed on a text of {} bytes at byte {}: {}",
                    compiled_->place, compiled_->pattern, text.size(), from, Pcre2Message(result)));
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(workspace.match.get());
  begin = offsets[0];
  end = offsets[1];
  // \\K in a look-around can put the start behind the end.
  if (begin > end || begin < from) {
    throw Error(fmt::format("{}the regular expression '{}' matches backwards", compiled_->place,
                            compiled_->pattern));
  }
  return true;
}

}  // namespace infini_train
