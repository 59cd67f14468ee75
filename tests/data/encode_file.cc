// encode_file TOKENIZER TEXT OUT [REPETITIONS]
//
// Encodes a text file, writes its ids as int32 to OUT and prints the best throughput of the
// repetitions. compare_tokenizers.py runs it beside the `tokenizers` package.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "infini_train/core/file.h"
#include "infini_train/data/tokenizer.h"

namespace {

// Time of this process alone, so that other work on the machine does not count.
double CpuSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace infini_train;
  if (argc < 4) {
    std::fprintf(stderr, "usage: encode_file TOKENIZER TEXT OUT [REPETITIONS]\n");
    return 2;
  }
  try {
    const double start = CpuSeconds();
    const auto tokenizer = LoadTokenizer(argv[1]);
    const double loading = CpuSeconds() - start;
    const std::string text = ReadFile(argv[2]);
    std::vector<int32_t> ids;
    double first = 0, best = 0;
    for (int i = 0; i < (argc > 4 ? std::atoi(argv[4]) : 1); ++i) {
      ids.clear();
      const double begin = CpuSeconds();
      tokenizer->EncodeTo(text, ids);
      const double rate = static_cast<double>(text.size()) / 1e6 / (CpuSeconds() - begin);
      if (i == 0) first = rate;
      if (rate > best) best = rate;
    }
    const auto bytes = std::as_bytes(std::span(ids));
    WriteFileAtomically(argv[3], {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const bool same = tokenizer->Decode(ids) == text;
    std::printf("%.4f %.2f %.2f %d\n", loading, first, best, same ? 1 : 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "encode_file: %s\n", error.what());
    return 2;
  }
  return 0;
}
