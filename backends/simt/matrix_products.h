#pragma once

#include <cstdint>

namespace infini_train::simt {

/// Products of small matrices of T by all lanes of a logical group of 32 together, where the device
/// has instructions for them. A platform that has specialises it, with `kExist` true and
///
///     static void Add(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2])
///
/// which is sums [16, 8] += a [16, 16] @ b [16, 8] of a type of two bytes, two elements to a word.
/// Lane i of the group has, of row i / 4 of a, columns 2 (i % 4) and the next one; the same columns
/// of row i / 4 + 8; and then both rows' columns 8 further on. Of b it has, of column i / 4, rows
/// 2 (i % 4) and the next one, and those 8 further on; of the sums, columns 2 (i % 4) and the next
/// one of row i / 4, then of row i / 4 + 8 (as CUDA's PTX ISA has them, "Matrix multiply-accumulate
/// operation using mma instruction").
template <typename T>
struct MatrixProducts {
  static constexpr bool kExist = false;
};

}  // namespace infini_train::simt
