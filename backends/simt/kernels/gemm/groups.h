#pragma once

#include <cstdint>

#include "backends/simt/dialect.h"

namespace infini_train::simt {

/// Groups of rows that follow each other: how many rows each has stands on the device.
struct Groups {
  const std::int64_t* counts;
  std::int64_t number;
  std::int64_t rows;  ///< of all groups, and of none
};

/// Walks over the groups, then over one more of the rows that are in none. Whatever the counts are,
/// no group reaches beyond the rows.
class GroupCursor {
 public:
  SIMT_DEVICE explicit GroupCursor(const Groups& groups) : groups_(groups) { Read(); }

  /// The group's number; Groups::number for the rows in none, more behind them.
  SIMT_DEVICE std::int64_t group() const { return group_; }
  SIMT_DEVICE std::int64_t first() const { return first_; }
  SIMT_DEVICE std::int64_t count() const { return count_; }

  SIMT_DEVICE void Next() {
    first_ += count_;
    ++group_;
    Read();
  }

 private:
  SIMT_DEVICE void Read() {
    const std::int64_t left = groups_.rows - first_;
    count_ = left;
    if (group_ < groups_.number) {
      count_ = Load(groups_.counts + group_);
      count_ = count_ < 0 ? 0 : (count_ < left ? count_ : left);
    }
  }

  Groups groups_;
  std::int64_t group_ = 0;
  std::int64_t first_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace infini_train::simt
