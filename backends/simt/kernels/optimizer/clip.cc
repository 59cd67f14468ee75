#include <cstddef>
#include <cstdint>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/optimizer/tensor_table.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

template <typename T>
struct SquareSum {
  template <int kWidth>
  SIMT_DEVICE void Run(int k, std::int64_t i) const {
    const Vec<T, kWidth> values = Load<kWidth>(static_cast<const T*>(table.data[k][0]) + i);
    for (int x = 0; x < kWidth; ++x) {
      const auto value = static_cast<double>(ToCompute(values[x]));
      sum += value * value;
    }
  }

  const TensorTable<1>& table;
  mutable double sum = 0;
};

// sums[chunk] = sum of squares of a chunk.
template <typename T>
SIMT_KERNEL void SquareSumKernel(TensorTable<1> table, double* sums) {
  for (std::int64_t chunk = BlockIndex(); chunk < table.chunks; chunk += GridSize()) {
    const SquareSum<T> squares{table};
    ForEachInChunk<kMaxVectorWidth<T>>(table, chunk, squares);
    const double total = ReduceBlock(squares.sum, SumOp(), 0.0);
    if (ThreadIndex() == 0) Store(sums + chunk, total);
  }
}

// One block.
SIMT_KERNEL void RootKernel(float* norm, const double* sums, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = ThreadIndex(); i < count; i += BlockSize())
    sum += Load(sums + i);
  const double total = ReduceBlock(sum, SumOp(), 0.0);
  if (ThreadIndex() == 0) Store(norm, static_cast<float>(Sqrt(total)));
}

template <typename T>
struct Scale {
  template <int kWidth>
  SIMT_DEVICE void Run(int k, std::int64_t i) const {
    T* data = static_cast<T*>(table.data[k][0]) + i;
    Vec<T, kWidth> values = Load<kWidth>(static_cast<const T*>(data));
    for (int x = 0; x < kWidth; ++x)
      values[x] = FromCompute<T>(ToCompute(values[x]) * factor);
    Store(data, values);
  }

  const TensorTable<1>& table;
  ComputeType<T> factor;
};

template <typename T>
SIMT_KERNEL void ScaleKernel(TensorTable<1> table, const float* factor) {
  const float value = Load(factor);
  if (value == 1.0f) return;
  const Scale<T> scale{table, value};
  for (std::int64_t chunk = BlockIndex(); chunk < table.chunks; chunk += GridSize())
    ForEachInChunk<kMaxVectorWidth<T>>(table, chunk, scale);
}

// Calls `launch(TypeTag<T>, table)` for tables of tensors of one type.
template <typename LaunchTable>
void ForEachTypedTable(std::string_view op, TensorList xs, const LaunchTable& launch) {
  for (const DataType dtype : kTableTypes) {
    DispatchFloating(op, dtype, [&](auto tag) {
      ForEachTable<1>(
          xs.size(), {kMaxVectorBytes},
          [&](std::size_t k, void** data) -> std::int64_t {
            data[0] = xs[k].raw_data();
            return xs[k].dtype() == dtype ? xs[k].numel() : 0;
          },
          [&](const TensorTable<1>& table) { launch(tag, table); });
    });
  }
}

void GlobalNorm(const Context& context, Tensor& norm, TensorList xs) {
  std::int64_t chunks = 0;
  for (const Tensor& x : xs)
    chunks += (x.numel() + kTableChunk - 1) / kTableChunk;
  const Tensor sums = Tensor::Empty({chunks}, DataType::kFloat64, context.device);
  double* next = sums.data<double>();
  ForEachTypedTable("GlobalNorm", xs, [&](auto tag, const TensorTable<1>& table) {
    using T = typename decltype(tag)::type;
    Launch(context, TableGeometry(table.chunks), SquareSumKernel<T>, table, next);
    next += table.chunks;
  });
  Launch(context, Geometry{.block = 1024}, RootKernel, norm.data<float>(), sums.data<double>(),
         chunks);
}

void ScaleAll(const Context& context, MutableTensorList xs, const Tensor& factor) {
  ForEachTypedTable("ScaleAll", xs, [&](auto tag, const TensorTable<1>& table) {
    using T = typename decltype(tag)::type;
    Launch(context, TableGeometry(table.chunks), ScaleKernel<T>, table, factor.data<float>());
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(GlobalNorm, &GlobalNorm);
SIMT_REGISTER_KERNEL(ScaleAll, &ScaleAll);

}  // namespace infini_train::simt
