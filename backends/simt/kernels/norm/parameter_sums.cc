#include "backends/simt/kernels/norm/parameter_sums.h"

#include <cstdint>

namespace infini_train::simt {
namespace {

/// A block sums this many columns; for each, kSlices lanes sum every kSlices-th part, and read
/// kBatch of these before they add the first.
constexpr int kColumns = 32;
constexpr int kSlices = 32;
constexpr int kBatch = 12;

template <typename C, typename W>
SIMT_KERNEL void SumPartsKernel(W* grad_weight, W* grad_bias, const C* partials, std::int64_t parts,
                                std::int64_t stride, std::int64_t hidden) {
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
    W* gradient = column < hidden ? grad_weight : grad_bias;
    if (slice == 0 && column < stride && gradient != nullptr) {
      for (int s = 1; s < kSlices; ++s) {
        const double other = slice_sums[s * kColumns + ThreadIndex()];
        sum += other;
      }
      Store(gradient + column % hidden, FromCompute<W>(static_cast<ComputeType<W>>(sum)));
    }
    SyncBlock();
  }
}

}  // namespace

void SumParameterParts(const Context& context, Tensor& grad_weight, Tensor& grad_bias,
                       const Tensor& partials) {
  const Tensor& some = grad_weight.defined() ? grad_weight : grad_bias;
  const std::int64_t stride = partials.size(1);
  const Geometry geometry = Rows((stride + kColumns - 1) / kColumns, kColumns * kSlices);
  const auto launch = [&]<typename C>(TypeTag<C>) {
    DispatchFloating("the parameter gradient of a norm", some.dtype(), [&](auto tag) {
      using W = typename decltype(tag)::type;
      Launch(context, geometry, &SumPartsKernel<C, W>,
             grad_weight.defined() ? grad_weight.data<W>() : nullptr,
             grad_bias.defined() ? grad_bias.data<W>() : nullptr, partials.data<C>(),
             partials.size(0), stride, some.numel());
    });
  };
  if (partials.dtype() == DataType::kFloat64) {
    launch(TypeTag<double>{});
  } else {
    launch(TypeTag<float>{});
  }
}

}  // namespace infini_train::simt
