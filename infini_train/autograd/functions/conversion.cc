#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/node.h"
#include "infini_train/autograd/selective_recompute.h"
#include "infini_train/core/device/device_guard.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::ShouldRecord;

/// An event for a scope. Destroying it does not undo the waits on it.
class ScopedEvent {
 public:
  explicit ScopedEvent(DeviceGuardImpl& impl) : impl_(impl), event_(impl.CreateEvent()) {}
  ~ScopedEvent() { impl_.DestroyEvent(event_); }
  ScopedEvent(const ScopedEvent&) = delete;
  ScopedEvent& operator=(const ScopedEvent&) = delete;

  EventHandle handle() const { return event_; }

 private:
  DeviceGuardImpl& impl_;
  EventHandle event_;
};

/// Work submitted to the current stream of `later` from now on starts after what the current stream
/// of `earlier` holds now.
void Order(DeviceGuardImpl& impl, Device earlier, Device later) {
  const DeviceGuard guard(earlier);
  const ScopedEvent event(impl);
  impl.RecordEvent(event.handle(), CurrentStream(earlier));
  const DeviceGuard later_guard(later);
  impl.StreamWaitEvent(CurrentStream(later), event.handle());
}

/// Both contiguous, of one shape and dtype, on different devices.
void Transfer(const Tensor& target, const Tensor& source) {
  const Device to = target.device();
  const Device from = source.device();
  DeviceGuardImpl& to_impl = GetDeviceGuardImpl(to.type());
  DeviceGuardImpl& from_impl = GetDeviceGuardImpl(from.type());
  if (from_impl.IsHostMemory()) {
    // Waits, since the host memory may be freed or written as soon as this returns.
    target.CopyFromHost(source.raw_data(), source.nbytes());
  } else if (to_impl.IsHostMemory()) {
    source.CopyToHost(target.raw_data());
    target.BumpVersion();
  } else if (to.type() == from.type()) {
    // On the source's stream, after the last use of the target's memory and before the next.
    Order(to_impl, to, from);
    {
      const DeviceGuard guard(from);
      from_impl.CopyPeerAsync(target.raw_data(), to.index(), source.raw_data(), from.index(),
                              source.nbytes(), CurrentStream(from));
    }
    Order(to_impl, from, to);
    target.BumpVersion();
  } else {
    Transfer(target, raw::To(source, Device()));
  }
}

}  // namespace

Tensor raw::To(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  // The host gathers elements itself where the device cannot.
  const bool gather_on_host = GetDeviceGuardImpl(device.type()).IsHostMemory() &&
                              !HasKernel(x.device().type(), OpId::kCopy);
  const Tensor source = gather_on_host ? x : raw::Contiguous(x);
  Tensor result = Tensor::Empty(x.shape(), x.dtype(), device);
  if (x.numel() > 0) Transfer(result, source);
  return result;
}

Tensor To(const Tensor& x, DataType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor out = raw::To(x, dtype);
  if (IsFloatingPoint(dtype) && ShouldRecord({&x})) {
    Record("To", {&out}, {&x}, [dtype = x.dtype()](BackwardContext& context) {
      context.SetGrad(0, raw::To(context.TakeGradOutput(), dtype));
    });
    autograd::SetRecomputeFrom(x, out, [dtype](const Tensor& x) { return raw::To(x, dtype); });
  }
  return out;
}

Tensor To(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  Tensor out = raw::To(x, device);
  if (ShouldRecord({&x})) {
    Record("To", {&out}, {&x}, [device = x.device()](BackwardContext& context) {
      context.SetGrad(0, raw::To(context.TakeGradOutput(), device));
    });
  }
  return out;
}

Tensor Contiguous(const Tensor& x) {
  return x.IsContiguous() ? x : Clone(x);
}

Tensor Clone(const Tensor& x) {
  Tensor out = raw::Clone(x);
  if (ShouldRecord({&x})) {
    Record("Clone", {&out}, {&x},
           [](BackwardContext& context) { context.SetGrad(0, context.TakeGradOutput()); });
  }
  return out;
}

}  // namespace infini_train
