#include "infini_train/ops/fallback.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "infini_train/core/device/environment.h"
#include "infini_train/core/error.h"
#include "infini_train/core/storage.h"
#include "infini_train/ops/op_recorder.h"
#include "infini_train/ops/profiler.h"

namespace infini_train {
namespace {

constexpr int kUnset = -1;
constinit std::atomic<int> chosen_mode{kUnset};

struct OpState {
  std::atomic<std::uint64_t> count{0};
  std::atomic<bool> warned{false};
};
constinit std::array<OpState, kNumOps> states;

OpState& StateOf(OpId id) {
  return states[static_cast<std::size_t>(id)];
}

FallbackMode ModeOfEnvironment() {
  const std::string text = GetEnvironment("INFINI_TRAIN_FALLBACK").value_or("warn");
  if (text == "warn") return FallbackMode::kWarn;
  if (text == "error") return FallbackMode::kError;
  if (text == "silent") return FallbackMode::kSilent;
  throw Error(fmt::format("INFINI_TRAIN_FALLBACK: expected warn, error or silent, got '{}'", text));
}

/// "op Sort has no kernel for sim", or what is wrong with the one that it has.
std::string Reason(DeviceType type, OpId id) {
  const std::string_view name = GetOpInfo(id).name;
  return HasKernel(type, id)
             ? fmt::format("the kernel of op {} for {} does not take these arguments", name,
                           ToString(type))
             : fmt::format("op {} has no kernel for {}", name, ToString(type));
}

/// In one write, so that lines of several threads stay whole.
void Warn(DeviceType type, OpId id) {
  const std::string line = fmt::format(
      "infini_train: warning: {}: it runs on the CPU, with copies; register a kernel "
      "(REGISTER_KERNEL), or set INFINI_TRAIN_FALLBACK to silent or error\n",
      Reason(type, id));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

/// Throws when the op must not fall back here and now; else counts it, and warns the first time.
void Enter(OpId id, const KernelContext& context) {
  const DeviceType type = context.device.type();
  const FallbackMode mode = GetFallbackMode();
  if (mode == FallbackMode::kError) {
    throw Error(fmt::format("{}, and INFINI_TRAIN_FALLBACK=error forbids to run it on the CPU",
                            Reason(type, id)));
  }
  if (GetDeviceGuardImpl(type).IsCapturing(context.stream)) {
    throw Error(
        fmt::format("{}, and a graph that is being captured on {} cannot hold work of the CPU",
                    Reason(type, id), context.device.ToString()));
  }
  OpState& state = StateOf(id);
  state.count.fetch_add(1, std::memory_order_relaxed);
  if (mode == FallbackMode::kWarn && !state.warned.exchange(true, std::memory_order_relaxed)) {
    Warn(type, id);
  }
}

/// Where addresses in a copy start relative to those on the device, so that both are aligned alike.
constexpr std::size_t kSpanAlignment = 64;

/// Host copies of the device memory that the arguments of a call cover, with views into them for
/// arguments. Arguments that overlap share a copy, so they overlap in the same way.
class Mirror {
 public:
  explicit Mirror(const KernelContext& context)
      : context_(context), impl_(GetDeviceGuardImpl(context.device.type())) {}

  void Add(const Tensor& tensor, bool written) {
    if (!tensor.defined() || tensor.numel() == 0) return;
    pieces_.push_back({tensor.storage().get(), tensor.storage_range(), written});
  }
  void Add(TensorList tensors, bool written) {
    for (const Tensor& tensor : tensors)
      Add(tensor, written);
  }
  void Add(MutableTensorList tensors, bool written) { Add(TensorList(tensors), written); }
  template <typename T>
  void Add(const T&, bool) {}

  /// Copies the memory to the host, and waits until it is there.
  void CopyIn() {
    std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
      return a.storage != b.storage ? std::less<>()(a.storage, b.storage)
                                    : a.bytes.begin < b.bytes.begin;
    });
    for (const Piece& piece : pieces_) {
      const std::size_t begin = piece.bytes.begin / kSpanAlignment * kSpanAlignment;
      if (!spans_.empty() && spans_.back().storage == piece.storage &&
          begin < spans_.back().bytes.end) {
        spans_.back().bytes.end = std::max(spans_.back().bytes.end, piece.bytes.end);
      } else {
        spans_.push_back({piece.storage, {begin, piece.bytes.end}, nullptr});
      }
    }
    const DeviceGuard guard(context_.device);
    for (Span& span : spans_) {
      const std::size_t bytes = span.bytes.end - span.bytes.begin;
      span.copy = std::make_shared<Storage>(Device(), bytes);
      impl_.CopyAsync(span.copy->data(), Address(span.storage) + span.bytes.begin, bytes,
                      CopyKind::kDeviceToHost, context_.stream);
    }
    impl_.SynchronizeStream(context_.stream);
  }

  /// Copies the memory of the written arguments back, and waits: the host copies end with the call.
  void CopyOut() {
    const DeviceGuard guard(context_.device);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (!pieces_[i].written) continue;
      const Storage* storage = pieces_[i].storage;
      ByteRange bytes = pieces_[i].bytes;
      // Written arguments that overlap go in one piece, whatever lies between them in the order.
      for (; i + 1 < pieces_.size() && pieces_[i + 1].storage == storage &&
             pieces_[i + 1].bytes.begin < bytes.end;
           ++i) {
        if (pieces_[i + 1].written) bytes.end = std::max(bytes.end, pieces_[i + 1].bytes.end);
      }
      const Span& span = Find(storage, bytes.begin);
      impl_.CopyAsync(Address(storage) + bytes.begin,
                      Address(span.copy.get()) + (bytes.begin - span.bytes.begin),
                      bytes.end - bytes.begin, CopyKind::kHostToDevice, context_.stream);
    }
    impl_.SynchronizeStream(context_.stream);
  }

