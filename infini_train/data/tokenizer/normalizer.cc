#include "infini_train/data/tokenizer/normalizer.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/data/unicode/unicode.h"

namespace infini_train {
namespace {

constexpr size_t kMostContent = 256;

class Nfc : public Normalizer {
 public:
  void Apply(std::string& text, TextPlace) const override {
    std::string normalized;
    if (unicode::NormalizeNfc(text, normalized)) text = std::move(normalized);
  }
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void Apply(std::string& text, TextPlace place) const override {
    if (!text.empty() && place != TextPlace::kContinuation) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(std::string pattern, std::string replacement)
      : pattern_(std::move(pattern)), replacement_(std::move(replacement)) {}
  void Apply(std::string& text, TextPlace) const override {
    ReplaceAll(text, pattern_, replacement_);
  }

 private:
  std::string pattern_;
  std::string replacement_;
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const Normalizer>> parts)
      : parts_(std::move(parts)) {}
  void Apply(std::string& text, TextPlace place) const override {
    // Replacements that feed each other can double the text at each part.
    const size_t most = 16 * text.size() + 4096;
    for (const auto& part : parts_) {
      part->Apply(text, place);
      if (text.size() > most) {
        throw Error("the tokenizer's normalizer makes the text more than 16 times as long");
      }
    }
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};

// Sequences do not nest: a file cannot make the reader recurse.
std::unique_ptr<const Normalizer> LoadOne(const JsonNode& node) {
  const std::string& type = node.Type({"NFC", "Prepend", "Replace"});
  if (type == "NFC") return std::make_unique<Nfc>();
  if (type == "Prepend") return std::make_unique<Prepend>(node.Required("prepend").String());
  const JsonNode content = node.Required("content");
  if (content.String().size() > kMostContent) {
    content.Fail(
        fmt::format("expected at most {} bytes, found {}", kMostContent, content.String().size()));
  }
  return std::make_unique<Replace>(node.Required("pattern").Required("String").String(),
                                   content.String());
}

}  // namespace

void ReplaceAll(std::string& text, const std::string& pattern, const std::string& replacement) {
  if (pattern.empty()) return;
  size_t found = text.find(pattern);
  if (found == std::string::npos) return;
  std::string result;
  size_t begin = 0;
  for (; found != std::string::npos; found = text.find(pattern, begin)) {
    result.append(text, begin, found - begin).append(replacement);
    begin = found + pattern.size();
  }
  text = std::move(result.append(text, begin));
}

std::unique_ptr<const Normalizer> LoadNormalizer(const JsonNode& node) {
  if (node.is_null()) return nullptr;
  if (node.Type({"NFC", "Prepend", "Replace", "Sequence"}) != "Sequence") return LoadOne(node);
  const JsonNode list = node.Required("normalizers");
  std::vector<std::unique_ptr<const Normalizer>> parts;
  for (size_t i = 0; i < list.Size(); ++i)
    parts.push_back(LoadOne(list.At(i)));
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace infini_train
