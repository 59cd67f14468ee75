#include "backends/simt/kernels/index/row_sort.h"

#include <algorithm>

/// Merge sort: tiles in shared memory, from short runs sorted by counting, then runs of tiles in
/// global memory. An entry finds its place in the union of two runs by searching the other run, so
/// that all entries move at once and no run needs an order of its own.
namespace infini_train::simt {
namespace {

constexpr int kTile = 1024;
constexpr int kTileBlock = 256;
constexpr int kPerLane = kTile / kTileBlock;

/// Entries of shared or global memory under one name.
template <typename E>
struct SharedRun {
  Shared<E> entries;
  int base;

  SIMT_DEVICE E At(int i) const { return entries[base + i]; }
};
template <typename E>
struct GlobalRun {
  const E* entries;

  SIMT_DEVICE E At(std::int64_t i) const { return Load(entries + i); }
};

/// Where entry i of a row goes when sorted runs of `width`, a power of two, are merged in pairs.
template <typename Run, typename E, typename Index>
SIMT_DEVICE Index MergedPlace(const Run& run, const E& entry, Index i, Index width, Index length) {
  const Index pair = i & ~(2 * width - 1);
  const Index middle = pair + width < length ? pair + width : length;
  const Index end = middle + width < length ? middle + width : length;
  const bool is_left = i < middle;
  Index low = is_left ? middle : pair;
  const Index first = low;
  Index high = is_left ? end : middle;
  while (low < high) {
    const Index probe = low + (high - low) / 2;
    if (Precedes(run.At(probe), entry)) {
      low = probe + 1;
    } else {
      high = probe;
    }
  }
  return pair + (i - (is_left ? pair : middle)) + (low - first);
}

/// Entries that are sorted by counting, in one step.
constexpr int kCounted = 16;

/// Where entry i of a row goes when each run of kCounted entries is sorted.
template <typename Run, typename E>
SIMT_DEVICE int CountedPlace(const Run& run, const E& entry, int i, int length) {
  const int begin = i & ~(kCounted - 1);
  const int end = begin + kCounted < length ? begin + kCounted : length;
  int place = begin;
  for (int other = begin; other < end; ++other)
    place += Precedes(run.At(other), entry) ? 1 : 0;
  return place;
}

/// Makes entries of the elements of rows.
template <typename E>
struct ElementSource {
  const void* data;
  DataType dtype;
  bool descending;

  SIMT_DEVICE E At(std::int64_t i, std::int64_t position) const {
    const EntryKey<E> key = LoadKey<E>(data, dtype, i);
    return MakeEntry<E>(descending ? static_cast<EntryKey<E>>(~key) : key, position);
  }
};
template <typename E>
struct EntrySource {
  const E* entries;

  SIMT_DEVICE E At(std::int64_t i, std::int64_t) const { return Load(entries + i); }
};

/// Writes an element and its position where the sort ends. `values` is null before that.
struct Results {
  const void* x;
  void* values;
  std::int64_t* indices;
  int element_size;
  std::int64_t length;

  template <typename Word>
  SIMT_DEVICE void Move(std::int64_t to, std::int64_t from) const {
    Store(static_cast<Word*>(values) + to, Load(static_cast<const Word*>(x) + from));
  }

  SIMT_DEVICE void Write(std::int64_t to, std::int64_t row, std::int64_t position) const {
    Store(indices + to, position);
    const std::int64_t from = row * length + position;
    switch (element_size) {
      case 1:
        return Move<std::uint8_t>(to, from);
      case 2:
        return Move<std::uint16_t>(to, from);
      case 4:
        return Move<std::uint32_t>(to, from);
      default:
        return Move<std::uint64_t>(to, from);
    }
  }
};

/// How rows are cut into tiles: several tiles to a long row, or several short rows to a tile.
struct Tiling {
  std::int64_t rows;
  std::int64_t length;
  std::int64_t keep;           ///< of each sorted tile's row, its first entries
  std::int64_t tiles_per_row;  ///< above 1: rows_per_tile is 1
  std::int64_t rows_per_tile;
  std::int64_t tiles;
  std::int64_t out_length;  ///< of a row of what is kept

