#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace infini_train {

/// The merge rules of a BPE model, and applying them.
class MergeTable {
 public:
  static constexpr uint32_t kNoMerge = 0xFFFFFFFF;

  struct Merge {
    uint32_t rank = kNoMerge;
    int32_t id = -1;  ///< the token that the pair becomes
  };

  /// Room for `count` rules.
  void Reserve(size_t count);
  /// A rule for a pair that has one already replaces it.
  void Add(int32_t left, int32_t right, const Merge& merge);

  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = KeyOf(left, right);
    for (size_t i = SlotOf(key);; i = (i + 1) & mask_) {
      const Entry& entry = entries_[i];
      if (entry.key == key) return entry.merge;
      if (entry.key == kEmpty) return {};
    }
  }

  /// Merges the adjacent pair of lowest rank, the leftmost of equals, until no rule applies.
  /// O(n log n) for n symbols.
  void Apply(std::vector<int32_t>& symbols) const;

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  struct Entry {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t KeyOf(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t SlotOf(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15u;
    return (key ^ key >> 32) * 0x9E3779B97F4A7C15u >> shift_;
  }

  void ApplyToShort(std::vector<int32_t>& symbols) const;
  void ApplyToLong(std::vector<int32_t>& symbols) const;

  std::vector<Entry> entries_ = std::vector<Entry>(2);
  size_t mask_ = 1;
  int shift_ = 63;
};

}  // namespace infini_train
