#include <acl/acl.h>

#include <atomic>

#include <infini/rt/cpu/runtime.h>

// ACL over the CPU runtime, with what makes it differ: it must be initialised once, a thread needs
// a device first, sizes of 0 and null pointers are errors, a stream with work cannot be destroyed,
// and a captured model is graph and executable in one.

namespace {

using namespace infini::rt;
using Cpu = runtime::Runtime<Device::Type::kCpu>;

constexpr aclError kInvalidParam = 100000;
constexpr aclError kUninitialized = 100001;
constexpr aclError kRepeatInitialize = 100002;
constexpr aclError kContextNull = 107002;
constexpr aclError kStreamNotComplete = 107037;

std::atomic<bool> initialized{false};
thread_local bool has_device = false;

aclError Give(runtime::Error error) {
  switch (error) {
    case runtime::kSuccess:
      return ACL_SUCCESS;
    case runtime::kErrorInvalidValue:
      return 107000;
    case runtime::kErrorMemoryAllocation:
      return 207001;
    case runtime::kErrorInvalidDevice:
      return 107001;
    case runtime::kErrorInvalidResourceHandle:
      return 107017;
    case runtime::kErrorIllegalState:
      return 107029;
    case runtime::kErrorNotPermitted:
      return 207006;
    case runtime::kErrorNotSupported:
      return 207000;
    case runtime::kErrorStreamCaptureIsolation:
      return 107024;
    case runtime::kErrorStreamCaptureUnjoined:
      return 107025;
    case runtime::kErrorCapturedEvent:
      return 107028;
    case runtime::kErrorStreamCaptureUnsupported:
      return 107030;
    case runtime::kErrorStreamCaptureImplicit:
      return 107031;
    case runtime::kErrorStreamCaptureMerge:
      return 107032;
    case runtime::kErrorStreamCaptureUnmatched:
      return 107036;
    case runtime::kErrorStreamCaptureWrongThread:
      return 107038;
    default:
      return static_cast<aclError>(error);
  }
}

template <typename Call>
aclError Run(Call call) {
  if (!initialized.load()) return kUninitialized;
  if (!has_device) return kContextNull;
  return Give(call());
}

runtime::Stream TakeStream(aclrtStream stream) {
  return static_cast<runtime::Stream>(stream);
}
runtime::Event TakeEvent(aclrtEvent event) {
  return static_cast<runtime::Event>(event);
}

struct Model {
  runtime::Graph graph = nullptr;
  runtime::GraphExec exec = nullptr;
  runtime::Event launched = nullptr;
};

}  // namespace