  Tiling(std::int64_t rows, std::int64_t length, std::int64_t keep)
      : rows(rows),
        length(length),
        keep(std::min<std::int64_t>(keep, std::min<std::int64_t>(length, kTile))),
        tiles_per_row((length + kTile - 1) / kTile),
        rows_per_tile(tiles_per_row > 1 ? 1 : kTile / length),
        tiles(tiles_per_row > 1 ? rows * tiles_per_row
                                : (rows + rows_per_tile - 1) / rows_per_tile),
        out_length((tiles_per_row - 1) * this->keep +
                   std::min(this->keep, length - (tiles_per_row - 1) * kTile)) {}
};

template <typename E, typename Source>
SIMT_KERNEL void SortTilesKernel(E* out, Results results, Source source, Tiling tiling) {
  SIMT_SHARED(E, tile, kTile);
  for (std::int64_t t = BlockIndex(); t < tiling.tiles; t += GridSize()) {
    const bool whole_rows = tiling.tiles_per_row == 1;
    const std::int64_t row = whole_rows ? t * tiling.rows_per_tile : t / tiling.tiles_per_row;
    const std::int64_t tile_of_row = whole_rows ? 0 : t % tiling.tiles_per_row;
    const std::int64_t begin = tile_of_row * kTile;
    const int length = static_cast<int>(tiling.length - begin < kTile ? tiling.length - begin
                                                                      : std::int64_t{kTile});
    const std::int64_t rows_left = tiling.rows - row;
    const int rows =
        static_cast<int>(rows_left < tiling.rows_per_tile ? rows_left : tiling.rows_per_tile);
    const int count = rows * length;
    int bases[kPerLane];
    for (int k = 0; k < kPerLane; ++k) {
      const int e = ThreadIndex() + k * kTileBlock;
      bases[k] = e / length * length;
      if (e < count) tile[e] = source.At(row * tiling.length + begin + e, begin + e - bases[k]);
    }
    SyncBlock();
    for (int width = 1; width < length; width = width == 1 ? kCounted : width * 2) {
      E entries[kPerLane];
      int places[kPerLane];
      for (int k = 0; k < kPerLane; ++k) {
        const int e = ThreadIndex() + k * kTileBlock;
        if (e >= count) continue;
        const SharedRun<E> run{tile, bases[k]};
        entries[k] = tile[e];
        places[k] =
            bases[k] + (width == 1 ? CountedPlace(run, entries[k], e - bases[k], length)
                                   : MergedPlace(run, entries[k], e - bases[k], width, length));
      }
      SyncBlock();
      for (int k = 0; k < kPerLane; ++k) {
        if (ThreadIndex() + k * kTileBlock < count) tile[places[k]] = entries[k];
      }
      SyncBlock();
    }
    for (int k = 0; k < kPerLane; ++k) {
      const int e = ThreadIndex() + k * kTileBlock;
      const int i = e - bases[k];
      if (e >= count || i >= tiling.keep) continue;
      const std::int64_t out_row = row + bases[k] / length;
      const std::int64_t to = out_row * tiling.out_length + tile_of_row * tiling.keep + i;
      const E entry = tile[e];
      if (results.values != nullptr) {
        results.Write(to, out_row, PositionOf(entry));
      } else {
        Store(out + to, entry);
      }
    }
    SyncBlock();
  }
}

/// Merges sorted runs of `width` entries in pairs.
template <typename E>
SIMT_KERNEL void MergeKernel(E* out, const E* in, std::int64_t count, std::int64_t length,
                             std::int64_t width) {
  for (std::int64_t g = GlobalThreadIndex(); g < count; g += GlobalThreadCount()) {
    const std::int64_t base = g / length * length;
    const GlobalRun<E> run{in + base};
    const E entry = Load(in + g);
    Store(out + base + MergedPlace(run, entry, g - base, width, length), entry);
  }
}

/// The first k entries of each row as results.
template <typename E>
SIMT_KERNEL void WriteResultsKernel(Results results, const E* entries, std::int64_t rows,
                                    std::int64_t length, std::int64_t k) {
  for (std::int64_t to = GlobalThreadIndex(); to < rows * k; to += GlobalThreadCount()) {
    const std::int64_t row = to / k;
    results.Write(to, row, PositionOf(Load(entries + row * length + to % k)));
  }
}

template <typename E, typename Source>
void SortTiles(const Context& context, E* out, const Results& results, const Source& source,
               const Tiling& tiling) {
  Launch(context, Rows(tiling.tiles, kTileBlock), &SortTilesKernel<E, Source>, out, results, source,
         tiling);
}

/// Merges sorted tiles to sorted rows.
template <typename E>
EntryRows<E> MergeTiles(const Context& context, EntryRows<E> entries) {
  if (entries.length <= kTile) return entries;
  const std::int64_t count = entries.rows * entries.length;
  EntryRows<E> other = EntryRows<E>::Empty(context, entries.rows, entries.length);
  for (std::int64_t width = kTile; width < entries.length; width *= 2) {
    Launch(context, Linear(count), &MergeKernel<E>, other.data(), entries.data(), count,
           entries.length, width);
    std::swap(entries, other);
  }
  return entries;
}

template <typename E>
void SortFirstAs(const Context& context, Tensor& values, Tensor& indices, const Tensor& x,
                 bool descending) {
  const std::int64_t k = values.size(-1);
  const bool discards = k <= kTile / 2 || x.size(-1) <= kTile;
  Tiling tiling(x.numel() / x.size(-1), x.size(-1), discards ? k : kTile);
  Results results{x.raw_data(), values.raw_data(), indices.data<std::int64_t>(),
                  static_cast<int>(SizeOf(x.dtype())), x.size(-1)};
  Results none = results;
  none.values = nullptr;
  const ElementSource<E> source{x.raw_data(), x.dtype(), descending};
  if (tiling.tiles_per_row == 1) {
    SortTiles<E>(context, nullptr, results, source, tiling);
    return;
  }
  auto entries = EntryRows<E>::Empty(context, tiling.rows, tiling.out_length);
  SortTiles<E>(context, entries.data(), none, source, tiling);
  // What is not among the first k of its tile is not among the first k of its row.
  while (discards) {
    tiling = Tiling(tiling.rows, tiling.out_length, k);
    const EntrySource<E> kept{entries.data()};
    if (tiling.tiles_per_row == 1) {
      SortTiles<E>(context, nullptr, results, kept, tiling);
      return;
    }
    auto fewer = EntryRows<E>::Empty(context, tiling.rows, tiling.out_length);
    SortTiles<E>(context, fewer.data(), none, kept, tiling);
    entries = fewer;
  }
  entries = MergeTiles(context, entries);
  Launch(context, Linear(values.numel()), &WriteResultsKernel<E>, results, entries.data(),
         entries.rows, entries.length, k);
}

}  // namespace

template <typename E>
EntryRows<E> SortEntries(const Context& context, EntryRows<E> entries) {
  if (entries.rows == 0 || entries.length <= 1) return entries;
  const Tiling tiling(entries.rows, entries.length, kTile);
  // In place: a block reads a tile before it writes it.
  SortTiles<E>(context, entries.data(), Results{}, EntrySource<E>{entries.data()}, tiling);
  return MergeTiles(context, entries);
}
template EntryRows<NarrowEntry> SortEntries(const Context&, EntryRows<NarrowEntry>);
template EntryRows<WideEntry> SortEntries(const Context&, EntryRows<WideEntry>);

void SortFirst(const Context& context, Tensor& values, Tensor& indices, const Tensor& x,
               bool descending) {
  if (values.numel() == 0) return;
  const bool narrow = SizeOf(x.dtype()) <= 4 && x.size(-1) < kMaxNarrowLength;
  const auto sort = narrow ? &SortFirstAs<NarrowEntry> : &SortFirstAs<WideEntry>;
  sort(context, values, indices, x, descending);
}

}  // namespace infini_train::simt
