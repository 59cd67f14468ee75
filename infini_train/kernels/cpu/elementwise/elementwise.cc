#include "infini_train/kernels/cpu/elementwise/elementwise.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "infini_train/core/error.h"
#include "infini_train/kernels/cpu/elementwise/convert.h"

namespace infini_train::cpu {
namespace {

/// Elements in a tile: all tiles of a loop fit the first-level cache.
constexpr std::int64_t kTile = 512;

/// Runs a loop over the pieces of rows that a StridedPlan yields.
class RowRunner {
 public:
  RowRunner(const StridedPlan& plan, std::span<const Operand> operands, int num_outputs,
            ElementwiseLoop loop)
      : operands_(operands), num_outputs_(num_outputs), loop_(loop) {
    for (int k = 0; k < static_cast<int>(operands.size()); ++k) {
      strides_[k] = plan.inner_stride(k);
      const std::size_t size = SizeOf(operands[k].dtype);
      in_place_[k] = size == SizeOf(operands[k].compute_dtype) &&
                     strides_[k] == static_cast<std::int64_t>(size);
      all_in_place_ &= in_place_[k];
    }
  }

  void operator()(std::byte* const* pointers, std::int64_t n) {
    if (all_in_place_) {
      loop_(pointers, n);
      return;
    }
    const int count = static_cast<int>(operands_.size());
    std::array<std::byte*, kMaxOperands> tiles;
    for (std::int64_t begin = 0; begin < n; begin += kTile) {
      const std::int64_t length = std::min(kTile, n - begin);
      for (int k = 0; k < count; ++k) {
        std::byte* const source = pointers[k] + begin * strides_[k];
        tiles[k] = in_place_[k] ? source : tile_memory_[k];
        if (!in_place_[k] && k >= num_outputs_) Load(k, source, length);
      }
      loop_(tiles.data(), length);
      for (int k = 0; k < num_outputs_; ++k) {
        if (!in_place_[k]) Store(k, pointers[k] + begin * strides_[k], length);
      }
    }
  }

 private:
  void Load(int k, const std::byte* source, std::int64_t length) {
    std::byte* const tile = tile_memory_[k];
    if (strides_[k] == 0) {
      // Often the tile holds the value already, from the piece before.
      if (repeated_[k] == source && repeated_length_[k] >= length) return;
      repeated_[k] = source;
      repeated_length_[k] = length;
    }
    ReadStrided(operands_[k].dtype, source, strides_[k], operands_[k].compute_dtype, tile, length);
  }

  void Store(int k, std::byte* destination, std::int64_t length) {
    WriteStrided(operands_[k].compute_dtype, tile_memory_[k], operands_[k].dtype, destination,
                 strides_[k], length);
  }

  std::span<const Operand> operands_;
  int num_outputs_;
  ElementwiseLoop loop_;
  bool all_in_place_ = true;
  std::array<bool, kMaxOperands> in_place_;
  std::array<std::int64_t, kMaxOperands> strides_;
  std::array<const std::byte*, kMaxOperands> repeated_ = {};
  std::array<std::int64_t, kMaxOperands> repeated_length_;
  alignas(64) std::byte tile_memory_[kMaxOperands][kTile * sizeof(double)];
};

}  // namespace

void LoopTable::ThrowUnsupported(std::string_view op, DataType dtype) const {
  std::string known;
  for (int i = 0; i < kNumDataTypes; ++i) {
    const auto candidate = static_cast<DataType>(i);
    if (loops_[i] == nullptr) continue;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", ToString(candidate));
  }
  throw Error(fmt::format("{} takes {}, got {}", op, known, ToString(dtype)));
}

void RunElementwise(const Dims& shape, std::span<const Operand> operands, int num_outputs,
                    ElementwiseLoop loop, std::int64_t grain) {
  const StridedPlan plan(shape, operands);
  ParallelFor(0, plan.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    RowRunner run(plan, operands, num_outputs, loop);
    plan.ForEachRun(begin, end,
                    [&](std::byte* const* pointers, std::int64_t n) { run(pointers, n); });
  });
}

Operand ComputeOperand(std::string_view op, const Tensor& tensor, DataType compute_dtype) {
  Operand operand = MakeOperand(tensor);
  operand.compute_dtype = ComputeDataType(operand.dtype);
  if (operand.compute_dtype != compute_dtype) {
    throw Error(fmt::format("{} computes in {} here, but got an operand of {}", op,
                            ToString(compute_dtype), ToString(operand.dtype)));
  }
  return operand;
}

void StoreScalar(Scalar number, DataType dtype, std::byte* bytes) {
  DispatchAll("StoreScalar", dtype, [&](auto tag) {
    const auto value = number.To<typename decltype(tag)::type>();
    std::memcpy(bytes, &value, sizeof(value));
  });
}

void RunElementwise(std::string_view op, const LoopTable& table, const Tensor& out,
                    std::initializer_list<ElementwiseInput> inputs, std::int64_t grain) {
  const DataType input_dtype = inputs.begin()->tensor()->dtype();
  const ElementwiseLoop loop = table.Find(op, input_dtype);
  const DataType compute_dtype = ComputeDataType(input_dtype);
  std::array<Operand, kMaxOperands> operands;
  alignas(8) std::byte numbers[kMaxOperands][8];
  std::size_t count = 0;
  operands[count++] =
      ComputeOperand(op, out, table.is_predicate() ? DataType::kUInt8 : compute_dtype);
  for (const ElementwiseInput& input : inputs) {
    if (input.tensor() != nullptr) {
      operands[count] = ComputeOperand(op, *input.tensor(), compute_dtype);
    } else {
      StoreScalar(input.number(), compute_dtype, numbers[count]);
      operands[count] = MakeConstant(numbers[count], compute_dtype);
    }
    ++count;
  }
  RunElementwise(out.shape(), {operands.data(), count}, 1, loop, grain);
}

}  // namespace infini_train::cpu
