#pragma once

#include <array>
#include <cstdint>

namespace infini_train {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four
/// 32-bit words for a 64-bit key and a 128-bit counter. Stateless, so that any element of a random
/// tensor is computed independently and equally on every device: element i of a tensor drawn with
/// (seed, offset) uses word i % 4 of counter {offset, i / 4} (both 64-bit, low word first).
constexpr std::array<std::uint32_t, 4> Philox4x32(std::uint64_t seed, std::uint64_t offset,
                                                  std::uint64_t block) {
  std::uint32_t key0 = static_cast<std::uint32_t>(seed);
  std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
  std::uint32_t c0 = static_cast<std::uint32_t>(block);
  std::uint32_t c1 = static_cast<std::uint32_t>(block >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(offset);
  std::uint32_t c3 = static_cast<std::uint32_t>(offset >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<std::uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// A random word as a float in [0, 1): 24 bits, exact.
constexpr float UniformFromBits(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

}  // namespace infini_train