  Tensor View(const Tensor& tensor) const {
    if (!tensor.defined()) return {};
    if (tensor.numel() == 0) {
      return Tensor::FromStorage(std::make_shared<Storage>(Device(), 0), tensor.dtype(),
                                 tensor.shape(), tensor.strides());
    }
    const Span& span = Find(tensor.storage().get(), tensor.storage_range().begin);
    const auto skipped = static_cast<std::int64_t>(span.bytes.begin / SizeOf(tensor.dtype()));
    return Tensor::FromStorage(span.copy, tensor.dtype(), tensor.shape(), tensor.strides(),
                               tensor.offset() - skipped);
  }
  std::vector<Tensor> View(TensorList tensors) const {
    std::vector<Tensor> views;
    views.reserve(tensors.size());
    for (const Tensor& tensor : tensors)
      views.push_back(View(tensor));
    return views;
  }
  std::vector<Tensor> View(MutableTensorList tensors) const { return View(TensorList(tensors)); }
  /// Without a base, which is in memory of the device.
  Generator::State View(Generator::State state) const {
    if (state.base == nullptr) return state;
    std::uint64_t base = 0;
    const DeviceGuard guard(context_.device);
    impl_.CopyAsync(&base, state.base, sizeof(base), CopyKind::kDeviceToHost, context_.stream);
    impl_.SynchronizeStream(context_.stream);
    return {.seed = state.seed, .offset = state.offset + base};
  }
  AttentionParams View(AttentionParams params) const {
    params.dropout_state = View(params.dropout_state);
    return params;
  }
  template <typename T>
  const T& View(const T& value) const {
    return value;
  }

 private:
  /// The memory of one argument.
  struct Piece {
    const Storage* storage;
    ByteRange bytes;
    bool written;
  };
  /// Memory that overlapping arguments cover together, and its copy.
  struct Span {
    const Storage* storage;
    ByteRange bytes;
    std::shared_ptr<Storage> copy;
  };

  static std::byte* Address(const Storage* storage) {
    return static_cast<std::byte*>(storage->data());
  }

  const Span& Find(const Storage* storage, std::size_t begin) const {
    const auto holds = [&](const Span& span) {
      return span.storage == storage && begin >= span.bytes.begin && begin < span.bytes.end;
    };
    return *std::find_if(spans_.begin(), spans_.end(), holds);
  }

  const KernelContext& context_;
  DeviceGuardImpl& impl_;
  std::vector<Piece> pieces_;
  std::vector<Span> spans_;
};

/// How an argument is held between its copy and the kernel.
template <typename Parameter>
struct Held {
  using Type = Parameter;
};
template <>
struct Held<Tensor&> {
  using Type = Tensor;
};
template <>
struct Held<const Tensor&> {
  using Type = Tensor;
};
template <>
struct Held<const AttentionParams&> {
  using Type = AttentionParams;
};
template <>
struct Held<TensorList> {
  using Type = std::vector<Tensor>;
};
template <>
struct Held<MutableTensorList> {
  using Type = std::vector<Tensor>;
};

template <typename Op, typename Fn>
struct Fallback;

/// Stands in for the kernel of a device.
template <typename Op, typename... Parameters>
struct Fallback<Op, void(const KernelContext&, Parameters...)> {
  static void Run(const KernelContext& context, Parameters... arguments) {
    Enter(Op::kId, context);
    const ProfilerRange range(context.device, GetOpInfo(Op::kId).name.data());
    const detail::RecordedCall call(context, Op::kId, true, arguments...);
    const auto kernel =
        reinterpret_cast<typename Op::Fn*>(detail::FindKernel(DeviceType::kCPU, Op::kId));
    Mirror mirror(context);
    (mirror.Add(arguments, detail::kIsWritten<Parameters>), ...);
    mirror.CopyIn();
    std::tuple<typename Held<Parameters>::Type...> views(mirror.View(arguments)...);
    const KernelContext host{Device(), CurrentStream(Device())};
    std::apply([&](auto&... view) { kernel(host, static_cast<Parameters>(view)...); }, views);
    mirror.CopyOut();
  }
};

constexpr std::array<detail::AnyKernel (*)(), kNumOps> kFallbacks = {{
#define INFINI_TRAIN_OP_FALLBACK(Name, ...) \
  [] { return reinterpret_cast<detail::AnyKernel>(&Fallback<op::Name, op::Name::Fn>::Run); },
    INFINI_TRAIN_OP_LIST(INFINI_TRAIN_OP_FALLBACK)
#undef INFINI_TRAIN_OP_FALLBACK
}};

}  // namespace

FallbackMode GetFallbackMode() {
  const int mode = chosen_mode.load(std::memory_order_relaxed);
  if (mode != kUnset) return static_cast<FallbackMode>(mode);
  static const FallbackMode of_environment = ModeOfEnvironment();
  return of_environment;
}

void SetFallbackMode(FallbackMode mode) {
  chosen_mode.store(static_cast<int>(mode), std::memory_order_relaxed);
}

std::uint64_t FallbackCount(OpId id) {
  return StateOf(id).count.load(std::memory_order_relaxed);
}

void ResetFallbackCounts() {
  for (OpState& state : states)
    state.count.store(0, std::memory_order_relaxed);
}

detail::AnyKernel detail::FindFallback(DeviceType type, OpId id) {
  if (type == DeviceType::kCPU || !HasKernel(DeviceType::kCPU, id) || HasTwoKernels(type, id)) {
    ThrowNoKernel(type, id);
  }
  return kFallbacks[static_cast<std::size_t>(id)]();
}

}  // namespace infini_train
