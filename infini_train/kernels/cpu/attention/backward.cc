#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "infini_train/kernels/cpu/attention/geometry.h"
#include "infini_train/kernels/cpu/gemm/microkernel.h"
#include "infini_train/kernels/cpu/gemm/pack.h"
#include "infini_train/kernels/cpu/gemm/scratch.h"
#include "infini_train/kernels/cpu/math.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

// The tensors of the op and what is computed once for all tasks.
struct Arguments {
  const Tensor& grad_q;
  const Tensor& grad_k;
  const Tensor& grad_v;
  const Tensor& grad_out;
  const Tensor& lse;
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  const AttentionParams& params;
  const AttentionGeometry& geometry;
  Tensor delta;  // [B, H, T]: sum over a row of grad_out * out
  Tensor
      query_sums;  // [chunks, B, H, T, padded D]: grad_q before it is rounded and summed; or none
  std::int64_t chunk_keys;
  std::vector<KeyRange> query_segments;
};

// Gradients of the keys and values of one chunk of one head, and what these keys contribute to the
// gradients of the queries. Weights are computed again from lse, a tile of queries by keys at a
// time (Dao, "FlashAttention-2", 2023). Keys lie along the vectors: the tiles of weights and of
// their gradients then are packed operands of the products that give grad_v and grad_k, transposed.
template <typename S>
class BackwardChunk {
 public:
  using T = ComputeType<S>;

  BackwardChunk(const Arguments& arguments, std::int64_t chunk, std::int64_t b,
                std::int64_t kv_head)
      : a_(arguments),
        g_(arguments.geometry),
        q_(a_.q),
        k_(a_.k),
        v_(a_.v),
        grad_out_(a_.grad_out),
        grad_q_(a_.grad_q),
        lse_(a_.lse),
        delta_(a_.delta),
        query_sums_(a_.query_sums.defined() ? a_.query_sums.data<T>() : nullptr),
        chunk_(chunk),
        b_(b),
        kv_head_(kv_head) {}

  // Keys of a tile: as many as keep their packed rows in the second-level cache.
  static std::int64_t TileKeys(std::int64_t head_size) {
    return std::clamp<std::int64_t>(kTileElements / (head_size * kStrip), 1, kMaxStrips) * kStrip;
  }

  void Run() {
    Allocate();
    const std::int64_t begin = chunk_ * a_.chunk_keys;
    const std::int64_t end = std::min(begin + a_.chunk_keys, g_.keys);
    for (std::int64_t h = kv_head_ * g_.group; h < (kv_head_ + 1) * g_.group; ++h)
      ZeroQueries(h);
    for (const KeyRange& queries : a_.query_segments) {
      // With samples there are as many keys as queries; else one segment has all.
      const KeyRange keys = g_.samples.empty() ? KeyRange{0, g_.keys} : queries;
      const std::int64_t last = std::min(end, keys.end);
      for (std::int64_t s0 = std::max(begin, keys.begin); s0 < last; s0 += tile_keys_)
        RunKeys(s0, std::min(tile_keys_, last - s0), queries);
    }
  }

 private:
  static constexpr std::int64_t kStrip = Tile<T>::kColumns;
  static constexpr std::int64_t kMaxStrips = 6;
  static constexpr std::int64_t kTileElements = 6 * 32 * 64;
  static constexpr std::int64_t kPanel = Tile<T>::kRows;
  static constexpr std::int64_t kPanels = 4;
  static constexpr std::int64_t kTileQueries = kPanels * kPanel;

  void Allocate() {
    static thread_local Scratch scratch;
    const std::int64_t d = g_.head_size;
    tile_keys_ = TileKeys(d);
    padded_ = (d + kStrip - 1) / kStrip * kStrip;
    const std::int64_t slack = kPackSlack<T>;
    T* next = scratch.Get<T>(static_cast<std::size_t>(
        4 * tile_keys_ * d + tile_keys_ * padded_ + 2 * kTileQueries * tile_keys_ +
        4 * kTileQueries * d + tile_keys_ * kPanel + kStrip * d + 13 * slack));
    const auto take = [&](std::int64_t count) {
      T* result = next;
      next += count + slack;
      return result;
    };
    keys_ = take(tile_keys_ * d);
    values_ = take(tile_keys_ * d);
    key_sums_ = take(tile_keys_ * d);
    value_sums_ = take(tile_keys_ * d);
    key_rows_ = take(tile_keys_ * padded_);
    weights_ = take(kTileQueries * tile_keys_);
    grads_ = take(kTileQueries * tile_keys_);
    for (T** packed : {&queries_, &outs_, &query_columns_, &out_columns_})
      *packed = take(kTileQueries * d);
    panel_ = take(tile_keys_ * kPanel);
    buffer_ = take(kStrip * d);
  }

