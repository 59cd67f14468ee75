#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "infini_train/core/device/device_guard.h"

namespace infini_train::allocator {

struct Pool;

/// Sizes of all blocks are multiples of this, so that every block is aligned to it.
inline constexpr std::size_t kBlockUnit = 512;

/// A piece of a segment obtained from the provider. The blocks of a segment tile it and are linked
/// in address order. Those of an ExpandableSegment without memory are free in its own lists.
struct Block {
  std::byte* pointer = nullptr;
  std::size_t size = 0;  ///< bytes
  Pool* pool = nullptr;
  int size_class = 0;
  bool is_free = false;        ///< whether it is in free lists
  bool is_live = false;        ///< whether somebody holds it: from Allocate to Free
  bool is_expandable = false;  ///< whether its segment is an ExpandableSegment
  bool is_mapped = true;       ///< whether there is memory behind its addresses
  Block* previous = nullptr;
  Block* next = nullptr;
  Block* previous_free = nullptr;
  Block* next_free = nullptr;
  /// Other streams than the pool's that have used the block.
  std::vector<StreamHandle> streams;
  /// Unfinished events that keep the block from being reused.
  int pending_events = 0;

  bool IsWholeSegment() const { return previous == nullptr && next == nullptr && !is_expandable; }
};

/// Free blocks binned by size, linked through the blocks: no operation allocates memory. Sizes
/// below 64 units have a bin each, larger ones share eight bins per power of two.
class FreeLists {
 public:
  void Insert(Block* block) {
    const int bin = BinOf(block->size);
    block->is_free = true;
    block->previous_free = nullptr;
    block->next_free = heads_[bin];
    if (block->next_free != nullptr) block->next_free->previous_free = block;
    heads_[bin] = block;
    occupied_[bin / 64] |= std::uint64_t{1} << (bin % 64);
  }

  void Remove(Block* block) {
    const int bin = BinOf(block->size);
    block->is_free = false;
    if (block->next_free != nullptr) block->next_free->previous_free = block->previous_free;
    if (block->previous_free != nullptr) {
      block->previous_free->next_free = block->next_free;
      return;
    }
    heads_[bin] = block->next_free;
    if (heads_[bin] == nullptr) occupied_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
  }

  /// Removes and returns the smallest block of at least `size` bytes, the most recently freed one
  /// among equals; null if there is none.
  Block* TakeBestFit(std::size_t size) {
    for (int bin = NextOccupied(BinOf(size)); bin < kBins; bin = NextOccupied(bin + 1)) {
      Block* best = nullptr;
      for (Block* block = heads_[bin]; block != nullptr; block = block->next_free) {
        if (block->size < size || (best != nullptr && block->size >= best->size)) continue;
        best = block;
        if (block->size == size) break;
      }
      if (best != nullptr) {
        Remove(best);
        return best;
      }
    }
    return nullptr;
  }

  /// Calls `visit` for every block, smallest bin first. `visit` may remove the block.
  template <typename Visit>
  void ForEach(Visit&& visit) {
    for (int bin = NextOccupied(0); bin < kBins; bin = NextOccupied(bin + 1)) {
      for (Block* block = heads_[bin]; block != nullptr;) {
        Block* next = block->next_free;
        visit(block);
        block = next;
      }
    }
  }

 private:
  static constexpr int kBins = 512;

  static int BinOf(std::size_t size) {
    const std::size_t units = size / kBlockUnit;
    if (units < 64) return static_cast<int>(units);
    const int log2 = std::bit_width(units) - 1;
    return 64 + (log2 - 6) * 8 + static_cast<int>((units >> (log2 - 3)) & 7);
  }

  /// The first non-empty bin from `bin` on; kBins if there is none.
  int NextOccupied(int bin) const {
    for (int word = bin / 64; word < kBins / 64; ++word) {
      const std::uint64_t mask =
          word == bin / 64 ? ~std::uint64_t{0} << (bin % 64) : ~std::uint64_t{0};
      if (const std::uint64_t bits = occupied_[word] & mask)
        return word * 64 + std::countr_zero(bits);
    }
    return kBins;
  }

  std::array<Block*, kBins> heads_{};
  std::array<std::uint64_t, kBins / 64> occupied_{};
};

}  // namespace infini_train::allocator
