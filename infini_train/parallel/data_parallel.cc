#include "infini_train/parallel/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>

#include "infini_train/autograd/backward.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::parallel {
namespace {

/// Where gradients begin in a bucket: kernels read them in words of up to this many bytes.
constexpr std::size_t kAlignment = 64;

std::size_t RoundUp(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

DataParallel::DataParallel(Communicator& communicator, const NamedTensors& parameters,
                           double bucket_mb)
    : communicator_(communicator) {
  if (!(bucket_mb > 0.0)) {
    throw Error(fmt::format("expected buckets of more than 0 MB, got {}", bucket_mb));
  }
  for (auto entry = parameters.rbegin(); entry != parameters.rend(); ++entry) {
    const auto& [name, tensor] = *entry;
    if (!tensor.requires_grad()) continue;
    if (!tensor.is_leaf()) {
      throw Error(fmt::format("expected parameter {} to be a leaf, got a result", name));
    }
    if (!(tensor.device() == communicator.device())) {
      throw Error(fmt::format("expected parameter {} on {}, got {}", name,
                              communicator.device().ToString(), tensor.device().ToString()));
    }
    parameters_.push_back({.name = name, .tensor = tensor});
  }

  // Consecutive parameters of one type, until a bucket is large enough.
  const double enough = bucket_mb * (1 << 20);
  std::size_t first = 0;
  while (first < parameters_.size()) {
    const DataType dtype = parameters_[first].tensor.dtype();
    std::size_t end = first;
    std::size_t bytes = 0;
    std::vector<std::size_t> offsets;
    while (end < parameters_.size() && parameters_[end].tensor.dtype() == dtype &&
           static_cast<double>(bytes) < enough) {
      offsets.push_back(bytes);
      bytes += RoundUp(parameters_[end++].tensor.nbytes());
    }
    Bucket bucket;
    bucket.num_parameters = static_cast<int>(end - first);
    bucket.memory = Tensor::Empty({static_cast<std::int64_t>(bytes / SizeOf(dtype))}, dtype,
                                  communicator.device());
    for (std::size_t i = first; i < end; ++i) {
      const Dims& shape = parameters_[i].tensor.shape();
      parameters_[i].grad =
          bucket.memory.AsStrided(shape, ContiguousStrides(shape),
                                  static_cast<std::int64_t>(offsets[i - first] / SizeOf(dtype)));
      parameters_[i].bucket = buckets_.size();
    }
    buckets_.push_back(std::move(bucket));
    first = end;
  }

  const DeviceGuard guard(communicator.device());
  DeviceGuardImpl& runtime = GetDeviceGuardImpl(communicator.device().type());
  constexpr int kUrgent = -1;
  stream_ = runtime.CreateStream(kUrgent);
  ready_ = runtime.CreateEvent();
  done_ = runtime.CreateEvent();
  for (Parameter& parameter : parameters_) {
    parameter.hook = RegisterFinalGradHook(
        parameter.tensor, [this, &parameter](const Tensor&) { OnFinalGrad(parameter); });
  }
}

DataParallel::~DataParallel() {
  for (const Parameter& parameter : parameters_) {
    RemoveHook(parameter.tensor, parameter.hook);
    if (parameter.tensor.grad().IsSameAs(parameter.grad)) parameter.tensor.set_grad({});
  }
  DeviceGuardImpl& runtime = GetDeviceGuardImpl(communicator_.device().type());
  try {
    const DeviceGuard guard(communicator_.device());
    runtime.SynchronizeStream(stream_);
  } catch (const std::exception&) {
    // A failed device runs nothing any more.
  }
  // While there is a stream on which the allocator can mark the end of their use.
  parameters_.clear();
  buckets_.clear();
  runtime.DestroyEvent(ready_);
  runtime.DestroyEvent(done_);
  runtime.DestroyStream(stream_);
}

void DataParallel::Broadcast(const NamedTensors& tensors) {
  CclGroup group(communicator_);
  for (const auto& [name, tensor] : tensors)
    communicator_.Broadcast(tensor, 0);
  group.End();
}

void DataParallel::BeginStep() {
  for (Bucket& bucket : buckets_) {
    Call<op::Fill>(bucket.memory, Scalar(0));
    bucket.open = bucket.num_parameters;
    bucket.started = false;
  }
  for (Parameter& parameter : parameters_) {
    parameter.tensor.set_grad(parameter.grad);
    parameter.reached = false;
  }
  next_bucket_ = 0;
  overlapped_ = 0;
  is_last_backward_ = false;
}

void DataParallel::LastBackward() {
  is_last_backward_ = true;
  for (Parameter& parameter : parameters_) {
    parameter.finals = 0;
    // What nothing reached in the first step is not waited for.
    if (knows_finals_ && parameter.expected_finals == 0) --buckets_[parameter.bucket].open;
  }
}

void DataParallel::OnFinalGrad(Parameter& parameter) {
  parameter.reached = true;
  if (!is_last_backward_) return;
  ++parameter.finals;
  if (!knows_finals_) return;
  Bucket& bucket = buckets_[parameter.bucket];
  if (bucket.started || parameter.finals > parameter.expected_finals) {
    throw Error(fmt::format(
        "data parallelism: parameter {} got a gradient {} times in the last backward of a step, "
        "expected {} as in the first step",
        parameter.name, parameter.finals, parameter.expected_finals));
  }
  if (parameter.finals < parameter.expected_finals) return;
  --bucket.open;
  StartFullBuckets();
}

void DataParallel::StartFullBuckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].open == 0) {
    Start(buckets_[next_bucket_++]);
    ++overlapped_;
  }
}

void DataParallel::Start(Bucket& bucket) {
  const Device device = communicator_.device();
  const DeviceGuard guard(device);
  DeviceGuardImpl& runtime = GetDeviceGuardImpl(device.type());
  bucket.started = true;
  runtime.RecordEvent(ready_, CurrentStream(device));
  runtime.StreamWaitEvent(stream_, ready_);
  communicator_.AllReduce(bucket.memory, ReduceOp::kSum, stream_);
}

void DataParallel::EndStep() {
  if (!knows_finals_) {
    for (Parameter& parameter : parameters_)
      parameter.expected_finals = parameter.finals;
    knows_finals_ = true;
  }
  is_last_backward_ = false;
  while (next_bucket_ < buckets_.size())
    Start(buckets_[next_bucket_++]);
  const Device device = communicator_.device();
  const DeviceGuard guard(device);
  DeviceGuardImpl& runtime = GetDeviceGuardImpl(device.type());
  runtime.RecordEvent(done_, stream_);
  runtime.StreamWaitEvent(CurrentStream(device), done_);
  communicator_.CheckErrors();
  for (const Parameter& parameter : parameters_) {
    if (!parameter.reached) parameter.tensor.set_grad({});
  }
}

std::vector<std::size_t> DataParallel::bucket_bytes() const {
  std::vector<std::size_t> bytes;
  for (const Bucket& bucket : buckets_)
    bytes.push_back(bucket.memory.nbytes());
  return bytes;
}

}  // namespace infini_train::parallel
