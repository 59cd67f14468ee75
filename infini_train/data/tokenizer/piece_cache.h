#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace infini_train {

/// A hash of a short string, for tables in memory only.
inline uint64_t HashPiece(std::string_view piece) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  const char* p = piece.data();
  size_t left = piece.size();
  uint64_t hash = left * kMultiplier;
  const auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  };
  for (; left >= 8; p += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    mix(word);
  }
  if (left >= 4) {
    uint32_t front, back;
    std::memcpy(&front, p, 4);
    std::memcpy(&back, p + left - 4, 4);
    mix(uint64_t{front} << 32 | back);
  } else if (left > 0) {
    mix(uint64_t{static_cast<unsigned char>(p[0])} << 16 |
        uint64_t{static_cast<unsigned char>(p[left / 2])} << 8 |
        static_cast<unsigned char>(p[left - 1]));
  }
  return hash * kMultiplier;
}

/// Remembers the token ids of pieces of up to kMostBytes that have up to kMostIds. Of two pieces
/// that share a slot, the later one stays.
template <size_t kMostBytes, size_t kMostIds, int kSlotBits>
class PieceCache {
 public:
  static bool Fits(std::string_view piece) { return piece.size() <= kMostBytes; }

  /// The ids of a piece; empty if it is not here. Valid until the next Store().
  std::span<const int32_t> Find(std::string_view piece, uint64_t hash) const {
    const Slot& slot = slots_[hash >> (64 - kSlotBits)];
    if (slot.num_bytes != piece.size() ||
        std::memcmp(slot.bytes, piece.data(), piece.size()) != 0) {
      return {};
    }
    return {slot.ids, slot.num_ids};
  }

  void Store(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
    if (ids.size() > kMostIds || ids.empty()) return;
    Slot& slot = slots_[hash >> (64 - kSlotBits)];
    slot.num_bytes = static_cast<uint8_t>(piece.size());
    slot.num_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(slot.bytes, piece.data(), piece.size());
    std::memcpy(slot.ids, ids.data(), ids.size() * sizeof(int32_t));
  }

 private:
  struct Slot {
    uint8_t num_bytes;
    uint8_t num_ids;
    char bytes[kMostBytes];
    int32_t ids[kMostIds];
  };

  std::unique_ptr<Slot[]> slots_ = std::make_unique<Slot[]>(size_t{1} << kSlotBits);
};

}  // namespace infini_train
