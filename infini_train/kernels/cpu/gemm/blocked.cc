#include "infini_train/kernels/cpu/gemm/blocked.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "infini_train/kernels/cpu/gemm/microkernel.h"
#include "infini_train/kernels/cpu/gemm/pack.h"
#include "infini_train/kernels/cpu/gemm/scratch.h"
#include "infini_train/kernels/cpu/parallel.h"

namespace infini_train::cpu {
namespace {

// Depth of a strip of b, which then fits the first-level cache.
constexpr std::int64_t kDepthBlock = 256;
// Depth for which a is packed at once; a longer product takes several passes over c.
constexpr std::int64_t kDepthPass = 16 * kDepthBlock;
// Rows of a that are packed at once: with kDepthBlock they fit the second-level cache.
constexpr std::int64_t kRowBlock = 512;
// Strips of c that one task computes, to reuse a from the second-level cache.
constexpr std::int64_t kStripsPerTask = 4;

// Bounds of part i of `parts` nearly equal ones.
constexpr std::int64_t Split(std::int64_t count, std::int64_t i, std::int64_t parts) {
  return count * i / parts;
}

// The computation for inputs of type S, sums of type T and a result of type O. Where O is not T, or
// c is not row-major, a task sums in its own memory and converts at the end.
template <typename T, typename S, typename O>
class BlockedGemm {
 public:
  BlockedGemm(const GemmProblem& problem, O* c, const S* a, const S* b, const S* bias,
              bool bias_along_rows)
      : problem_(problem), c_(c), a_(a), b_(b), bias_(bias), bias_along_rows_(bias_along_rows) {}

  void Run() {
    if (!std::is_same_v<T, O> && problem_.k > kDepthPass) {
      RunWide();
      return;
    }
    for (std::int64_t row = 0; row < problem_.m; row += kRowBlock) {
      for (std::int64_t depth = 0; depth < problem_.k; depth += kDepthPass)
        RunBlock(row, std::min(kRowBlock, problem_.m - row), depth,
                 std::min(kDepthPass, problem_.k - depth));
    }
  }

 private:
  static constexpr int kRows = Tile<T>::kRows;
  static constexpr int kColumns = Tile<T>::kColumns;

  // A narrow result of several passes: sums in a wide matrix first, so that it is rounded once.
  void RunWide() {
    static thread_local Scratch wide_scratch;
    T* wide = wide_scratch.Get<T>(static_cast<std::size_t>(problem_.m * problem_.n));
    GemmProblem problem = problem_;
    problem.c = RowMajor(problem.n);
    problem.accumulate = false;
    BlockedGemm<T, S, T>(problem, wide, a_, b_, nullptr, false).Run();
    ParallelFor(0, problem_.m, RowGrain(problem_.n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        StoreRow(wide + i * problem_.n, i, 0, problem_.n, /*first=*/true);
    });
  }

  // Adds up bias, former values (the first time only) and the sums of one row; writes them to c.
  void StoreRow(const T* sums, std::int64_t row, std::int64_t column, std::int64_t count,
                bool first) const {
    O* target = c_ + row * problem_.c.row + column * problem_.c.column;
    const bool add = !first || problem_.accumulate;
    const S* bias = first ? bias_ : nullptr;
    if (problem_.c.column == 1 && !add && bias == nullptr) {
      for (std::int64_t j = 0; j < count; ++j)
        target[j] = static_cast<O>(sums[j]);
      return;
    }
    for (std::int64_t j = 0; j < count; ++j) {
      O& out = target[j * problem_.c.column];
      T value = sums[j];
      if (bias != nullptr) value += static_cast<T>(bias[bias_along_rows_ ? row : column + j]);
      if (add) value += static_cast<T>(out);
      out = static_cast<O>(value);
    }
  }

  void RunBlock(std::int64_t row, std::int64_t rows, std::int64_t depth, std::int64_t depths) {
    static thread_local Scratch a_scratch;
    const std::int64_t panels = (rows + kRows - 1) / kRows;
    // Strip k of the packed a starts at element k * rows.
    T* packed = a_scratch.Get<T>(static_cast<std::size_t>(rows * depths + kPackSlack<T>));
    const std::int64_t depth_blocks = (depths + kDepthBlock - 1) / kDepthBlock;
    PackA(packed, row, rows, depth, depths);

    const std::int64_t strips = (problem_.n + kColumns - 1) / kColumns;
    const std::int64_t threads = NumThreads();
    const std::int64_t per_task =
        std::clamp<std::int64_t>(strips / (3 * threads), 1, kStripsPerTask);
    const std::int64_t column_tasks = (strips + per_task - 1) / per_task;
    // A narrow c is split along its rows too.
    const std::int64_t row_tasks =
        std::clamp<std::int64_t>(2 * threads / column_tasks, 1, (panels + 3) / 4);
    const std::int64_t tasks = column_tasks * row_tasks;
    const auto run = [&](std::int64_t task) {
      const std::int64_t first_strip = task % column_tasks * per_task;
      const std::int64_t first_panel = Split(panels, task / column_tasks, row_tasks);
      const std::int64_t last_panel = Split(panels, task / column_tasks + 1, row_tasks);
      Task({packed, row, rows, depth, depths, depth_blocks, panels, first_panel, last_panel,
            first_strip * kColumns,
            std::min(per_task * kColumns, problem_.n - first_strip * kColumns)});
    };
    constexpr std::int64_t kSerialWork = 32 * 1024;
    if (rows * problem_.n * depths <= kSerialWork) {
      for (std::int64_t task = 0; task < tasks; ++task)
        run(task);
    } else {
      ParallelTasks(tasks, run);
    }
  }