  std::int64_t ColumnPanels() const { return (g_.head_size + kPanel - 1) / kPanel; }
  // First head element of a panel of nearly equal ones.
  std::int64_t ColumnPanel(std::int64_t i) const { return g_.head_size * i / ColumnPanels(); }

  // Where the gradient of query t is summed, and the distance to the next.
  T* QuerySums(std::int64_t h, std::int64_t t) const {
    if (query_sums_ == nullptr) {
      if constexpr (std::is_same_v<S, T>) return grad_q_.At(b_, h, t);
    }
    return query_sums_ + (((chunk_ * g_.batch + b_) * g_.heads + h) * g_.queries + t) * padded_;
  }
  std::int64_t QueryStride() const { return query_sums_ != nullptr ? padded_ : grad_q_.stride(); }

  void ZeroQueries(std::int64_t h) const {
    for (std::int64_t t = 0; t < g_.queries; ++t)
      std::fill_n(QuerySums(h, t), padded_, T(0));
  }

  // Keys [s0, s0 + count), which none but queries of the segment may see.
  void RunKeys(std::int64_t s0, std::int64_t count, const KeyRange& segment) {
    const std::int64_t d = g_.head_size;
    const std::int64_t strips = (count + kStrip - 1) / kStrip;
    for (std::int64_t i = 0; i < strips; ++i) {
      const std::int64_t s = s0 + i * kStrip;
      const int width = static_cast<int>(std::min(kStrip, s0 + count - s));
      PackPanel(k_.At(b_, kv_head_, s), k_.stride(), 1, width, static_cast<int>(kStrip), d,
                keys_ + i * kStrip * d);
      PackPanel(v_.At(b_, kv_head_, s), v_.stride(), 1, width, static_cast<int>(kStrip), d,
                values_ + i * kStrip * d);
    }
    for (std::int64_t x = 0; x < d; x += kStrip) {
      T* rows = key_rows_ + x * tile_keys_;
      PackPanel(k_.At(b_, kv_head_, s0) + x, 1, k_.stride(),
                static_cast<int>(std::min(kStrip, d - x)), static_cast<int>(kStrip), count, rows);
      std::fill(rows + count * kStrip, rows + strips * kStrip * kStrip, T(0));
    }
    std::fill_n(key_sums_, strips * kStrip * d, T(0));
    std::fill_n(value_sums_, strips * kStrip * d, T(0));
    for (std::int64_t h = kv_head_ * g_.group; h < (kv_head_ + 1) * g_.group; ++h) {
      for (std::int64_t t0 = segment.begin; t0 < segment.end; t0 += kTileQueries) {
        const std::int64_t queries = std::min(kTileQueries, segment.end - t0);
        const KeyRange visible = g_.VisibleToAny(t0, t0 + queries - 1);
        if (visible.begin < s0 + count && visible.end > s0) RunTile(h, t0, queries, s0, strips);
      }
    }
    Write(a_.grad_k, key_sums_, s0, count);
    Write(a_.grad_v, value_sums_, s0, count);
  }

