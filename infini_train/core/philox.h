#pragma once

#include <array>
#include <cstdint>
#include <utility>

namespace infini_train {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four
/// 32-bit words for a 64-bit key and a 128-bit counter. Stateless, so that any element of a random
/// tensor is computed independently and equally on every device: element i of a tensor drawn with
/// (seed, offset) uses word i % 4 of counter {offset, i / 4} (both 64-bit, low word first).
constexpr std::array<std::uint32_t, 4> Philox4x32(std::uint64_t seed, std::uint64_t offset,
                                                  std::uint64_t block) {
  const std::uint32_t key0 = static_cast<std::uint32_t>(seed);
  const std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
  std::uint32_t c0 = static_cast<std::uint32_t>(block);
  std::uint32_t c1 = static_cast<std::uint32_t>(block >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(offset);
  std::uint32_t c3 = static_cast<std::uint32_t>(offset >> 32);
  const auto round = [&](std::uint32_t bump0, std::uint32_t bump1) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ (key0 + bump0);
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ (key1 + bump1);
    c3 = static_cast<std::uint32_t>(product0);
  };
  // Written out without a loop, so that loops over blocks vectorise.
  [&]<std::uint32_t... i>(std::integer_sequence<std::uint32_t, i...>) {
    (round(i * 0x9E3779B9u, i * 0xBB67AE85u), ...);
  }
  (std::make_integer_sequence<std::uint32_t, 10>());
  return {c0, c1, c2, c3};
}

/// A random word as a float in [0, 1): 24 bits, exact.
constexpr float UniformFromBits(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

}  // namespace infini_train
