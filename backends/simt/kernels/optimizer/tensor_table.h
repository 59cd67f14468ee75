#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/simt/dialect.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/split_float.h"
#include "infini_train/core/tensor.h"

namespace infini_train::simt {

/// Elements that a block takes at once: the same pieces, and so the same sums, for any grid.
inline constexpr std::int64_t kTableChunk = 16 * 1024;
inline constexpr int kTableBlock = 256;

/// Where many tensors lie, for a kernel that works on all of them: kLists parallel lists of arrays.
/// Handed to the kernel by value, so that no table has to be copied to the device; chips take at
/// least 4 KiB of kernel arguments, of which 512 bytes are left to others.
template <int kLists>
struct TensorTable {
  static constexpr int kListCount = kLists;
  static constexpr int kCapacity = 3584 / (8 * kLists + 2 * 8 + 1);

  void* data[kCapacity][kLists];  ///< null where a list has no such tensor
  std::int64_t numel[kCapacity];
  std::int64_t first_chunk[kCapacity];
  bool vector[kCapacity];  ///< all arrays are aligned for vector access
  int size = 0;
  std::int64_t chunks = 0;

  /// The tensor that a chunk belongs to.
  SIMT_DEVICE int Find(std::int64_t chunk) const {
    int low = 0;
    int high = size - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_chunk[middle] <= chunk) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

/// Calls `body.template Run<width>(k, i)` for elements [i, i + width) of tensor k, for all elements
/// of a chunk of the table, spread over the block: width is kVector or 1.
template <int kVector, int kLists, typename Body>
SIMT_DEVICE void ForEachInChunk(const TensorTable<kLists>& table, std::int64_t chunk,
                                const Body& body) {
  const int k = table.Find(chunk);
  std::int64_t begin = (chunk - table.first_chunk[k]) * kTableChunk;
  const std::int64_t end =
      begin + kTableChunk < table.numel[k] ? begin + kTableChunk : table.numel[k];
  if (table.vector[k]) {
    const std::int64_t vectors = (end - begin) / kVector;
    for (std::int64_t i = ThreadIndex(); i < vectors; i += BlockSize())
      body.template Run<kVector>(k, begin + i * kVector);
    begin += vectors * kVector;
  }
  for (std::int64_t i = begin + ThreadIndex(); i < end; i += BlockSize())
    body.template Run<1>(k, i);
}

/// Puts tensors 0 to count - 1 in tables and calls `launch(table)` for each table that is full and
/// for the last. `fill(k, data)` sets the arrays of tensor k and returns its number of elements, 0
/// to leave it out. `alignment`: bytes that vector access needs, of each list.
template <int kLists, typename Fill, typename LaunchTable>
void ForEachTable(std::size_t count, const std::size_t (&alignment)[kLists], const Fill& fill,
                  const LaunchTable& launch) {
  TensorTable<kLists> table{};
  for (std::size_t k = 0; k < count; ++k) {
    void** data = table.data[table.size];
    const std::int64_t numel = fill(k, data);
    if (numel == 0) continue;
    const int at = table.size++;
    table.numel[at] = numel;
    table.first_chunk[at] = table.chunks;
    table.chunks += (numel + kTableChunk - 1) / kTableChunk;
    table.vector[at] = true;
    for (int list = 0; list < kLists; ++list) {
      if (reinterpret_cast<std::uintptr_t>(data[list]) % alignment[list] != 0)
        table.vector[at] = false;
    }
    if (table.size < TensorTable<kLists>::kCapacity) continue;
    launch(table);
    table.size = 0;
    table.chunks = 0;
  }
  if (table.size > 0) launch(table);
}

/// A block per chunk.
inline Geometry TableGeometry(std::int64_t chunks) {
  return {.grid_x = std::min<std::int64_t>(chunks, kMaxGridX), .block = kTableBlock};
}

/// A parameter as an optimizer sees it, `width` elements at a time: its master where it has one.
/// Lists of the table: 0 parameters (P), 1 gradients (G), `kMaster` masters, and after these what
/// parameters of bfloat16 lack of masters that have no memory of their own.
template <typename P, typename G, int kMaster, int kLists>
struct ParameterAccess {
  using C = ComputeType<P>;
  using Table = TensorTable<kLists>;
  static constexpr int kMasterList = kMaster;
  static constexpr int kLowList = kMaster + 1;
  static constexpr bool kMaySplit = std::is_same_v<P, BFloat16>;
  static constexpr int kVector = kMaxVectorWidth<C>;

  template <int kWidth, typename T>
  SIMT_DEVICE static Vec<T, kWidth> Get(const TensorTable<kLists>& table, int list, int k,
                                        std::int64_t i) {
    return Load<kWidth>(static_cast<const T*>(table.data[k][list]) + i);
  }
  template <int kWidth, typename T>
  SIMT_DEVICE static void Set(const TensorTable<kLists>& table, int list, int k, std::int64_t i,
                              const Vec<T, kWidth>& values) {
    Store(static_cast<T*>(table.data[k][list]) + i, values);
  }