aclError aclInit(const char*) {
  return initialized.exchange(true) ? kRepeatInitialize : ACL_SUCCESS;
}
aclError aclrtSetDevice(int32_t device) {
  if (!initialized.load()) return kUninitialized;
  runtime::Error error = Cpu::SetDevice(device);
  if (error == runtime::kSuccess) has_device = true;
  return Give(error);
}
aclError aclrtGetDevice(int32_t* device) {
  return Run([&] { return Cpu::GetDevice(device); });
}
aclError aclrtGetDeviceCount(uint32_t* count) {
  return Run([&] {
    int own = 0;
    runtime::Error error = Cpu::GetDeviceCount(&own);
    *count = static_cast<uint32_t>(own);
    return error;
  });
}
aclError aclrtSynchronizeDevice() {
  return Run([&] { return Cpu::DeviceSynchronize(); });
}
aclError aclrtMalloc(void** ptr, std::size_t size, aclrtMemMallocPolicy) {
  if (size == 0) return kInvalidParam;
  return Run([&] { return Cpu::Malloc(ptr, size); });
}
aclError aclrtFree(void* ptr) {
  if (ptr == nullptr) return kInvalidParam;
  return Run([&] { return Cpu::Free(ptr); });
}
aclError aclrtMallocHost(void** ptr, std::size_t size) {
  if (size == 0) return kInvalidParam;
  return Run([&] { return Cpu::MallocHost(ptr, size); });
}
aclError aclrtFreeHost(void* ptr) {
  if (ptr == nullptr) return kInvalidParam;
  return Run([&] { return Cpu::FreeHost(ptr); });
}
aclError aclrtGetMemInfo(aclrtMemAttr attr, std::size_t* free, std::size_t* total) {
  if (attr != ACL_HBM_MEM || free == nullptr || total == nullptr) return kInvalidParam;
  return Run([&] { return Cpu::MemGetInfo(free, total); });
}
aclError aclrtMemcpy(void* dst, std::size_t dst_max, const void* src, std::size_t count,
                     aclrtMemcpyKind kind) {
  if (count == 0 || count > dst_max) return kInvalidParam;
  return Run([&] { return Cpu::Memcpy(dst, src, count, static_cast<runtime::MemcpyKind>(kind)); });
}
aclError aclrtMemcpyAsync(void* dst, std::size_t dst_max, const void* src, std::size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream) {
  if (count == 0 || count > dst_max) return kInvalidParam;
  return Run([&] {
    return Cpu::MemcpyAsync(dst, src, count, static_cast<runtime::MemcpyKind>(kind),
                            TakeStream(stream));
  });
}
aclError aclrtMemset(void* ptr, std::size_t max_count, int32_t value, std::size_t count) {
  if (count == 0 || count > max_count || value < 0 || value > 255) return kInvalidParam;
  return Run([&] { return Cpu::Memset(ptr, value, count); });
}
aclError aclrtMemsetAsync(void* ptr, std::size_t max_count, int32_t value, std::size_t count,
                          aclrtStream stream) {
  if (count == 0 || count > max_count || value < 0 || value > 255) return kInvalidParam;
  return Run([&] { return Cpu::MemsetAsync(ptr, value, count, TakeStream(stream)); });
}
aclError aclrtCreateStream(aclrtStream* stream) {
  return Run([&] { return Cpu::StreamCreate(reinterpret_cast<runtime::Stream*>(stream)); });
}
aclError aclrtDestroyStream(aclrtStream stream) {
  if (Cpu::StreamQuery(TakeStream(stream)) == runtime::kErrorNotReady) return kStreamNotComplete;
  return Run([&] { return Cpu::StreamDestroy(TakeStream(stream)); });
}
aclError aclrtSynchronizeStream(aclrtStream stream) {
  return Run([&] { return Cpu::StreamSynchronize(TakeStream(stream)); });
}
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return Run([&] { return Cpu::StreamWaitEvent(TakeStream(stream), TakeEvent(event), 0); });
}
aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  constexpr uint32_t kKnown =
      ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE;
  if ((flag & ~kKnown) != 0 || flag == 0) return kInvalidParam;
  unsigned int own =
      (flag & ACL_EVENT_TIME_LINE) != 0 ? runtime::kEventDefault : runtime::kEventDisableTiming;
  return Run(
      [&] { return Cpu::EventCreateWithFlags(reinterpret_cast<runtime::Event*>(event), own); });
}
aclError aclrtDestroyEvent(aclrtEvent event) {
  return Run([&] { return Cpu::EventDestroy(TakeEvent(event)); });
}
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return Run([&] { return Cpu::EventRecord(TakeEvent(event), TakeStream(stream)); });
}
aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return Run([&] {
    runtime::Error error = Cpu::EventQuery(TakeEvent(event));
    bool pending = error == runtime::kErrorNotReady;
    *status = pending ? ACL_EVENT_RECORDED_STATUS_NOT_READY : ACL_EVENT_RECORDED_STATUS_COMPLETE;
    return pending ? runtime::kSuccess : error;
  });
}
aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return Run([&] { return Cpu::EventSynchronize(TakeEvent(event)); });
}
aclError aclrtEventElapsedTime(float* ms, aclrtEvent start, aclrtEvent end) {
  return Run([&] { return Cpu::EventElapsedTime(ms, TakeEvent(start), TakeEvent(end)); });
}

ACL_STANDIN_API aclError aclmdlRICaptureBegin(aclrtStream stream, int mode) {
  return Run([&] {
    return Cpu::StreamBeginCapture(TakeStream(stream),
                                   static_cast<runtime::StreamCaptureMode>(mode));
  });
}
ACL_STANDIN_API aclError aclmdlRICaptureGetInfo(aclrtStream stream, int* status, void**) {
  return Run([&] {
    return Cpu::StreamIsCapturing(TakeStream(stream),
                                  reinterpret_cast<runtime::StreamCaptureStatus*>(status));
  });
}
ACL_STANDIN_API aclError aclmdlRICaptureEnd(aclrtStream stream, void** model) {
  return Run([&] {
    auto* captured = new Model;
    runtime::Error error = Cpu::StreamEndCapture(TakeStream(stream), &captured->graph);
    if (error == runtime::kSuccess) {
      error = Cpu::GraphInstantiate(&captured->exec, captured->graph, 0);
    }
    if (error == runtime::kSuccess) error = Cpu::EventCreate(&captured->launched);
    if (error != runtime::kSuccess) {
      delete captured;
      return error;
    }
    *model = captured;
    return error;
  });
}
ACL_STANDIN_API aclError aclmdlRIExecuteAsync(void* model, aclrtStream stream) {
  return Run([&] {
    auto* captured = static_cast<Model*>(model);
    runtime::Error error = Cpu::GraphLaunch(captured->exec, TakeStream(stream));
    return error == runtime::kSuccess ? Cpu::EventRecord(captured->launched, TakeStream(stream))
                                      : error;
  });
}
ACL_STANDIN_API aclError aclmdlRIDestroy(void* model) {
  auto* captured = static_cast<Model*>(model);
  if (Cpu::EventQuery(captured->launched) == runtime::kErrorNotReady) return kStreamNotComplete;
  return Run([&] {
    Cpu::EventDestroy(captured->launched);
    Cpu::GraphExecDestroy(captured->exec);
    Cpu::GraphDestroy(captured->graph);
    delete captured;
    return runtime::kSuccess;
  });
}