  void RunTile(std::int64_t h, std::int64_t t0, std::int64_t queries, std::int64_t s0,
               std::int64_t strips) {
    const std::int64_t d = g_.head_size;
    const std::int64_t panels = (queries + kPanel - 1) / kPanel;
    PackQueries(h, t0, queries);

    // The strips of keys that each panel of queries sees, and the panels that see each strip.
    std::array<KeyRange, kPanels> seen;
    for (std::int64_t p = 0; p < panels; ++p) {
      const KeyRange visible =
          g_.VisibleToAny(t0 + p * kPanel, t0 + std::min((p + 1) * kPanel, queries) - 1);
      seen[p] = {
          std::max<std::int64_t>(0, visible.begin - s0) / kStrip,
          std::min(strips, (std::max<std::int64_t>(0, visible.end - s0) + kStrip - 1) / kStrip)};
    }
    for (std::int64_t i = 0; i < strips; ++i) {
      std::int64_t first = panels;
      std::int64_t last = 0;
      T* weights = weights_ + i * kTileQueries * kStrip;
      T* grads = grads_ + i * kTileQueries * kStrip;
      for (std::int64_t p = 0; p < panels; ++p) {
        if (i < seen[p].begin || i >= seen[p].end) continue;
        first = std::min(first, p);
        last = p + 1;
        const std::int64_t row = p * kPanel;
        const std::int64_t rows = std::min(kPanel, queries - row);
        const MicroKernel<T> kernel = kMicroKernels<T>[rows - 1];
        kernel(d, queries_ + row * d, keys_ + i * kStrip * d, weights + row * kStrip, kStrip,
               false);
        kernel(d, outs_ + row * d, values_ + i * kStrip * d, grads + row * kStrip, kStrip, false);
        for (std::int64_t j = row; j < row + rows; ++j)
          Differentiate(h, t0 + j, s0 + i * kStrip, weights + j * kStrip, grads + j * kStrip);
      }
      if (first >= last) continue;
      const std::int64_t begin = first * kPanel;
      const std::int64_t depth = std::min(last * kPanel, queries) - begin;
      for (std::int64_t c = 0; c < ColumnPanels(); ++c) {
        const std::int64_t x = ColumnPanel(c);
        const std::int64_t width = ColumnPanel(c + 1) - x;
        const std::int64_t at = x * queries + begin * width;
        const std::int64_t sum = (i * d + x) * kStrip;
        const MicroKernel<T> kernel = kMicroKernels<T>[width - 1];
        kernel(depth, out_columns_ + at, weights + begin * kStrip, value_sums_ + sum, kStrip, true);
        kernel(depth, query_columns_ + at, grads + begin * kStrip, key_sums_ + sum, kStrip, true);
      }
    }
    for (std::int64_t p = 0; p < panels; ++p)
      AddToQueries(h, t0, p * kPanel, std::min(kPanel, queries - p * kPanel), seen[p]);
  }

  // Queries and gradients of the output: rows in panels [d][panel], columns in panels [t][panel].
  void PackQueries(std::int64_t h, std::int64_t t0, std::int64_t queries) {
    const std::int64_t d = g_.head_size;
    const auto pack = [&](const HeadRows<S>& x, T* rows, T* columns) {
      const S* source = x.At(b_, h, t0);
      const std::int64_t stride = x.stride();
      for (std::int64_t row = 0; row < queries; row += kPanel) {
        const int width = static_cast<int>(std::min(kPanel, queries - row));
        PackPanel(source + row * stride, stride, 1, width, width, d, rows + row * d);
      }
      for (std::int64_t c = 0; c < ColumnPanels(); ++c) {
        const std::int64_t first = ColumnPanel(c);
        const int width = static_cast<int>(ColumnPanel(c + 1) - first);
        PackPanel(source + first, 1, stride, width, width, queries, columns + first * queries);
      }
    };
    pack(q_, queries_, query_columns_);
    pack(grad_out_, outs_, out_columns_);
  }

