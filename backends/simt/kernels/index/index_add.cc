#include "backends/simt/kernels/elementwise/arithmetic.h"
#include "backends/simt/kernels/index/index_entries.h"
#include "backends/simt/types.h"

/// IndexAdd and EmbeddingBackward: slices of src are added to the slices of out that an index
/// names. The sorted index is cut into chunks of equal length, so that a name which occurs very
/// often costs no more than others. A lane sums one column of a chunk. Runs of one name that lie
/// within a chunk go to out at once; those that cross its ends leave partial sums, which a second
/// kernel adds in order of the chunks.
namespace infini_train::simt {
namespace {

constexpr std::int64_t kChunk = 32;

struct AddPlan {
  StridedIndex<2> columns;  ///< of a slice, in out and src
  std::int64_t out_stride;  ///< from slice to slice
  std::int64_t src_stride;
  std::int64_t length;  ///< of the index

  SIMT_HOST_DEVICE std::int64_t Chunks() const { return (length + kChunk - 1) / kChunk; }
  SIMT_HOST_DEVICE std::int64_t EndOf(std::int64_t chunk) const {
    return (chunk + 1) * kChunk < length ? (chunk + 1) * kChunk : length;
  }
};

/// Whether entries i - 1 and i are of one run.
template <typename E>
SIMT_DEVICE bool Continues(const E* entries, std::int64_t i, const AddPlan& plan) {
  return i > 0 && i < plan.length && KeyOf(Load(entries + i - 1)) == KeyOf(Load(entries + i));
}

/// Partial sums of a chunk: of the run that came into it (0) and of the one that it begins and does
/// not end (1).
template <typename C>
SIMT_DEVICE C* Partial(C* partials, std::int64_t chunk, int which, std::int64_t columns) {
  return partials + (chunk * 2 + which) * columns;
}

/// N neighbouring columns for each lane.
template <typename W, typename T, int N, typename E>
SIMT_KERNEL void AddChunksKernel(W* out, ComputeType<W>* partials, const T* src, const E* entries,
                                 AddPlan plan) {
  using C = ComputeType<W>;
  const std::int64_t columns = plan.columns.numel;
  const std::int64_t items = plan.Chunks() * columns;
  for (std::int64_t item = GlobalThreadIndex(); item < items; item += GlobalThreadCount()) {
    const std::int64_t chunk = item / columns;
    const std::int64_t column = item - chunk * columns;
    std::int64_t offsets[2];
    plan.columns.Locate(column, offsets);
    const std::int64_t end = plan.EndOf(chunk);
    std::int64_t i = chunk * kChunk;
    bool comes_in = Continues(entries, i, plan);
    while (i < end) {
      const EntryKey<E> key = KeyOf(Load(entries + i));
      C sums[N] = {};
      for (; i < end; ++i) {
        const E entry = Load(entries + i);
        if (KeyOf(entry) != key) break;
        const Vec<T, N> terms = Load<N>(src + offsets[1] + PositionOf(entry) * plan.src_stride);
        for (int k = 0; k < N; ++k)
          sums[k] = AddOp()(sums[k], static_cast<C>(ToCompute(terms[k])));
      }
      const bool goes_on = i == end && Continues(entries, i, plan);
      if (comes_in || goes_on) {
        C* partial = Partial(partials, chunk, comes_in ? 0 : 1, columns * N) + column * N;
        for (int k = 0; k < N; ++k)
          Store(partial + k, sums[k]);
      } else if (key != kOutside<E>) {
        W* place = out + offsets[0] + static_cast<std::int64_t>(key) * plan.out_stride;
        Vec<W, N> values = Load<N>(place);
        for (int k = 0; k < N; ++k)
          values[k] = FromCompute<W>(AddOp()(ToCompute(values[k]), sums[k]));
        Store(place, values);
      }
      comes_in = false;
    }
  }
}

/// Adds the runs of several chunks, each from the chunk in which it begins.
template <typename W, typename E>
SIMT_KERNEL void AddLongRunsKernel(W* out, const ComputeType<W>* partials, const E* entries,
                                   AddPlan plan) {
  using C = ComputeType<W>;
  const std::int64_t columns = plan.columns.numel;
  const std::int64_t items = plan.Chunks() * columns;
  for (std::int64_t item = GlobalThreadIndex(); item < items; item += GlobalThreadCount()) {
    std::int64_t chunk = item / columns;
    const std::int64_t column = item - chunk * columns;
    const std::int64_t begin = chunk * kChunk;
    if (!Continues(entries, plan.EndOf(chunk), plan)) continue;
    const EntryKey<E> key = KeyOf(Load(entries + plan.EndOf(chunk)));
    const bool came_in = Continues(entries, begin, plan) && KeyOf(Load(entries + begin)) == key;
    if (came_in || key == kOutside<E>) continue;
    C sum = Load(Partial(partials, chunk, 1, columns) + column);
    do {
      ++chunk;
      sum = AddOp()(sum, Load(Partial(partials, chunk, 0, columns) + column));
    } while (plan.EndOf(chunk) < plan.length && KeyOf(Load(entries + plan.EndOf(chunk))) == key);
    std::int64_t offsets[2];
    plan.columns.Locate(column, offsets);
    W* place = out + offsets[0] + static_cast<std::int64_t>(key) * plan.out_stride;
    Store(place, FromCompute<W>(AddOp()(ToCompute(Load(place)), sum)));
  }
}

/// A slice's columns in out and src.
struct Slices {
  MergedDims columns;
  const Tensor& out;
  const Tensor& src;
  std::int64_t out_stride;
  std::int64_t src_stride;

