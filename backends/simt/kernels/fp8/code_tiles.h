#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backends/simt/dialect.h"

/// Tiles of a matrix of FP8 codes, which are written transposed through shared memory.
namespace infini_train::simt {

// A block works on a tile; a lane on kLaneRows by kLaneColumns of it, which it transposes by words
// of four codes. Words of both directions then change hands in shared memory.
inline constexpr int kTileColumns = 128;
inline constexpr int kLaneRows = 4;
inline constexpr int kLaneColumns = 8;
inline constexpr int kLanesAcross = kTileColumns / kLaneColumns;
template <int kLanes>
inline constexpr int kTileRows = kLanes / kLanesAcross* kLaneRows;

// A block goes down over the tiles of a part of the rows. As many blocks as keep a large device
// busy, and few enough that their maxima do not queue; a number of the problem, as the order of the
// columns' sums is.
inline constexpr std::int64_t kQuantizeBlocks = 1536;
inline constexpr std::int64_t kMaxPartTiles = 16;

/// How a launch cuts a matrix into parts, down which its blocks go.
struct CodeParts {
  std::int64_t tiles_across, parts, part_rows;

  CodeParts(std::int64_t rows, std::int64_t columns, int tile_rows)
      : tiles_across((columns + kTileColumns - 1) / kTileColumns) {
    const std::int64_t tiles_down = (rows + tile_rows - 1) / tile_rows;
    const std::int64_t part_tiles =
        std::clamp<std::int64_t>(tiles_down * tiles_across / kQuantizeBlocks, 1, kMaxPartTiles);
    part_rows = part_tiles * tile_rows;
    parts = (tiles_down + part_tiles - 1) / part_tiles;
  }

  Geometry GeometryOf(int lanes) const {
    return {.grid_x = std::min(tiles_across, kMaxGridX),
            .grid_y = std::min(parts, kMaxGridYZ),
            .block = lanes};
  }
};

/// What a lane works on: neighbouring rows and columns of the matrix.
struct Piece {
  std::int64_t row, column;
  int rows, columns;  // that are inside of the matrix, if any

  SIMT_DEVICE static Piece At(std::int64_t row, std::int64_t column, std::int64_t rows,
                              std::int64_t columns) {
    return {row, column, static_cast<int>(Min<std::int64_t>(rows - row, kLaneRows)),
            static_cast<int>(Min<std::int64_t>(columns - column, kLaneColumns))};
  }
};

/// Where the codes of a tile's columns lie in shared memory: kWords words of four rows for a
/// column, moved about so that lanes that write a word of every kLaneColumns-th column do not meet
/// in a bank, nor do those that read a column by 16 bytes.
template <int kWords>
struct ColumnPlaces {
  static_assert((kWords == 16 || kWords == 32) && kLanesAcross == 16);

  /// Of a word of the column `column` among those of the lanes `across`.
  SIMT_DEVICE static int OfWord(int across, int column, int word) {
    const int low = (word & 3) ^ (across & 8) / 4;
    if constexpr (kWords == 32) {
      return (across * kLaneColumns + column) * kWords + ((word >> 2) ^ (across & 7)) * 4 + low;
    } else {
      // Neighbouring columns change places.
      const int odd = across & 1;
      return (across * kLaneColumns + column + (column % 2 == 0 ? odd : -odd)) * kWords +
             ((word >> 2) ^ (across >> 1 & 3)) * 4 + low;
    }
  }
  /// Of the four words from word on; where IsSwapped, the third and fourth come first.
  SIMT_DEVICE static int OfWords(int column, int word) {
    return OfWord(column / kLaneColumns, column % kLaneColumns, word) & ~3;
  }
  SIMT_DEVICE static bool IsSwapped(int column) { return (column / kLaneColumns & 8) != 0; }
};

/// Codes that are written transposed.
struct TransposedCodes {
  std::uint8_t* data;          // [columns, rows]
  std::int64_t rows, columns;  // of the matrix
};

/// Writes the rows from tile_row on of the columns from tile_column on, which lie in `words`.
template <bool kVector, int kLanes>
SIMT_DEVICE inline void WriteColumns(const TransposedCodes& codes,
                                     const Shared<std::uint32_t>& words, std::int64_t tile_row,
                                     std::int64_t tile_column) {
  constexpr int kRows = kMaxVectorBytes;
  constexpr int kPieces = kTileRows<kLanes> / kRows;
  using Places = ColumnPlaces<kTileRows<kLanes> / 4>;
  SIMT_UNROLL
  for (int i = 0; i < kTileColumns * kPieces / kLanes; ++i) {
    const int number = i * kLanes + ThreadIndex();
    const int column = number / kPieces;
    const std::int64_t to_row = tile_row + number % kPieces * kRows;
    if (tile_column + column >= codes.columns || to_row >= codes.rows) continue;
    const auto read = words.template Load<4>(Places::OfWords(column, number % kPieces * 4));
    const bool swapped = Places::IsSwapped(column);
    Vec<std::uint32_t, 4> column_codes;
    SIMT_UNROLL
    for (int k = 0; k < 4; ++k)
      column_codes[k] = swapped ? read[k ^ 2] : read[k];
    std::uint8_t* to = codes.data + (tile_column + column) * codes.rows + to_row;
    const auto bytes = std::bit_cast<Vec<std::uint8_t, kRows>>(column_codes);
    if constexpr (kVector) {
      Store(to, bytes);
    } else {
      for (int x = 0; x < kRows && to_row + x < codes.rows; ++x)
        Store(to + x, bytes[x]);
    }
  }
}

}  // namespace infini_train::simt
