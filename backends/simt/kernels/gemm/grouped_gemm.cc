// Products by groups of rows. Blocks find on the device which group a tile is of: the grid is for
// the most tiles that the rows can make.
#include "backends/simt/kernels/gemm/grouped_gemm.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "backends/simt/kernels/gemm/gemm_tiles.h"
#include "backends/simt/kernels/gemm/groups.h"
#include "infini_train/core/dtype.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

using gemm::kTileN;
using gemm::Problem;

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// The groups' rows are those of a and out. problem.dims[0] has the strides of a row of a, of a
// group's b, and of a row of out.
template <typename S, typename O, int kTileM>
SIMT_KERNEL void GroupedGemmKernel(Problem<S, O> problem, Groups groups) {
  using Tiles = gemm::Buffers<ComputeType<S>, kTileM>;
  SIMT_SHARED(ComputeType<S>, a_tiles, 2 * Tiles::kTileA);
  SIMT_SHARED(ComputeType<S>, b_tiles, 2 * Tiles::kTileB);
  const gemm::BatchDim& strides = problem.dims[0];
  const std::int64_t tiles_n = (problem.n + kTileN - 1) / kTileN;
  // Rows of no group are sums of nothing.
  const std::int64_t end = groups.number + (problem.accumulate ? 0 : 1);
  GroupCursor cursor(groups);
  std::int64_t first_tile = 0;
  for (std::int64_t tile = BlockIndex();; tile += GridSize()) {
    std::int64_t tiles_m = (cursor.count() + kTileM - 1) / kTileM;
    while (cursor.group() < end && tile - first_tile >= tiles_m * tiles_n) {
      first_tile += tiles_m * tiles_n;
      cursor.Next();
      tiles_m = (cursor.count() + kTileM - 1) / kTileM;
    }
    if (cursor.group() >= end) return;
    const bool is_group = cursor.group() < groups.number;
    const gemm::Product<S, O> product{problem.out + cursor.first() * strides.out,
                                      problem.a + cursor.first() * strides.a,
                                      problem.b + (is_group ? cursor.group() * strides.b : 0),
                                      cursor.count(), is_group ? problem.k : 0};
    gemm::ComputeTile(problem, gemm::NoEpilogue<O>(), product,
                      (tile - first_tile) % tiles_m * kTileM,
                      (tile - first_tile) / tiles_m * kTileN, Tiles{a_tiles, b_tiles});
  }
}

// The groups' rows are those of b and the columns of a. problem.dims[0] has the strides of a column
// of a, of a row of b, and of a group's out.
template <typename S, typename O, int kTileM>
SIMT_KERNEL void KGroupedGemmKernel(Problem<S, O> problem, Groups groups) {
  using Tiles = gemm::Buffers<ComputeType<S>, kTileM>;
  SIMT_SHARED(ComputeType<S>, a_tiles, 2 * Tiles::kTileA);
  SIMT_SHARED(ComputeType<S>, b_tiles, 2 * Tiles::kTileB);
  const gemm::BatchDim& strides = problem.dims[0];
  const std::int64_t tiles_m = (problem.m + kTileM - 1) / kTileM;
  const std::int64_t tiles_n = (problem.n + kTileN - 1) / kTileN;
  const std::int64_t tiles = tiles_m * tiles_n;
  GroupCursor cursor(groups);
  for (std::int64_t tile = BlockIndex(); tile < tiles * groups.number; tile += GridSize()) {
    while (cursor.group() < tile / tiles)
      cursor.Next();
    const gemm::Product<S, O> product{
        problem.out + cursor.group() * strides.out, problem.a + cursor.first() * strides.a,
        problem.b + cursor.first() * strides.b, problem.m, cursor.count()};
    gemm::ComputeTile(problem, gemm::NoEpilogue<O>(), product, tile % tiles_m * kTileM,
                      tile / tiles_m % tiles_n * kTileN, Tiles{a_tiles, b_tiles});
  }
}