  // Turns the scores of query t and a strip of keys into weights, and the gradients of the weights
  // into those of the scores.
  void Differentiate(std::int64_t h, std::int64_t t, std::int64_t s, T* __restrict weights,
                     T* __restrict grads) const {
    const T scale = static_cast<T>(a_.params.scale);
    const T lse = *lse_.At(b_, h, t);
    const std::int64_t row = (b_ * g_.heads + h) * g_.queries + t;
    const T delta = *delta_.At(b_, h, t);
#pragma omp simd
    for (std::int64_t j = 0; j < kStrip; ++j)
      weights[j] = Exp(weights[j] * scale - lse);
    const KeyRange visible = g_.Visible(t);
    if (s < visible.begin || s + kStrip > visible.end) {
      const std::int64_t first = std::clamp<std::int64_t>(visible.begin - s, 0, kStrip);
      const std::int64_t last = std::clamp<std::int64_t>(visible.end - s, 0, kStrip);
      // Also where lse is -infinity, and the weights infinite.
      std::fill(weights, weights + std::min(first, last), T(0));
      std::fill(weights + std::max(first, last), weights + kStrip, T(0));
      if (first >= last) std::fill(weights, weights + kStrip, T(0));
    }
    if (a_.params.dropout_p > 0.0) {
      T factors[kStrip] = {};
      const std::int64_t count = std::min(kStrip, g_.keys - s);
      DropoutFactors(a_.params, row, g_.keys, s, count, factors, 1);
      for (std::int64_t j = 0; j < kStrip; ++j) {
        grads[j] = weights[j] * (grads[j] * factors[j] - delta) * scale;
        weights[j] *= factors[j];
      }
      return;
    }
#pragma omp simd
    for (std::int64_t j = 0; j < kStrip; ++j)
      grads[j] = weights[j] * (grads[j] - delta) * scale;
  }

  // Adds the keys of the tile, times the gradients of the scores, to the gradients of queries.
  void AddToQueries(std::int64_t h, std::int64_t t0, std::int64_t row, std::int64_t rows,
                    KeyRange strips) {
    if (strips.empty()) return;
    for (std::int64_t i = strips.begin; i < strips.end; ++i) {
      PackPanel(grads_ + (i * kTileQueries + row) * kStrip, kStrip, 1, static_cast<int>(rows),
                static_cast<int>(rows), kStrip, panel_ + (i - strips.begin) * kStrip * rows);
    }
    const std::int64_t depth = (strips.end - strips.begin) * kStrip;
    for (std::int64_t x = 0; x < padded_; x += kStrip) {
      kMicroKernels<T>[rows - 1](depth, panel_,
                                 key_rows_ + x * tile_keys_ + strips.begin * kStrip * kStrip,
                                 QuerySums(h, t0 + row) + x, QueryStride(), true);
    }
  }

  void Write(const Tensor& grad, const T* sums, std::int64_t s0, std::int64_t count) const {
    const HeadRows<S> rows(grad);
    for (std::int64_t s = 0; s < count; s += kStrip) {
      WriteColumns<T, S>(sums + s * g_.head_size, g_.head_size, static_cast<int>(kStrip),
                         static_cast<int>(std::min(kStrip, count - s)), nullptr, buffer_,
                         rows.At(b_, kv_head_, s0 + s), rows.stride());
    }
  }

  const Arguments& a_;
  const AttentionGeometry& g_;
  const HeadRows<S> q_, k_, v_, grad_out_, grad_q_;
  const HeadRows<T> lse_, delta_;
  T* const query_sums_;
  const std::int64_t chunk_;
  const std::int64_t b_;
  const std::int64_t kv_head_;
  std::int64_t tile_keys_ = 0;
  std::int64_t padded_ = 0;
  T* keys_ = nullptr;        // [strip][d][kStrip]
  T* values_ = nullptr;      // likewise
  T* key_sums_ = nullptr;    // likewise: grad_k
  T* value_sums_ = nullptr;  // likewise: grad_v
  T* key_rows_ = nullptr;    // [d / kStrip][tile_keys][kStrip]
  T* weights_ = nullptr;     // [strip][query][kStrip]
  T* grads_ = nullptr;       // likewise
  T* queries_ = nullptr;
  T* outs_ = nullptr;
  T* query_columns_ = nullptr;
  T* out_columns_ = nullptr;
  T* panel_ = nullptr;
  T* buffer_ = nullptr;  // [kStrip][d]
};