  /// Whether N columns may move at once.
  bool AllowVectors(int width) const {
    const auto aligned = [&](const Tensor& tensor) {
      const std::size_t bytes = SizeOf(tensor.dtype()) * static_cast<std::size_t>(width);
      return reinterpret_cast<std::uintptr_t>(tensor.raw_data()) % bytes == 0;
    };
    bool allow = columns.inner_stride(0) == 1 && columns.inner_stride(1) == 1 &&
                 columns.inner_size() % width == 0 && out_stride % width == 0 &&
                 src_stride % width == 0 && aligned(out) && aligned(src);
    for (int d = 0; d < columns.rank - 1; ++d)
      allow = allow && columns.strides[d][0] % width == 0 && columns.strides[d][1] % width == 0;
    return allow;
  }
};

/// Adds in the types W of out and T of src.
template <typename W, typename T, typename E>
void AddSlicesAs(const Context& context, const Slices& slices, const EntryRows<E>& entries) {
  using C = ComputeType<W>;
  AddPlan plan{StridedIndex<2>(slices.columns), slices.out_stride, slices.src_stride,
               entries.length};
  const std::int64_t columns = plan.columns.numel;
  Tensor scratch;
  C* partials = nullptr;
  if (plan.Chunks() > 1) {
    scratch = Tensor::Empty({plan.Chunks(), 2, columns}, DataTypeOf<C>(), context.device);
    partials = scratch.data<C>();
  }
  W* out = slices.out.data<W>();
  const auto add_chunks = [&]<int N>(std::integral_constant<int, N>) {
    MergedDims vectors = slices.columns;
    AddPlan vector_plan = plan;
    if constexpr (N > 1) {
      const int inner = vectors.rank - 1;
      vectors.sizes[inner] /= N;
      vectors.strides[inner][0] = N;
      vectors.strides[inner][1] = N;
      vector_plan.columns = StridedIndex<2>(vectors);
    }
    Launch(context, Linear(plan.Chunks() * columns / N), &AddChunksKernel<W, T, N, E>, out,
           partials, slices.src.data<T>(), entries.data(), vector_plan);
  };
  constexpr int kVector = kMaxVectorWidth<W>;
  constexpr bool kIsCommon = std::is_same_v<E, NarrowEntry> && !std::is_same_v<W, double>;
  if constexpr (kIsCommon) {
    if (slices.AllowVectors(kVector)) {
      add_chunks(std::integral_constant<int, kVector>{});
    } else {
      add_chunks(std::integral_constant<int, 1>{});
    }
  } else {
    add_chunks(std::integral_constant<int, 1>{});
  }
  if (plan.Chunks() > 1) {
    Launch(context, Linear(plan.Chunks() * columns), &AddLongRunsKernel<W, E>, out, partials,
           entries.data(), plan);
  }
}

/// Calls `body(TypeTag<W>{}, TypeTag<T>{})` for the types of out and src: the same, or, where both
/// are floating, a wider one for out.
template <typename Body>
void DispatchSumTypes(const char* op, const Tensor& out, const Tensor& src, const Body& body) {
  DispatchTypes(SignedTypes{}, op, src.dtype(), [&]<typename T>(TypeTag<T> type) {
    if (out.dtype() == src.dtype()) return body(type, type);
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
      if (out.dtype() == DataType::kFloat32) return body(TypeTag<float>{}, type);
    }
    if constexpr (std::is_same_v<ComputeType<T>, float>) {
      if (out.dtype() == DataType::kFloat64) return body(TypeTag<double>{}, type);
    }
    CheckDataType(op, out, src.dtype());
  });
}

void AddSlices(const char* op, const Context& context, const Slices& slices, const Tensor& index,
               std::int64_t index_stride, std::int64_t limit) {
  if (slices.src.numel() == 0) return;
  const std::int64_t length = index.numel();
  const Dims none;
  const Lines line{
      StridedIndex<3>(MergedDims(none, {&none, &none, &none})), 0, index_stride, 0, length, limit};
  DispatchSumTypes(op, slices.out, slices.src, [&]<typename W, typename T>(TypeTag<W>, TypeTag<T>) {
    if (FitsNarrowEntries(length, limit)) {
      AddSlicesAs<W, T>(context, slices, SortedIndex<NarrowEntry>(op, context, index, line));
    } else {
      AddSlicesAs<W, T>(context, slices, SortedIndex<WideEntry>(op, context, index, line));
    }
  });
}

void IndexAdd(const Context& context, Tensor& out, const Tensor& index, const Tensor& src,
              int dim) {
  CheckDataType("IndexAdd", src, out.dtype());
  const Dims out_strides = Without(out.strides(), dim);
  const Dims src_strides = Without(src.strides(), dim);
  AddSlices("IndexAdd", context,
            {MergedDims(Without(src.shape(), dim), {&out_strides, &src_strides}), out, src,
             out.strides()[dim], src.strides()[dim]},
            index, index.strides()[0], out.size(dim));
}

void EmbeddingBackward(const Context& context, Tensor& grad_weight, const Tensor& grad_y,
                       const Tensor& ids) {
  const std::int64_t hidden = grad_weight.size(1);
  const Dims strides = {1};
  AddSlices("EmbeddingBackward", context,
            {MergedDims({hidden}, {&strides, &strides}), grad_weight, grad_y, hidden, hidden}, ids,
            1, grad_weight.size(0));
}

}  // namespace

SIMT_REGISTER_KERNEL(IndexAdd, &IndexAdd);
SIMT_REGISTER_KERNEL(EmbeddingBackward, &EmbeddingBackward);

}  // namespace infini_train::simt