// The product of the whole operands. `group` has the strides from group to group, or those of the
// rows that groups consist of.
template <typename S, typename O>
Problem<S, O> Describe(Tensor& out, const Tensor& a, const Tensor& b, const gemm::BatchDim& group,
                       bool accumulate) {
  Problem<S, O> problem{};
  problem.out = out.data<O>();
  problem.a = a.data<S>();
  problem.b = b.data<S>();
  problem.m = out.size(-2);
  problem.n = out.size(-1);
  problem.k = a.size(-1);
  problem.a_layout = {a.strides()[a.rank() - 2], a.strides()[a.rank() - 1]};
  problem.b_layout = {b.strides()[b.rank() - 1], b.strides()[b.rank() - 2]};
  problem.out_row = out.strides()[out.rank() - 2];
  problem.out_column = out.strides()[out.rank() - 1];
  problem.accumulate = accumulate;
  problem.batch = group.extent;
  problem.batch_rank = 1;
  problem.dims[0] = group;
  gemm::ChooseAccess(problem, gemm::NoEpilogue<O>());
  return problem;
}

template <typename S, typename O>
void RunGrouped(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                const Tensor& counts, bool accumulate) {
  const std::int64_t number = counts.numel();
  const auto problem = Describe<S, O>(
      out, a, b, {number, a.strides()[0], b.strides()[0], out.strides()[0]}, accumulate);
  if (problem.m == 0 || problem.n == 0) return;
  const Groups groups{counts.data<std::int64_t>(), number, problem.m};
  const auto launch = [&](auto kernel, std::int64_t tile_m) {
    const std::int64_t most = problem.m / tile_m + number + 1;
    Launch(context,
           Geometry{.grid_x = std::min(most * CeilDiv(problem.n, kTileN), kMaxGridX),
                    .block = gemm::kThreads},
           kernel, problem, groups);
  };
  if (problem.m / std::max<std::int64_t>(number, 1) <= gemm::kNarrowTileM) {
    launch(GroupedGemmKernel<S, O, gemm::kNarrowTileM>, gemm::kNarrowTileM);
  } else {
    launch(GroupedGemmKernel<S, O, gemm::kWideTileM>, gemm::kWideTileM);
  }
}

template <typename S, typename O>
void RunKGrouped(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                 const Tensor& counts, bool accumulate) {
  const std::int64_t number = counts.numel();
  const auto problem = Describe<S, O>(
      out, a, b, {number, a.strides()[1], b.strides()[0], out.strides()[0]}, accumulate);
  if (problem.m == 0 || problem.n == 0) return;
  const Groups groups{counts.data<std::int64_t>(), number, problem.k};
  const auto launch = [&](auto kernel, std::int64_t tile_m) {
    const std::int64_t tiles = CeilDiv(problem.m, tile_m) * CeilDiv(problem.n, kTileN);
    Launch(context,
           Geometry{.grid_x = std::min(tiles * number, kMaxGridX), .block = gemm::kThreads}, kernel,
           problem, groups);
  };
  if (problem.m <= gemm::kNarrowTileM) {
    launch(KGroupedGemmKernel<S, O, gemm::kNarrowTileM>, gemm::kNarrowTileM);
  } else {
    launch(KGroupedGemmKernel<S, O, gemm::kWideTileM>, gemm::kWideTileM);
  }
}

// Calls `run` with the types of the inputs and of out.
template <typename Run>
void DispatchTypes(std::string_view op, DataType input, DataType output, const Run& run) {
  DispatchFloating(op, input, [&](auto tag) {
    using S = typename decltype(tag)::type;
    if (output == input) return run(tag, tag);
    if constexpr (std::is_same_v<ComputeType<S>, float> && !std::is_same_v<S, float>) {
      if (output == DataType::kFloat32) return run(tag, std::type_identity<float>());
    }
    ::infini_train::detail::ThrowUnsupportedDataType(op, output,
                                                     "its inputs' type or float32 as out");
  });
}

}  // namespace

void PortableGroupedGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                         const Tensor& counts, bool accumulate) {
  DispatchTypes("GroupedGemm", a.dtype(), out.dtype(), [&](auto input, auto output) {
    RunGrouped<typename decltype(input)::type, typename decltype(output)::type>(context, out, a, b,
                                                                                counts, accumulate);
  });
}

void PortableKGroupedGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                          const Tensor& counts, bool accumulate) {
  DispatchTypes("KGroupedGemm", a.dtype(), out.dtype(), [&](auto input, auto output) {
    RunKGrouped<typename decltype(input)::type, typename decltype(output)::type>(
        context, out, a, b, counts, accumulate);
  });
}

}  // namespace infini_train::simt