// delta [B, H, T] = sum over the head of grad_out * out.
template <typename S, typename T>
void SumProducts(const Tensor& delta, const Tensor& grad_out, const Tensor& out,
                 const AttentionGeometry& g) {
  const HeadRows<S> x_rows(grad_out), y_rows(out);
  T* sums = delta.data<T>();
  ParallelFor(0, delta.numel(), RowGrain(g.head_size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t head = row / g.queries;
      const S* x = x_rows.At(head / g.heads, head % g.heads, row % g.queries);
      const S* y = y_rows.At(head / g.heads, head % g.heads, row % g.queries);
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int i = 0; i < g.head_size; ++i)
        sum += static_cast<T>(x[i]) * static_cast<T>(y[i]);
      sums[row] = sum;
    }
  });
}

// grad_q = the chunks' sums, added in order.
template <typename S, typename T>
void WriteQueries(const Tensor& grad_q, const Tensor& sums, const AttentionGeometry& g) {
  const HeadRows<S> grads(grad_q);
  T* data = sums.data<T>();
  const std::int64_t chunks = sums.size(0);
  const std::int64_t padded = sums.size(-1);
  const std::int64_t rows = g.batch * g.heads * g.queries;
  ParallelFor(0, rows, RowGrain(g.head_size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* sum = data + row * padded;
      for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
        const T* other = sum + chunk * rows * padded;
#pragma omp simd
        for (int x = 0; x < g.head_size; ++x)
          sum[x] += other[x];
      }
      const std::int64_t head = row / g.queries;
      S* out = grads.At(head / g.heads, head % g.heads, row % g.queries);
#pragma omp simd
      for (int x = 0; x < g.head_size; ++x)
        out[x] = static_cast<S>(sum[x]);
    }
  });
}

void AttentionBackward(const KernelContext&, Tensor& grad_q, Tensor& grad_k, Tensor& grad_v,
                       const Tensor& grad_out, const Tensor& out, const Tensor& lse,
                       const Tensor& q, const Tensor& k, const Tensor& v,
                       const Tensor& cumulative_lengths, const AttentionParams& params) {
  const AttentionGeometry g(q, k, cumulative_lengths, params);
  if (g.head_size == 0 || g.batch == 0 || g.kv_heads == 0) return;
  DispatchFloating("AttentionBackward", q.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = ComputeType<S>;
    // Where few heads would leave cores idle, keys are split too. Not by the number of threads, on
    // which the order of the sums would then depend.
    constexpr std::int64_t kMinTasks = 16;
    constexpr std::int64_t kMaxChunks = 4;
    constexpr std::int64_t kMinChunkKeys = 512;
    const std::int64_t tile = BackwardChunk<S>::TileKeys(g.head_size);
    const std::int64_t wanted = std::clamp<std::int64_t>(
        std::min(kMinTasks / (g.batch * g.kv_heads), g.keys / kMinChunkKeys), 1, kMaxChunks);
    const std::int64_t tiles = std::max<std::int64_t>(1, (g.keys + tile - 1) / tile);
    const std::int64_t chunk_keys = (tiles + wanted - 1) / wanted * tile;
    const std::int64_t chunks = std::max<std::int64_t>(1, (g.keys + chunk_keys - 1) / chunk_keys);

    Arguments arguments{grad_q, grad_k, grad_v, grad_out, lse, q,          k,
                        v,      params, g,      {},       {},  chunk_keys, g.QuerySegments()};
    arguments.delta = Tensor::Empty({g.batch, g.heads, g.queries}, DataTypeOf<T>());
    SumProducts<S, T>(arguments.delta, grad_out, out, g);
    constexpr std::int64_t kStrip = Tile<T>::kColumns;
    if (!std::is_same_v<S, T> || chunks > 1 || g.head_size % kStrip != 0) {
      arguments.query_sums = Tensor::Empty(
          {chunks, g.batch, g.heads, g.queries, (g.head_size + kStrip - 1) / kStrip * kStrip},
          DataTypeOf<T>());
    }
    ParallelTasks(chunks * g.batch * g.kv_heads, [&](std::int64_t task) {
      const std::int64_t head = task % (g.batch * g.kv_heads);
      BackwardChunk<S>(arguments, task / (g.batch * g.kv_heads), head / g.kv_heads,
                       head % g.kv_heads)
          .Run();
    });
    if (arguments.query_sums.defined()) WriteQueries<S, T>(grad_q, arguments.query_sums, g);
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, AttentionBackward, &AttentionBackward);

}  // namespace infini_train::cpu
