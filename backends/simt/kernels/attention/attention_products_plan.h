#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

/// In which pieces attention by products works: blocks of queries or keys, and chunks of heads.
///
/// Heads are those of keys and values, counted through the batch: the head h of sample b is the
/// b KV + h-th. Each has `group` query heads. Rows of a head's matrices of queries are their
/// positions and, of each position, the query heads.
namespace infini_train::simt {

/// How much is worked on at once.
struct ProductsLimits {
  std::int64_t positions = 256;                  ///< queries, or keys, of a block
  std::int64_t scores = std::int64_t{16} << 20;  ///< of chunks of heads, unless one has more
  std::int64_t heads = 65535;                    ///< of a chunk: products of a call
};

/// What of attention the pieces depend on.
struct ProductsShape {
  std::int64_t batch, kv_heads, group;
  std::int64_t queries, keys;
  std::int64_t window;  ///< 0 for none
  bool causal;

  /// The keys that a query sees are those from FirstKey on and before EndKey.
  std::int64_t EndKey(std::int64_t query) const {
    return causal ? std::clamp<std::int64_t>(query + 1 + keys - queries, 0, keys) : keys;
  }
  std::int64_t FirstKey(std::int64_t query) const {
    return window > 0 ? std::max<std::int64_t>(EndKey(query) - window, 0) : 0;
  }
  /// The first query that sees a key.
  std::int64_t FirstSeeing() const {
    return causal ? std::clamp<std::int64_t>(queries - keys, 0, queries) : 0;
  }
};

/// Scores of some queries with some keys.
struct ScoresBlock {
  std::int64_t first_query, queries;
  std::int64_t first_key, keys;
  std::int64_t rows;   ///< of a head
  std::int64_t pitch;  ///< of rows of scores: libraries are fast where they begin at 16 bytes

  ScoresBlock(const ProductsShape& shape, std::int64_t first_query, std::int64_t queries,
              std::int64_t first_key, std::int64_t keys)
      : first_query(first_query),
        queries(queries),
        first_key(first_key),
        keys(keys),
        rows(queries * shape.group),
        pitch((keys + kAlignment - 1) / kAlignment * kAlignment) {}

  static constexpr std::int64_t kAlignment = 8;

  std::int64_t scores() const { return rows * pitch; }
};

/// The length of the pieces, about equal, of a range, none above `most`.
inline std::int64_t PieceLength(std::int64_t length, std::int64_t most) {
  constexpr std::int64_t kMultiple = 32;
  const std::int64_t pieces = (length + most - 1) / most;
  const std::int64_t least = (length + pieces - 1) / std::max<std::int64_t>(pieces, 1);
  return std::min(most, (least + kMultiple - 1) / kMultiple * kMultiple);
}

/// Blocks of queries, with all keys that they see. Queries that see none are in no block.
inline std::vector<ScoresBlock> BlocksOfQueries(const ProductsShape& shape,
                                                const ProductsLimits& limits = {}) {
  std::vector<ScoresBlock> blocks;
  const std::int64_t seeing = shape.FirstSeeing();
  const std::int64_t length = PieceLength(shape.queries - seeing, limits.positions);
  for (std::int64_t first = seeing; first < shape.queries; first += length) {
    const std::int64_t count = std::min(length, shape.queries - first);
    const std::int64_t first_key = shape.FirstKey(first);
    blocks.emplace_back(shape, first, count, first_key,
                        shape.EndKey(first + count - 1) - first_key);
  }
  return blocks;
}

/// Blocks of all keys, with the queries that see any of them, which may be none.
inline std::vector<ScoresBlock> BlocksOfKeys(const ProductsShape& shape,
                                             const ProductsLimits& limits = {}) {
  std::vector<ScoresBlock> blocks;
  const std::int64_t length = PieceLength(shape.keys, limits.positions);
  for (std::int64_t first = 0; first < shape.keys; first += length) {
    const std::int64_t count = std::min(length, shape.keys - first);
    std::int64_t query = shape.FirstSeeing(), end = shape.queries;
    if (shape.causal) {
      const std::int64_t shift = shape.queries - shape.keys;
      query = std::max(query, first + shift);
      if (shape.window > 0) end = std::min(end, first + count - 1 + shift + shape.window);
    } else if (shape.window > 0 && first + count <= shape.keys - shape.window) {
      end = query;
    }
    blocks.emplace_back(shape, query, std::max<std::int64_t>(end - query, 0), first, count);
  }
  return blocks;
}

/// Lines of heads, in each of which heads are `step` apart, and so are their matrices in memory.
struct HeadLines {
  std::int64_t lines, line_step;
  std::int64_t length, step;

  /// All heads in one line, as where the matrices of a sample follow those of the one before.
  static HeadLines All(const ProductsShape& shape) {
    return {1, 0, shape.batch * shape.kv_heads, 1};
  }
  /// The heads of each sample, or those of one number in all samples, whichever are more.
  static HeadLines Longest(const ProductsShape& shape) {
    if (shape.kv_heads > shape.batch) return {shape.batch, shape.kv_heads, shape.kv_heads, 1};
    return {shape.kv_heads, 1, shape.batch, shape.kv_heads};
  }

  bool is_one() const { return lines == 1; }
};

/// Limits of chunks, so many of which are worked on at once.
inline ProductsLimits LimitsOf(int chunks) {
  ProductsLimits limits;
  limits.scores /= chunks;
  return limits;
}

/// Heads `first` + `step` i for i from 0 to `count`, the `offset`-th and following of a line.
struct HeadChunk {
  std::int64_t first, step, count;
  std::int64_t offset;
};

/// The chunks of a line for a block, about equally long.
inline std::vector<HeadChunk> ChunksOf(const HeadLines& lines, std::int64_t line,
                                       const ScoresBlock& block,
                                       const ProductsLimits& limits = {}) {
  const std::int64_t scores = std::max<std::int64_t>(block.scores(), 1);
  const std::int64_t most = std::clamp<std::int64_t>(limits.scores / scores, 1, limits.heads);
  const std::int64_t pieces = (lines.length + most - 1) / most;
  std::vector<HeadChunk> chunks;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t begin = lines.length * i / pieces;
    const std::int64_t end = lines.length * (i + 1) / pieces;
    chunks.push_back({line * lines.line_step + begin * lines.step, lines.step, end - begin, begin});
  }
  return chunks;
}

}  // namespace infini_train::simt
