#include "infini_train/data/tokenizer/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

namespace infini_train {
namespace {

// Up to here, looking for the lowest rank in an array is faster than keeping a heap.
constexpr size_t kShort = 64;

}  // namespace

void MergeTable::Reserve(size_t count) {
  const size_t slots = std::bit_ceil(2 * count + 2);
  entries_.assign(slots, Entry{});
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::Add(int32_t left, int32_t right, const Merge& merge) {
  const uint64_t key = KeyOf(left, right);
  size_t i = SlotOf(key);
  while (entries_[i].key != kEmpty && entries_[i].key != key)
    i = (i + 1) & mask_;
  entries_[i] = {key, merge};
}

void MergeTable::Apply(std::vector<int32_t>& symbols) const {
  if (symbols.size() < 2) return;
  symbols.size() <= kShort ? ApplyToShort(symbols) : ApplyToLong(symbols);
}

void MergeTable::ApplyToShort(std::vector<int32_t>& symbols) const {
  std::array<uint32_t, kShort> ranks;  // of the merge of each symbol with the next
  std::array<int32_t, kShort> merged;  // what it gives
  size_t size = symbols.size();
  const auto look_up = [&](size_t i) {
    const Merge merge = Find(symbols[i], symbols[i + 1]);
    ranks[i] = merge.rank;
    merged[i] = merge.id;
  };
  for (size_t i = 0; i + 1 < size; ++i)
    look_up(i);
  while (size > 1) {
    const size_t best = static_cast<size_t>(
        std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(size - 1)) -
        ranks.begin());
    if (ranks[best] == kNoMerge) break;
    symbols[best] = merged[best];
    --size;
    for (size_t i = best + 1; i < size; ++i)
      symbols[i] = symbols[i + 1];
    for (size_t i = best; i + 1 < size; ++i) {
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    if (best + 1 < size) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  symbols.resize(size);
}

void MergeTable::ApplyToLong(std::vector<int32_t>& symbols) const {
  constexpr size_t kNone = static_cast<size_t>(-1);
  struct Candidate {
    uint32_t rank;
    int32_t id;
    size_t position;
    // The top of a std::priority_queue is its largest element.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  // A doubly linked list of the symbols that are left; a merged right neighbour has id -1.
  const size_t size = symbols.size();
  std::vector<size_t> previous(size), next(size);
  for (size_t i = 0; i < size; ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    next[i] = i + 1 == size ? kNone : i + 1;
  }
  std::vector<Candidate> initial;
  for (size_t i = 0; i + 1 < size; ++i) {
    const Merge merge = Find(symbols[i], symbols[i + 1]);
    if (merge.rank != kNoMerge) initial.push_back({merge.rank, merge.id, i});
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(initial));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const size_t left = best.position;
    if (symbols[left] < 0 || next[left] == kNone) continue;
    const size_t right = next[left];
    // An entry is out of date if one of its symbols has been merged since.
    const Merge now = Find(symbols[left], symbols[right]);
    if (now.rank != best.rank || now.id != best.id) continue;
    symbols[left] = best.id;
    symbols[right] = -1;
    next[left] = next[right];
    if (next[left] != kNone) previous[next[left]] = left;
    const auto consider = [&](size_t i) {
      if (i == kNone || next[i] == kNone) return;
      const Merge merge = Find(symbols[i], symbols[next[i]]);
      if (merge.rank != kNoMerge) queue.push({merge.rank, merge.id, i});
    };
    consider(previous[left]);
    consider(left);
  }
  std::erase(symbols, -1);
}

}  // namespace infini_train
