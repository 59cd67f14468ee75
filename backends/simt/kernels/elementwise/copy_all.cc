#include <cstddef>
#include <cstdint>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/optimizer/tensor_table.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

template <typename To, typename From>
struct Convert {
  template <int kWidth>
  SIMT_DEVICE void Run(int k, std::int64_t i) const {
    const Vec<From, kWidth> x = Load<kWidth>(static_cast<const From*>(table.data[k][1]) + i);
    Vec<To, kWidth> out;
    for (int e = 0; e < kWidth; ++e)
      out[e] = FromCompute<To>(ToCompute(x[e]));
    Store(static_cast<To*>(table.data[k][0]) + i, out);
  }

  const TensorTable<2>& table;
};

template <typename To, typename From>
SIMT_KERNEL void ConvertAllKernel(TensorTable<2> table) {
  const Convert<To, From> convert{table};
  for (std::int64_t chunk = BlockIndex(); chunk < table.chunks; chunk += GridSize())
    ForEachInChunk<kMaxVectorWidth<From>>(table, chunk, convert);
}

/// Whether a kernel converts many tensors at once: float32 parameters to what products take.
bool IsCopiedTogether(const Tensor& out, const Tensor& x) {
  return x.dtype() == DataType::kFloat32 && SizeOf(out.dtype()) == 2;
}

void CopyAll(const Context& context, MutableTensorList outs, TensorList xs) {
  const auto together = [&]<typename To>(TypeTag<To>) {
    ForEachTable<2>(
        outs.size(), {kMaxVectorWidth<float> * sizeof(To), kMaxVectorBytes},
        [&](std::size_t k, void** data) -> std::int64_t {
          if (outs[k].dtype() != DataTypeOf<To>() || !IsCopiedTogether(outs[k], xs[k])) return 0;
          data[0] = outs[k].raw_data();
          data[1] = xs[k].raw_data();
          return outs[k].numel();
        },
        [&](const TensorTable<2>& table) {
          Launch(context, TableGeometry(table.chunks), ConvertAllKernel<To, float>, table);
        });
  };
  together(TypeTag<BFloat16>{});
  together(TypeTag<Float16>{});
  for (std::size_t k = 0; k < outs.size(); ++k) {
    if (!IsCopiedTogether(outs[k], xs[k])) Call<op::Copy>(outs[k], xs[k]);
  }
}

}  // namespace

SIMT_REGISTER_KERNEL(CopyAll, &CopyAll);

}  // namespace infini_train::simt