  template <int kWidth>
  SIMT_DEVICE static Vec<C, kWidth> Grad(const TensorTable<kLists>& table, int k, std::int64_t i) {
    const Vec<G, kWidth> grad = Get<kWidth, G>(table, 1, k, i);
    Vec<C, kWidth> result;
    for (int x = 0; x < kWidth; ++x)
      result[x] = static_cast<C>(ToCompute(grad[x]));
    return result;
  }
  template <int kWidth>
  SIMT_DEVICE static Vec<C, kWidth> Param(const TensorTable<kLists>& table, int k, std::int64_t i) {
    if (table.data[k][kMaster] != nullptr) return Get<kWidth, C>(table, kMaster, k, i);
    const Vec<P, kWidth> param = Get<kWidth, P>(table, 0, k, i);
    Vec<C, kWidth> result;
    if constexpr (kMaySplit) {
      if (table.data[k][kLowList] != nullptr) {
        const Vec<std::uint16_t, kWidth> low = Get<kWidth, std::uint16_t>(table, kLowList, k, i);
        for (int x = 0; x < kWidth; ++x)
          result[x] = SplitFloat(param[x], low[x]).Join();
        return result;
      }
    }
    for (int x = 0; x < kWidth; ++x)
      result[x] = ToCompute(param[x]);
    return result;
  }
  template <int kWidth>
  SIMT_DEVICE static void SetParam(const TensorTable<kLists>& table, int k, std::int64_t i,
                                   const Vec<C, kWidth>& values) {
    if (table.data[k][kMaster] != nullptr) Set(table, kMaster, k, i, values);
    Vec<P, kWidth> param;
    if constexpr (kMaySplit) {
      if (table.data[k][kLowList] != nullptr) {
        Vec<std::uint16_t, kWidth> low;
        for (int x = 0; x < kWidth; ++x) {
          const SplitFloat split(values[x]);
          param[x] = split.high;
          low[x] = split.low;
        }
        Set(table, 0, k, i, param);
        Set(table, kLowList, k, i, low);
        return;
      }
    }
    for (int x = 0; x < kWidth; ++x)
      param[x] = FromCompute<P>(values[x]);
    Set(table, 0, k, i, param);
  }
};

inline constexpr DataType kTableTypes[] = {DataType::kFloat32, DataType::kFloat64,
                                           DataType::kFloat16, DataType::kBFloat16};

/// One optimizer step of the parameters in a table. Update<P, G> says what happens to `width`
/// elements, as ForEachInChunk's body; it names its ParameterAccess, its type of hyperparameters,
/// and the place of the gradient factor among the scalars.
template <typename Update>
SIMT_KERNEL void UpdateKernel(typename Update::Access::Table table, const double* scalars,
                              typename Update::Hyper hyper) {
  // A step whose gradients are not finite leaves everything as it was.
  const double factor = Load(scalars + Update::kGradientFactor);
  if (factor - factor != 0.0) return;
  const Update update(table, scalars, hyper);
  for (std::int64_t chunk = BlockIndex(); chunk < table.chunks; chunk += GridSize())
    ForEachInChunk<Update::Access::kVector>(table, chunk, update);
}

/// Runs UpdateKernel on tables of parameters of one type P and gradients of one type G, for each
/// such pair that optimizers take: G is P or float. `fill(k, data)` sets the arrays of the lists
/// besides those of the parameter, the gradient and the master, which are float or, for double,
/// double.
template <template <typename P, typename G> typename Update, typename Hyper, typename Fill>
void UpdateParameters(const Context& context, MutableTensorList params, TensorList grads,
                      MutableTensorList masters, const Tensor& scalars, const Hyper& hyper,
                      const Fill& fill) {
  const double* scalars_data = scalars.data<double>();
  const auto run = [&](auto param_tag, auto grad_tag) {
    using P = typename decltype(param_tag)::type;
    using G = typename decltype(grad_tag)::type;
    using Access = typename Update<P, G>::Access;
    constexpr int kLists = Access::Table::kListCount;
    std::size_t alignment[kLists];
    std::fill_n(alignment, kLists, kMaxVectorBytes);
    alignment[0] = Access::kVector * sizeof(P);
    alignment[1] = Access::kVector * sizeof(G);
    alignment[Access::kLowList] = Access::kVector * sizeof(std::uint16_t);
    ForEachTable<kLists>(
        params.size(), alignment,
        [&](std::size_t k, void** data) -> std::int64_t {
          if (params[k].dtype() != DataTypeOf<P>() || grads[k].dtype() != DataTypeOf<G>()) return 0;
          data[0] = params[k].raw_data();
          data[1] = grads[k].raw_data();
          void* const master =
              masters.empty() || !masters[k].defined() ? nullptr : masters[k].raw_data();
          const bool splits = master != nullptr && masters[k].dtype() == DataType::kUInt16;
          data[Access::kMasterList] = splits ? nullptr : master;
          data[Access::kLowList] = splits ? master : nullptr;
          fill(k, data);
          return params[k].numel();
        },
        [&](const typename Access::Table& table) {
          Launch(context, TableGeometry(table.chunks), UpdateKernel<Update<P, G>>, table,
                 scalars_data, hyper);
        });
  };
  for (const DataType dtype : kTableTypes) {
    DispatchFloating("an optimizer", dtype, [&](auto tag) {
      run(tag, tag);
      if constexpr (!std::is_same_v<typename decltype(tag)::type, float>)
        run(tag, TypeTag<float>{});
    });
  }
}

}  // namespace infini_train::simt
