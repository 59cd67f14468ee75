#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "backends/simt/strided.h"
#include "backends/simt/types.h"

namespace infini_train::simt {
namespace {

/// Gather, IndexSelect and Embedding: out[.., i, ..] = x[.., index[.., i, ..], ..].

/// 16 bytes that move together.
using Quad = Vec<std::uint32_t, 4>;

struct GatherPlan {
  StridedIndex<3> positions;  ///< out, index, x without the dimension that the index walks
  std::int64_t x_stride;      ///< of that dimension
  std::int64_t limit;         ///< its extent
  Quad outside;               ///< what an index outside the limit reads: NaN, or 0 for integers
};

template <typename Word, typename I>
SIMT_KERNEL void GatherKernel(Word* out, const Word* x, const I* index, GatherPlan plan) {
  constexpr int kWords = static_cast<int>(sizeof(Quad) / sizeof(Word));
  using Words = Vec<Word, kWords>;
  const Word outside = std::bit_cast<Words>(plan.outside)[0];
  for (std::int64_t i = GlobalThreadIndex(); i < plan.positions.numel; i += GlobalThreadCount()) {
    std::int64_t offsets[3];
    plan.positions.Locate(i, offsets);
    const std::int64_t position = Load(index + offsets[1]);
    const bool inside = position >= 0 && position < plan.limit;
    Store(out + offsets[0], inside ? Load(x + offsets[2] + position * plan.x_stride) : outside);
  }
}

/// The bits of what an index out of range reads, as often as 16 bytes hold an element.
Quad OutsideBits(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat64:
      return {{0, 0x7FF80000u, 0, 0x7FF80000u}};
    case DataType::kFloat32:
      return {{0x7FC00000u, 0x7FC00000u, 0x7FC00000u, 0x7FC00000u}};
    case DataType::kFloat16:
      return {{0x7E007E00u, 0x7E007E00u, 0x7E007E00u, 0x7E007E00u}};
    case DataType::kBFloat16:
      return {{0x7FC07FC0u, 0x7FC07FC0u, 0x7FC07FC0u, 0x7FC07FC0u}};
    default:
      return {{0, 0, 0, 0}};
  }
}

/// What a gather moves, in words of `word` bytes.
struct GatherArrays {
  Dims shape;
  Dims out_strides;
  Dims index_strides;
  Dims x_strides;
  std::int64_t x_stride;
  std::int64_t limit;
  std::int64_t word;
};

/// Elements that lie side by side in out and in x and share an index move 16 bytes at a time.
void Widen(GatherArrays& arrays, const Tensor& out, const Tensor& x) {
  if (arrays.shape.empty()) return;
  const std::int64_t width = kMaxVectorBytes / arrays.word;
  const int last = arrays.shape.size() - 1;
  const auto is_aligned = [&](const Tensor& tensor, const Dims& strides) {
    bool aligned = strides[last] == 1 &&
                   reinterpret_cast<std::uintptr_t>(tensor.raw_data()) % kMaxVectorBytes == 0;
    for (int d = 0; d < last; ++d)
      aligned = aligned && strides[d] % width == 0;
    return aligned;
  };
  if (arrays.index_strides[last] != 0 || arrays.shape[last] % width != 0 ||
      arrays.x_stride % width != 0 || !is_aligned(out, arrays.out_strides) ||
      !is_aligned(x, arrays.x_strides))
    return;
  arrays.shape[last] /= width;
  for (int d = 0; d < last; ++d) {
    arrays.out_strides[d] /= width;
    arrays.x_strides[d] /= width;
  }
  arrays.x_stride /= width;
  arrays.word = kMaxVectorBytes;
}

void LaunchGather(const char* op, const Context& context, const Tensor& out, const Tensor& x,
                  const Tensor& index, GatherArrays arrays) {
  CheckDataType(op, out, x.dtype());
  if (Numel(arrays.shape) == 0) return;
  Widen(arrays, out, x);
  const GatherPlan plan{
      StridedIndex<3>(MergedDims(arrays.shape,
                                 {&arrays.out_strides, &arrays.index_strides, &arrays.x_strides})),
      arrays.x_stride, arrays.limit, OutsideBits(x.dtype())};
  DispatchIndex(op, index.dtype(), [&](auto index_tag) {
    using I = typename decltype(index_tag)::type;
    const auto launch = [&]<typename Word>(TypeTag<Word>) {
      Launch(context, Linear(plan.positions.numel), &GatherKernel<Word, I>,
             static_cast<Word*>(out.raw_data()), static_cast<const Word*>(x.raw_data()),
             index.data<I>(), plan);
    };
    if (arrays.word == kMaxVectorBytes) {
      launch(TypeTag<Quad>{});
    } else {
      DispatchSize(x.dtype(), launch);
    }
  });
}

void Gather(const Context& context, Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  GatherArrays arrays{out.shape(),
                      out.strides(),
                      index.strides(),
                      x.strides(),
                      x.strides()[dim],
                      x.size(dim),
                      static_cast<std::int64_t>(SizeOf(x.dtype()))};
  arrays.x_strides[dim] = 0;
  LaunchGather("Gather", context, out, x, index, arrays);
}

void IndexSelect(const Context& context, Tensor& out, const Tensor& x, const Tensor& index,
                 int dim) {
  GatherArrays arrays{out.shape(),
                      out.strides(),
                      Dims::Filled(out.rank(), 0),
                      x.strides(),
                      x.strides()[dim],
                      x.size(dim),
                      static_cast<std::int64_t>(SizeOf(x.dtype()))};
  arrays.index_strides[dim] = index.strides()[0];
  arrays.x_strides[dim] = 0;
  LaunchGather("IndexSelect", context, out, x, index, arrays);
}

void Embedding(const Context& context, Tensor& out, const Tensor& weight, const Tensor& ids) {
  const std::int64_t hidden = weight.size(1);
  LaunchGather("Embedding", context, out, weight, ids,
               {{ids.numel(), hidden},
                {hidden, 1},
                {1, 0},
                {0, 1},
                hidden,
                weight.size(0),
                static_cast<std::int64_t>(SizeOf(weight.dtype()))});
}

}  // namespace

SIMT_REGISTER_KERNEL(Gather, &Gather);
SIMT_REGISTER_KERNEL(IndexSelect, &IndexSelect);
SIMT_REGISTER_KERNEL(Embedding, &Embedding);

}  // namespace infini_train::simt
