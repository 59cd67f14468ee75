// Any bytes are a tokenizer that encodes and decodes, or are refused. What follows the first zero
// byte is the text to encode.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/data/tokenizer.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace infini_train;
  const uint8_t* const zero = std::find(data, data + size, uint8_t{0});
  const test::MemoryFile file(data, static_cast<size_t>(zero - data));
  std::string_view text = "ab  abc \u00e9\u4f60 it's 12\n\n<|endoftext|>\xff";
  if (zero != data + size) {
    text = {reinterpret_cast<const char*>(zero + 1), static_cast<size_t>(data + size - zero - 1)};
  }
  try {
    const auto tokenizer = LoadTokenizer(file.path());
    const std::vector<int32_t> ids = tokenizer->Encode(text, /*add_special_tokens=*/true);
    tokenizer->Decode(ids);
    StreamingDecoder decoder(tokenizer);
    for (const int32_t id : ids)
      decoder.Push(id);
    decoder.Finish();
    tokenizer->FindCut(text, text.size() / 2);
    tokenizer->Find(text);
  } catch (const Error&) {
  }
  return 0;
}
