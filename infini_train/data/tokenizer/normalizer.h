#pragma once

#include <memory>
#include <string>

#include "infini_train/core/json/json_node.h"
#include "infini_train/data/tokenizer/text_place.h"

namespace infini_train {

/// Changes text before it is cut into pieces, as the `normalizer` of a tokenizer.json says.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void Apply(std::string& text, TextPlace place) const = 0;
};

/// Reads NFC, Prepend, Replace and Sequence; a null node gives a null pointer.
std::unique_ptr<const Normalizer> LoadNormalizer(const JsonNode& node);

/// Replaces every occurrence, from the left; an empty pattern leaves the text alone.
void ReplaceAll(std::string& text, const std::string& pattern, const std::string& replacement);

}  // namespace infini_train
