#include "infini_train/data/samples/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

void CheckLengths(std::span<const int64_t> lengths, int64_t capacity) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 1 || lengths[i] > capacity) {
      throw Error(fmt::format("sample {}: expected from 1 to {} tokens, found {}", i, capacity,
                              lengths[i]));
    }
  }
}

}  // namespace

PackedRows PackBestFit(std::span<const int64_t> lengths, int64_t capacity) {
  CheckLengths(lengths, capacity);
  std::vector<int64_t> by_length(lengths.size());
  std::iota(by_length.begin(), by_length.end(), 0);
  const auto length_of = [&](int64_t sample) { return lengths[static_cast<size_t>(sample)]; };
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](int64_t a, int64_t b) { return length_of(a) > length_of(b); });
  std::vector<int64_t> row_of(lengths.size());
  std::set<std::pair<int64_t, int64_t>> open;  // the room of a row, and the row
  int64_t rows = 0;
  for (const int64_t sample : by_length) {
    const int64_t length = length_of(sample);
    const auto best = open.lower_bound({length, 0});
    int64_t room = capacity;
    int64_t row = rows;
    if (best == open.end()) {
      ++rows;
    } else {
      std::tie(room, row) = *best;
      open.erase(best);
    }
    row_of[static_cast<size_t>(sample)] = row;
    if (room > length) open.emplace(room - length, row);
  }
  // Rows by their first samples, samples by row.
  std::vector<int64_t> place(static_cast<size_t>(rows), -1);
  std::vector<int64_t> count(static_cast<size_t>(rows), 0);
  int64_t next = 0;
  for (int64_t& row : row_of) {
    int64_t& at = place[static_cast<size_t>(row)];
    if (at < 0) at = next++;
    row = at;
    ++count[static_cast<size_t>(row)];
  }
  PackedRows packed;
  packed.row_begin.resize(static_cast<size_t>(rows) + 1);
  std::partial_sum(count.begin(), count.end(), packed.row_begin.begin() + 1);
  packed.samples.resize(lengths.size());
  std::vector<int64_t> end(packed.row_begin.begin(), packed.row_begin.end() - 1);
  for (size_t sample = 0; sample < lengths.size(); ++sample) {
    int64_t& at = end[static_cast<size_t>(row_of[sample])];
    packed.samples[static_cast<size_t>(at++)] = static_cast<int64_t>(sample);
  }
  return packed;
}

PackedRows OneInEachRow(std::span<const int64_t> lengths, int64_t capacity) {
  CheckLengths(lengths, capacity);
  PackedRows rows;
  rows.samples.resize(lengths.size());
  rows.row_begin.resize(lengths.size() + 1);
  std::iota(rows.samples.begin(), rows.samples.end(), 0);
  std::iota(rows.row_begin.begin(), rows.row_begin.end(), 0);
  return rows;
}

}  // namespace infini_train
