#include "infini_train/data/permutation.h"

#include <algorithm>
#include <bit>

namespace infini_train {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that mixes all bits.
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed)
    : size_(size),
      half_bits_(std::max(1, static_cast<int>(std::bit_width(size > 0 ? size - 1 : 0) + 1) / 2)) {
  for (uint64_t& key : keys_) {
    seed += 0x9E3779B97F4A7C15u;
    key = Mix(seed);
  }
}

uint64_t Permutation::operator()(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = index >> half_bits_;
    uint64_t right = index & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (Mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    index = (left << half_bits_) | right;
  } while (index >= size_);
  return index;
}

}  // namespace infini_train
