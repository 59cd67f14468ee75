#include "backends/simt/kernels/elementwise/arithmetic.h"
#include "backends/simt/kernels/index/index_entries.h"
#include "backends/simt/types.h"

namespace infini_train::simt {
namespace {

/// Of the entries of one place, the last one writes.
template <typename Word, typename E>
SIMT_KERNEL void ScatterKernel(Word* out, const Word* src, const E* entries, Lines lines) {
  const std::int64_t count = lines.starts.numel * lines.length;
  for (std::int64_t g = GlobalThreadIndex(); g < count; g += GlobalThreadCount()) {
    const E entry = Load(entries + g);
    const EntryKey<E> key = KeyOf(entry);
    if (key == kOutside<E>) continue;
    const std::int64_t line = g / lines.length;
    const bool is_last = g + 1 == (line + 1) * lines.length || KeyOf(Load(entries + g + 1)) != key;
    if (!is_last) continue;
    std::int64_t starts[3];
    lines.starts.Locate(line, starts);
    Store(out + starts[0] + static_cast<std::int64_t>(key) * lines.out_stride,
          Load(src + starts[2] + PositionOf(entry) * lines.src_stride));
  }
}

/// Of the entries of one place, the first one adds all to it, in order of position. The sum is
/// rounded once.
template <typename T, typename E>
SIMT_KERNEL void ScatterAddKernel(T* out, const T* src, const E* entries, Lines lines) {
  using C = ComputeType<T>;
  const std::int64_t count = lines.starts.numel * lines.length;
  for (std::int64_t g = GlobalThreadIndex(); g < count; g += GlobalThreadCount()) {
    const EntryKey<E> key = KeyOf(Load(entries + g));
    if (key == kOutside<E>) continue;
    const std::int64_t line = g / lines.length;
    if (g > line * lines.length && KeyOf(Load(entries + g - 1)) == key) continue;
    std::int64_t starts[3];
    lines.starts.Locate(line, starts);
    T* place = out + starts[0] + static_cast<std::int64_t>(key) * lines.out_stride;
    C sum = ToCompute(Load(place));
    for (std::int64_t i = g; i < (line + 1) * lines.length; ++i) {
      const E entry = Load(entries + i);
      if (KeyOf(entry) != key) break;
      sum = AddOp()(sum, ToCompute(Load(src + starts[2] + PositionOf(entry) * lines.src_stride)));
    }
    Store(place, FromCompute<T>(sum));
  }
}

Lines LinesAlong(const Tensor& out, const Tensor& index, const Tensor& src, int dim) {
  const Dims shape = Without(src.shape(), dim);
  const Dims out_strides = Without(out.strides(), dim);
  const Dims index_strides = Without(index.strides(), dim);
  const Dims src_strides = Without(src.strides(), dim);
  return {StridedIndex<3>(MergedDims(shape, {&out_strides, &index_strides, &src_strides})),
          out.strides()[dim],
          index.strides()[dim],
          src.strides()[dim],
          src.size(dim),
          out.size(dim)};
}

/// Calls `launch(entries, lines)` with the sorted index, unless there is nothing to scatter.
template <typename Body>
void ScatterAlong(const char* op, const Context& context, const Tensor& out, const Tensor& index,
                  const Tensor& src, int dim, const Body& launch) {
  CheckDataType(op, src, out.dtype());
  if (src.numel() == 0) return;
  const Lines lines = LinesAlong(out, index, src, dim);
  if (FitsNarrowEntries(lines.length, lines.limit)) {
    launch(SortedIndex<NarrowEntry>(op, context, index, lines), lines);
  } else {
    launch(SortedIndex<WideEntry>(op, context, index, lines), lines);
  }
}

void Scatter(const Context& context, Tensor& out, const Tensor& index, const Tensor& src, int dim) {
  ScatterAlong("Scatter", context, out, index, src, dim,
               [&]<typename E>(const EntryRows<E>& entries, const Lines& lines) {
                 DispatchSize(out.dtype(), [&]<typename Word>(TypeTag<Word>) {
                   Launch(context, Linear(src.numel()), &ScatterKernel<Word, E>,
                          static_cast<Word*>(out.raw_data()),
                          static_cast<const Word*>(src.raw_data()), entries.data(), lines);
                 });
               });
}

void ScatterAdd(const Context& context, Tensor& out, const Tensor& index, const Tensor& src,
                int dim) {
  ScatterAlong("ScatterAdd", context, out, index, src, dim,
               [&]<typename E>(const EntryRows<E>& entries, const Lines& lines) {
                 DispatchTypes(SignedTypes{}, "ScatterAdd", out.dtype(),
                               [&]<typename T>(TypeTag<T>) {
                                 Launch(context, Linear(src.numel()), &ScatterAddKernel<T, E>,
                                        out.data<T>(), src.data<T>(), entries.data(), lines);
                               });
               });
}

}  // namespace

SIMT_REGISTER_KERNEL(Scatter, &Scatter);
SIMT_REGISTER_KERNEL(ScatterAdd, &ScatterAdd);

}  // namespace infini_train::simt