  void PackA(T* packed, std::int64_t row, std::int64_t rows, std::int64_t depth,
             std::int64_t depths) const {
    // Packing a panel may spill into the next one, which the same chunk packs later; a chunk's last
    // panel goes through a copy.
    const std::int64_t panels = (rows + kRows - 1) / kRows;
    const std::int64_t depth_blocks = (depths + kDepthBlock - 1) / kDepthBlock;
    ParallelFor(
        0, depth_blocks * panels, RowGrain(kDepthBlock * kRows),
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t k = i / panels * kDepthBlock;
            const std::int64_t count = std::min(kDepthBlock, depths - k);
            const std::int64_t first = Split(rows, i % panels, panels);
            const int width = static_cast<int>(Split(rows, i % panels + 1, panels) - first);
            const S* source = a_ + (row + first) * problem_.a.row + (depth + k) * problem_.a.column;
            T* target = packed + k * rows + first * count;
            if (i + 1 < end || i + 1 == depth_blocks * panels) {
              PackPanel(source, problem_.a.row, problem_.a.column, width, width, count, target);
            } else {
              T panel[kDepthBlock * kRows + kPackSlack<T>];
              PackPanel(source, problem_.a.row, problem_.a.column, width, width, count, panel);
              std::copy_n(panel, width * count, target);
            }
          }
        });
  }

  struct TaskRange {
    const T* packed;
    std::int64_t row, rows, depth, depths, depth_blocks, panels, first_panel, last_panel;
    std::int64_t column, columns;
  };

  void Task(const TaskRange& range) const {
    static thread_local Scratch b_scratch;
    static thread_local Scratch sum_scratch;
    T* strip = b_scratch.Get<T>(kDepthBlock * kColumns + kPackSlack<T>);
    const bool direct = std::is_same_v<T, O> && problem_.c.column == 1;
    const std::int64_t first_row = Split(range.rows, range.first_panel, range.panels);
    const std::int64_t last_row = Split(range.rows, range.last_panel, range.panels);
    const std::int64_t padded = (range.columns + kColumns - 1) / kColumns * kColumns;
    T* sums = nullptr;
    if (!direct)
      sums = sum_scratch.Get<T>(static_cast<std::size_t>((last_row - first_row) * padded));

    for (std::int64_t block = 0; block < range.depth_blocks; ++block) {
      const std::int64_t k = block * kDepthBlock;
      const std::int64_t count = std::min(kDepthBlock, range.depths - k);
      for (std::int64_t j = 0; j < range.columns; j += kColumns) {
        const int width = static_cast<int>(std::min<std::int64_t>(kColumns, range.columns - j));
        const std::int64_t column = range.column + j;
        PackPanel(b_ + column * problem_.b.column + (range.depth + k) * problem_.b.row,
                  problem_.b.column, problem_.b.row, width, kColumns, count, strip);
        for (std::int64_t panel = range.first_panel; panel < range.last_panel; ++panel) {
          const std::int64_t first = Split(range.rows, panel, range.panels);
          const std::int64_t height = Split(range.rows, panel + 1, range.panels) - first;
          const T* a = range.packed + k * range.rows + first * count;
          const MicroKernel<T> kernel = kMicroKernels<T>[height - 1];
          if (!direct) {
            kernel(count, a, strip, sums + (first - first_row) * padded + j, padded, block > 0);
            continue;
          }
          const bool first_pass = block == 0 && range.depth == 0;
          const bool plain = !first_pass || (bias_ == nullptr);
          if constexpr (std::is_same_v<T, O>) {
            if (plain && width == kColumns) {
              kernel(count, a, strip, c_ + (range.row + first) * problem_.c.row + column,
                     problem_.c.row, !first_pass || problem_.accumulate);
              continue;
            }
          }
          T tile[kRows * kColumns];
          kernel(count, a, strip, tile, kColumns, false);
          for (std::int64_t i = 0; i < height; ++i)
            StoreRow(tile + i * kColumns, range.row + first + i, column, width, first_pass);
        }
      }
    }
    if (!direct) {
      for (std::int64_t i = first_row; i < last_row; ++i)
        StoreRow(sums + (i - first_row) * padded, range.row + i, range.column, range.columns,
                 range.depth == 0);
    }
  }

  const GemmProblem problem_;
  O* c_;
  const S* a_;
  const S* b_;
  const S* bias_;
  bool bias_along_rows_;
};

template <typename T, typename S, typename O>
void RunTyped(const GemmProblem& problem, void* c, const void* a, const void* b, const void* bias) {
  // The vectors run along c's contiguous dimension: a column-major c is the product's transpose.
  if (problem.c.column == 1 || problem.c.row != 1) {
    BlockedGemm<T, S, O>(problem, static_cast<O*>(c), static_cast<const S*>(a),
                         static_cast<const S*>(b), static_cast<const S*>(bias), false)
        .Run();
    return;
  }
  GemmProblem transposed = problem;
  std::swap(transposed.m, transposed.n);
  transposed.a = Transposed(problem.b);
  transposed.b = Transposed(problem.a);
  transposed.c = Transposed(problem.c);
  BlockedGemm<T, S, O>(transposed, static_cast<O*>(c), static_cast<const S*>(b),
                       static_cast<const S*>(a), static_cast<const S*>(bias), true)
      .Run();
}

}  // namespace

void RunBlockedGemm(const GemmProblem& problem, void* c, const void* a, const void* b,
                    const void* bias) {
  DispatchFloating("Gemm", problem.input, [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = ComputeType<S>;
    if (problem.output == problem.input) {
      RunTyped<T, S, S>(problem, c, a, b, bias);
    } else if constexpr (!std::is_same_v<S, double>) {
      RunTyped<T, S, float>(problem, c, a, b, bias);
    }
  });
}

}  // namespace infini_train::cpu
