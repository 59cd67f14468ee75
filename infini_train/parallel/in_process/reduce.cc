#include "infini_train/parallel/in_process/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/storage.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::parallel {
namespace {

/// Bytes of a part that are reduced at a time: what stays in the caches of a CPU, and what keeps a
/// device busy.
constexpr std::size_t kHostPiece = std::size_t{512} << 10;
constexpr std::size_t kDevicePiece = std::size_t{32} << 20;

/// The elements at an address, as a tensor that does not own them.
Tensor View(Device device, void* data, std::int64_t count, DataType dtype) {
  auto storage = std::make_shared<Storage>(device, data,
                                           static_cast<std::size_t>(count) * SizeOf(dtype), [] {});
  return Tensor::FromStorage(std::move(storage), dtype, {count}, {1});
}

/// Call, for ops that the CPU does not stand in for.
template <typename Op, typename... Arguments>
void CallOwn(Device device, Tensor& out, const Arguments&... arguments) {
  if (!HasKernel(device.type(), Op::kId)) {
    throw Error(fmt::format("reducing in process needs a kernel of {} for {}",
                            GetOpInfo(Op::kId).name, ToString(device.type())));
  }
  Call<Op>(out, arguments...);
}

/// out = a (op) b.
void Combine(Device device, Tensor& out, const Tensor& a, const Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return CallOwn<op::Add>(device, out, a, b);
    case ReduceOp::kProduct:
      return CallOwn<op::Mul>(device, out, a, b);
    case ReduceOp::kMin:
      return CallOwn<op::Minimum>(device, out, a, b);
    case ReduceOp::kMax:
      return CallOwn<op::Maximum>(device, out, a, b);
  }
}

/// Reduces pieces of `count` elements at most.
class PieceReducer {
 public:
  PieceReducer(Device device, std::span<const RankPart> parts, std::int64_t count, DataType dtype,
               ReduceOp op)
      : device_(device), parts_(parts), dtype_(dtype), op_(op) {
    const bool widens = dtype == DataType::kFloat16 || dtype == DataType::kBFloat16;
    wide_dtype_ = widens ? DataType::kFloat32 : dtype;
    // With two parts the sum goes right to where it belongs.
    if (widens || parts.size() > 2) sum_ = Tensor::Empty({count}, wide_dtype_, device);
    if (widens) term_ = Tensor::Empty({count}, wide_dtype_, device);
    staged_.resize(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!(parts[i].device == device)) staged_[i] = Tensor::Empty({count}, dtype, device);
    }
  }

  void Run(std::size_t begin, std::int64_t count, void* out) {
    const std::size_t offset = begin * SizeOf(dtype_);
    Tensor result = View(device_, static_cast<std::byte*>(out) + offset, count, dtype_);
    const bool widens = wide_dtype_ != dtype_;
    Tensor sum = First(sum_, count);
    for (std::size_t i = 1; i < parts_.size(); ++i) {
      const Tensor left = i > 1 ? sum : Operand(sum, 0, offset, count);
      Tensor term = First(term_, count);
      const Tensor right = Operand(term, i, offset, count);
      const bool is_last = i + 1 == parts_.size();
      Combine(device_, is_last && !widens ? result : sum, left, right, op_);
    }
    Tensor& total = widens ? sum : result;
    if (op_ == ReduceOp::kAverage) {
      CallOwn<op::DivScalar>(device_, total, total,
                             Scalar(static_cast<std::int64_t>(parts_.size())));
    }
    if (widens) CallOwn<op::Copy>(device_, result, sum);
  }

 private:
  static Tensor First(const Tensor& buffer, std::int64_t count) {
    return buffer.defined() ? buffer.AsStrided({count}, {1}, 0) : Tensor();
  }

  /// A rank's elements, on this device.
  Tensor Part(std::size_t i, std::size_t offset, std::int64_t count) {
    const RankPart& part = parts_[i];
    // Nobody writes to it.
    auto* data = static_cast<std::byte*>(const_cast<void*>(part.data)) + offset;
    if (part.device == device_) return View(device_, data, count, dtype_);
    const Tensor staged = First(staged_[i], count);
    GetDeviceGuardImpl(device_.type())
        .CopyPeerAsync(staged.raw_data(), device_.index(), data, part.device.index(),
                       staged.nbytes(), CurrentStream(device_));
    return staged;
  }

  /// The same in the type of sums; in `buffer` where that is another.
  Tensor Operand(Tensor& buffer, std::size_t i, std::size_t offset, std::int64_t count) {
    if (wide_dtype_ == dtype_) return Part(i, offset, count);
    CallOwn<op::Copy>(device_, buffer, Part(i, offset, count));
    return buffer;
  }

  const Device device_;
  const std::span<const RankPart> parts_;
  const DataType dtype_;
  const ReduceOp op_;
  DataType wide_dtype_;
  Tensor sum_;
  Tensor term_;
  std::vector<Tensor> staged_;
};

}  // namespace

void ReduceParts(Device device, std::span<const RankPart> parts, void* out, std::size_t count,
                 DataType dtype, ReduceOp op) {
  const bool is_host = GetDeviceGuardImpl(device.type()).IsHostMemory();
  const std::size_t piece = std::min(count, (is_host ? kHostPiece : kDevicePiece) / SizeOf(dtype));
  PieceReducer reducer(device, parts, static_cast<std::int64_t>(piece), dtype, op);
  for (std::size_t begin = 0; begin < count; begin += piece)
    reducer.Run(begin, static_cast<std::int64_t>(std::min(piece, count - begin)), out);
}

}  // namespace infini_train::parallel
