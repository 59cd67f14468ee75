#include "backends/simt/kernels/norm/part_sums.h"

#include <algorithm>

namespace infini_train::simt {
namespace {

/// A block sums this many columns; for each, kSlices lanes sum every kSlices-th part, and read
/// kBatch of these before they add the first.
constexpr int kColumns = 16;
constexpr int kSlices = 32;
constexpr int kBatch = 13;

/// The vectors of sums, each stored as T or as float, or not at all.
template <typename T>
struct PartSums {
  T* same[kMaxPartSums];
  float* single[kMaxPartSums];

  SIMT_DEVICE void Write(std::int64_t segment, std::int64_t i, double sum) const {
    SIMT_UNROLL
    for (int k = 0; k < kMaxPartSums; ++k) {
      if (k != segment) continue;
      if (same[k] != nullptr) Store(same[k] + i, FromCompute<T>(static_cast<ComputeType<T>>(sum)));
      if (single[k] != nullptr) Store(single[k] + i, static_cast<float>(sum));
    }
  }
};

template <typename T>
SIMT_KERNEL void SumPartsKernel(PartSums<T> sums, const ComputeType<T>* partials,
                                std::int64_t parts, std::int64_t stride, std::int64_t columns) {
  using C = ComputeType<T>;
  SIMT_SHARED(double, slice_sums, kColumns* kSlices);
  const int slice = ThreadIndex() / kColumns;
  for (std::int64_t first = BlockIndex() * kColumns; first < stride;
       first += GridSize() * kColumns) {
    const std::int64_t column = first + ThreadIndex() % kColumns;
    double sum = 0;
    for (std::int64_t part = slice; column < stride && part < parts; part += kBatch * kSlices) {
      C batch[kBatch];
      SIMT_UNROLL
      for (int k = 0; k < kBatch; ++k) {
        const std::int64_t next = part + k * kSlices;
        batch[k] = next < parts ? Load(partials + next * stride + column) : C(0);
      }
      SIMT_UNROLL
      for (int k = 0; k < kBatch; ++k)
        sum += static_cast<double>(batch[k]);
    }
    slice_sums[ThreadIndex()] = sum;
    SyncBlock();
    if (slice == 0 && column < stride) {
      for (int s = 1; s < kSlices; ++s) {
        const double other = slice_sums[s * kColumns + ThreadIndex()];
        sum += other;
      }
      sums.Write(column / columns, column % columns, sum);
    }
    SyncBlock();
  }
}

}  // namespace

void SumParts(const Context& context, DataType dtype, std::initializer_list<Tensor*> sums,
              const Tensor& partials, std::int64_t columns) {
  const std::int64_t stride = partials.size(1);
  const Geometry geometry = Rows((stride + kColumns - 1) / kColumns, kColumns * kSlices);
  DispatchFloating("sums over rows", dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    PartSums<T> outputs = {};
    int k = 0;
    for (Tensor* const sum : sums) {
      if (sum->defined() && sum->dtype() == dtype) {
        outputs.same[k] = sum->data<T>();
      } else if (sum->defined()) {
        outputs.single[k] = sum->data<float>();
      }
      ++k;
    }
    Launch(context, geometry, &SumPartsKernel<T>, outputs, partials.data<ComputeType<T>>(),
           partials.size(0), stride, columns);
  });
}

}  // namespace infini_train::simt
