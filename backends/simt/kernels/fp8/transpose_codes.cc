#include "backends/simt/kernels/fp8/transpose_codes.h"

#include <bit>
#include <cstdint>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/fp8/code_tiles.h"

namespace infini_train::simt {
namespace {

constexpr int kLanes = 512;

/// What a lane reads at once: words of four codes of each row of a piece, zeros outside of the
/// matrix.
template <bool kVector>
struct PieceCodes {
  static constexpr int kWords = kLaneColumns / 4;
  using Row = Vec<std::uint8_t, kLaneColumns>;
  Vec<std::uint32_t, kWords> rows[kLaneRows];

  SIMT_DEVICE void Load(const std::uint8_t* matrix, std::int64_t stride, const Piece& piece) {
    const std::uint8_t* from = matrix + piece.row * stride + piece.column;
    SIMT_UNROLL
    for (int r = 0; r < kLaneRows; ++r, from += stride) {
      rows[r] = {};
      if constexpr (kVector) {
        if (r < piece.rows && piece.columns > 0)
          rows[r] = simt::Load<kWords>(reinterpret_cast<const std::uint32_t*>(from));
      } else {
        Row codes = {};
        SIMT_UNROLL
        for (int c = 0; c < kLaneColumns; ++c) {
          if (r < piece.rows && c < piece.columns) codes[c] = simt::Load(from + c);
        }
        rows[r] = std::bit_cast<Vec<std::uint32_t, kWords>>(codes);
      }
    }
  }
};

/// A block goes down over the tiles of a part of the rows, and reads the next one while it writes
/// one. kVector: rows and columns allow wide accesses.
template <bool kVector>
SIMT_KERNEL SIMT_RESIDENT(kLanes, 2) void TransposeCodesKernel(TransposedCodes out,
                                                               const std::uint8_t* codes,
                                                               std::int64_t parts,
                                                               std::int64_t part_rows) {
  constexpr int kRows = kTileRows<kLanes>;
  constexpr int kTileWords = kTileColumns * kRows / 4;
  using Places = ColumnPlaces<kRows / 4>;
  // Tiles in turn use one half and the other one, so that one barrier is enough.
  SIMT_SHARED(std::uint32_t, words, 2 * kTileWords);
  int half = 0;
  const int across = ThreadIndex() % kLanesAcross;
  const int down = ThreadIndex() / kLanesAcross;
  const std::int64_t step = GridSize() * kTileColumns;
  for (std::int64_t part = BlockIndexY(); part < parts; part += GridSizeY()) {
    const std::int64_t first_row = part * part_rows;
    const std::int64_t end_row = Min(first_row + part_rows, out.rows);
    for (std::int64_t tile_column = BlockIndex() * kTileColumns; tile_column < out.columns;
         tile_column += step) {
      const std::int64_t column = tile_column + across * kLaneColumns;
      PieceCodes<kVector> piece;
      std::int64_t row = first_row + down * kLaneRows;
      piece.Load(codes, out.columns, Piece::At(row, column, end_row, out.columns));
      for (std::int64_t tile_row = first_row; tile_row < end_row; tile_row += kRows) {
        std::uint32_t packed[kLaneColumns / 4][kLaneRows];
        SIMT_UNROLL
        for (int r = 0; r < kLaneRows; ++r) {
          SIMT_UNROLL
          for (int w = 0; w < kLaneColumns / 4; ++w)
            packed[w][r] = piece.rows[r][w];
        }
        row += kRows;
        piece.Load(codes, out.columns, Piece::At(row, column, end_row, out.columns));
        SIMT_UNROLL
        for (int w = 0; w < kLaneColumns / 4; ++w) {
          TransposeBytes(packed[w]);
          SIMT_UNROLL
          for (int c = 0; c < 4; ++c)
            words[half * kTileWords + Places::OfWord(across, 4 * w + c, down)] = packed[w][c];
        }
        SyncBlock();
        WriteColumns<kVector, kLanes>(out, words.Sub(half * kTileWords, kTileWords), tile_row,
                                      tile_column);
        half ^= 1;
      }
    }
  }
}

}  // namespace

void TransposeCodes(const Context& context, const Tensor& out, const Tensor& codes) {
  const TransposedCodes transposed = {out.data<std::uint8_t>(), codes.size(0), codes.size(1)};
  const CodeParts parts(transposed.rows, transposed.columns, kTileRows<kLanes>);
  const auto run = [&](auto vector) {
    Launch(context, parts.GeometryOf(kLanes), &TransposeCodesKernel<vector.value>, transposed,
           codes.data<std::uint8_t>(), parts.parts, parts.part_rows);
  };
  if (VectorWidth(codes.data<std::uint8_t>(), transposed.columns) >= kLaneColumns &&
      VectorWidth(transposed.data, transposed.rows) == kMaxVectorBytes) {
    run(std::true_type{});
  } else {
    run(std::false_type{});
  }
}

}  // namespace infini_train::simt
