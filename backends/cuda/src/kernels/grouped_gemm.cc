// Products by groups of rows: on tensor cores where the operands are of a half type and aligned, by
// the portable kernels elsewhere.
#include "backends/simt/kernels/gemm/grouped_gemm.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "infini_train/core/tensor.h"
#include "infini_train/ops/gemm_composition.h"
#include "kernels/grouped_tiles.h"
#include "kernels/grouped_warpgroups.h"
#include "kernels/grouped_warps.h"

namespace infini_train::simt {
namespace {

using cuda::grouped::kChunk;
using cuda::grouped::kTileM;
using cuda::grouped::kTileN;

int Attribute(const Context& context, cudaDeviceAttr attribute) {
  int value = 0;
  cudaDeviceGetAttribute(&value, attribute, context.device.index());
  return value;
}

/// A way to multiply that the chip has instructions and memory for.
struct Way {
  bool warpgroups;
  int stages;
  std::size_t shared_bytes;
};
std::optional<Way> FastestWay(const Context& context) {
  const std::size_t shared_bytes = MaxDynamicSharedBytes(context);
  const int major = Attribute(context, cudaDevAttrComputeCapabilityMajor);
  if (major == 9 && Attribute(context, cudaDevAttrComputeCapabilityMinor) == 0 &&
      shared_bytes >= cuda::grouped::kWarpgroupSharedBytes) {
    return Way{true, cuda::grouped::kWarpgroupStages, cuda::grouped::kWarpgroupSharedBytes};
  }
  const int stages = std::min(static_cast<int>(shared_bytes / cuda::grouped::kBufferBytes),
                              cuda::grouped::kMaxStages);
  if (major < 8 || stages < 2) return std::nullopt;
  return Way{false, stages, static_cast<std::size_t>(stages * cuda::grouped::kBufferBytes)};
}

template <typename T>
cuda::grouped::Kernel<T> KernelOf(const Way& way, bool a_along_depth, bool b_along_depth) {
  using namespace cuda::grouped;  // NOLINT(google-build-using-namespace)
  if (way.warpgroups) return WarpgroupsKernel<T>(a_along_depth, b_along_depth);
  if (!a_along_depth) return &GroupedWarpsKernel<T, false, false>;
  return b_along_depth ? &GroupedWarpsKernel<T, true, true> : &GroupedWarpsKernel<T, true, false>;
}

/// Whether whole chunks of elements begin at multiples of a chunk in every row.
bool HasChunks(const Tensor& tensor, std::int64_t row_length, std::int64_t row_stride,
               std::int64_t group_stride = 0) {
  return reinterpret_cast<std::uintptr_t>(tensor.raw_data()) % 16 == 0 &&
         row_length % kChunk == 0 && row_stride % kChunk == 0 && group_stride % kChunk == 0;
}

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The most tiles of the output.
std::int64_t CountTiles(const Tensor& out, std::int64_t groups) {
  const std::int64_t across = CeilDiv(out.size(-1), kTileN);
  return out.rank() == 2 ? (out.size(0) / kTileM + groups + 1) * across
                         : CeilDiv(out.size(1), kTileM) * across * groups;
}

/// What both ops have in common; none where extents are too large for the kernel's indices.
template <typename T>
std::optional<cuda::grouped::Problem<T>> Describe(Tensor& out, const Tensor& a, const Tensor& b,
                                                  const Tensor& counts, bool accumulate) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max() / 2;
  if (std::max({a.size(0), a.size(1), out.size(-1)}) > kMost ||
      CountTiles(out, counts.numel()) > kMost) {
    return std::nullopt;
  }
  cuda::grouped::Problem<T> problem{};
  problem.a = a.data<T>();
  problem.b = b.data<T>();
  problem.out = out.raw_data();
  problem.out_row = out.strides()[out.rank() - 2];
  problem.m = static_cast<int>(out.size(-2));
  problem.n = static_cast<int>(out.size(-1));
  problem.k = static_cast<int>(a.size(1));
  problem.float_out = out.dtype() == DataType::kFloat32;
  problem.accumulate = accumulate;
  problem.groups = {counts.data<std::int64_t>(), counts.numel(), 0};
  return problem;
}

/// False, with nothing done, where the chip has no way.
template <typename T>
bool LaunchTiles(const Context& context, cuda::grouped::Problem<T> problem, bool a_along_depth,
                 bool b_along_depth, std::int64_t tiles) {
  const std::optional<Way> way = FastestWay(context);
  if (!way) return false;
  problem.stages = way->stages;
  Launch(context,
         Geometry{.grid_x = std::min(tiles, MultiprocessorCount(context)),
                  .block = cuda::grouped::kThreads,
                  .dynamic_shared_bytes = way->shared_bytes},
         KernelOf<T>(*way, a_along_depth, b_along_depth), problem);
  return true;
}

/// False, with nothing done, where the layouts or the chip do not allow it.
template <typename T>
bool MultiplyRows(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                  const Tensor& counts, bool accumulate) {
  const std::int64_t n = out.size(1), k = a.size(1);
  const Dims &a_strides = a.strides(), &b_strides = b.strides(), &out_strides = out.strides();
  const bool b_along_depth = b_strides[1] == 1;
  const std::int64_t b_row = b_strides[b_along_depth ? 2 : 1];
  if (k == 0 || a_strides[1] != 1 || out_strides[1] != 1 || (!b_along_depth && b_strides[2] != 1) ||
      !HasChunks(a, k, a_strides[0]) || !HasChunks(out, n, out_strides[0]) ||
      !HasChunks(b, b_along_depth ? k : n, b_row, b_strides[0])) {
    return false;
  }
  auto problem = Describe<T>(out, a, b, counts, accumulate);
  if (!problem) return false;
  problem->a_row = a_strides[0];
  problem->b_row = b_row;
  problem->b_group = b_strides[0];
  problem->groups.rows = out.size(0);
  return LaunchTiles(context, *problem, true, b_along_depth, CountTiles(out, counts.numel()));
}

template <typename T>
bool MultiplyDepth(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                   const Tensor& counts, bool accumulate) {
  const std::int64_t m = out.size(1), n = out.size(2);
  const Dims &a_strides = a.strides(), &b_strides = b.strides(), &out_strides = out.strides();
  if (a_strides[0] != 1 || b_strides[1] != 1 || out_strides[2] != 1 ||
      !HasChunks(a, m, a_strides[1]) || !HasChunks(b, n, b_strides[0]) ||
      !HasChunks(out, n, out_strides[1], out_strides[0])) {
    return false;
  }
  auto problem = Describe<T>(out, a, b, counts, accumulate);
  if (!problem) return false;
  problem->a_row = a_strides[1];
  problem->b_row = b_strides[0];
  problem->out_group = out_strides[0];
  problem->groups.rows = a.size(1);
  return LaunchTiles(context, *problem, false, false, CountTiles(out, counts.numel()));
}

/// Calls `run` with the type of the inputs where they are of a half type and out is one of theirs.
template <typename Run>
bool WithHalfType(const Tensor& a, const Tensor& out, const Run& run) {
  if (out.dtype() != a.dtype() && out.dtype() != DataType::kFloat32) return false;
  if (a.dtype() == DataType::kBFloat16) return run(BFloat16());
  if (a.dtype() == DataType::kFloat16) return run(Float16());
  return false;
}

void GroupedGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                 const Tensor& counts, bool accumulate) {
  if (out.numel() == 0) return;
  if (MultipliesInFloat64(a.dtype())) {
    GroupedGemmInFloat64(out, a, b, counts, accumulate);
    return;
  }
  const auto multiply = [&](auto type) {
    return MultiplyRows<decltype(type)>(context, out, a, b, counts, accumulate);
  };
  if (!WithHalfType(a, out, multiply)) PortableGroupedGemm(context, out, a, b, counts, accumulate);
}

void KGroupedGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                  const Tensor& counts, bool accumulate) {
  if (out.numel() == 0) return;
  if (MultipliesInFloat64(a.dtype())) {
    KGroupedGemmInFloat64(out, a, b, counts, accumulate);
    return;
  }
  const auto multiply = [&](auto type) {
    return MultiplyDepth<decltype(type)>(context, out, a, b, counts, accumulate);
  };
  if (!WithHalfType(a, out, multiply)) PortableKGroupedGemm(context, out, a, b, counts, accumulate);
}

}  // namespace

SIMT_REGISTER_KERNEL(GroupedGemm, &GroupedGemm);
SIMT_REGISTER_KERNEL(KGroupedGemm, &KGroupedGemm);

}  // namespace infini_train::simt
