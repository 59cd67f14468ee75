#include <cnrt.h>

#include <infini/rt/cpu/runtime.h>

// CNRT over the CPU runtime: its argument orders, its numbers, its pending code (busy), and
// microseconds between notifiers.

namespace {

using namespace infini::rt;
using Cpu = runtime::Runtime<Device::Type::kCpu>;

cnrtRet_t Give(runtime::Error error) {
  switch (error) {
    case runtime::kSuccess:
      return cnrtSuccess;
    case runtime::kErrorInvalidValue:
      return cnrtErrorArgsInvalid;
    case runtime::kErrorMemoryAllocation:
      return cnrtErrorNoMem;
    case runtime::kErrorInvalidMemcpyDirection:
      return cnrtErrorMemcpyDirectionInvalid;
    case runtime::kErrorNoDevice:
      return cnrtErrorNoDevice;
    case runtime::kErrorInvalidDevice:
      return cnrtErrorDeviceInvalid;
    case runtime::kErrorInvalidResourceHandle:
      return cnrtErrorInvalidResourceHandle;
    case runtime::kErrorIllegalState:
      return cnrtErrorIllegalState;
    case runtime::kErrorNotReady:
      return cnrtErrorBusy;
    case runtime::kErrorNotPermitted:
      return cnrtErrorOpsNotPermitted;
    case runtime::kErrorNotSupported:
      return cnrtErrorNotSupport;
    case runtime::kErrorStreamCaptureUnsupported:
      return static_cast<cnrtRet_t>(100360);
    case runtime::kErrorStreamCaptureInvalidated:
      return static_cast<cnrtRet_t>(100361);
    case runtime::kErrorStreamCaptureWrongThread:
      return static_cast<cnrtRet_t>(100362);
    case runtime::kErrorStreamCaptureMerge:
      return static_cast<cnrtRet_t>(100363);
    case runtime::kErrorStreamCaptureUnjoined:
      return static_cast<cnrtRet_t>(100364);
    case runtime::kErrorStreamCaptureIsolation:
      return static_cast<cnrtRet_t>(100365);
    case runtime::kErrorStreamCaptureUnmatched:
      return static_cast<cnrtRet_t>(100366);
    default:
      return static_cast<cnrtRet_t>(error);
  }
}

runtime::MemcpyKind Take(cnrtMemTransDir_t dir) {
  switch (dir) {
    case cnrtMemcpyHostToDev:
      return runtime::kMemcpyHostToDevice;
    case cnrtMemcpyDevToDev:
      return runtime::kMemcpyDeviceToDevice;
    case cnrtMemcpyDevToHost:
      return runtime::kMemcpyDeviceToHost;
    case cnrtMemcpyHostToHost:
      return runtime::kMemcpyHostToHost;
    case cnrtMemcpyNoDirection:
      return runtime::kMemcpyDefault;
    default:
      return static_cast<runtime::MemcpyKind>(-1);
  }
}

runtime::Stream Take(cnrtQueue_t queue) {
  return reinterpret_cast<runtime::Stream>(queue);
}
runtime::Event Take(cnrtNotifier_t notifier) {
  return reinterpret_cast<runtime::Event>(notifier);
}
runtime::Graph Take(cnrtTaskTopo_t topo) {
  return reinterpret_cast<runtime::Graph>(topo);
}
runtime::GraphExec Take(cnrtTaskTopoEntity_t entity) {
  return reinterpret_cast<runtime::GraphExec>(entity);
}

}  // namespace

cnrtRet_t cnrtSetDevice(int device) {
  return Give(Cpu::SetDevice(device));
}
cnrtRet_t cnrtGetDevice(int* device) {
  return Give(Cpu::GetDevice(device));
}
cnrtRet_t cnrtGetDeviceCount(unsigned int* count) {
  int own = 0;
  runtime::Error error = Cpu::GetDeviceCount(&own);
  *count = static_cast<unsigned int>(own);
  return Give(error);
}
cnrtRet_t cnrtSyncDevice() {
  return Give(Cpu::DeviceSynchronize());
}
cnrtRet_t cnrtMalloc(void** ptr, std::size_t size) {
  return size == 0 ? cnrtErrorArgsInvalid : Give(Cpu::Malloc(ptr, size));
}
cnrtRet_t cnrtFree(void* ptr) {
  return ptr == nullptr ? cnrtErrorArgsInvalid : Give(Cpu::Free(ptr));
}
cnrtRet_t cnrtHostMalloc(void** ptr, std::size_t size) {
  return size == 0 ? cnrtErrorArgsInvalid : Give(Cpu::MallocHost(ptr, size));
}
cnrtRet_t cnrtFreeHost(void* ptr) {
  return ptr == nullptr ? cnrtErrorArgsInvalid : Give(Cpu::FreeHost(ptr));
}
cnrtRet_t cnrtMemGetInfo(std::size_t* free, std::size_t* total) {
  if (free == nullptr || total == nullptr) return cnrtErrorArgsInvalid;
  return Give(Cpu::MemGetInfo(free, total));
}
cnrtRet_t cnrtMemcpy(void* dst, void* src, std::size_t size, cnrtMemTransDir_t dir) {
  return Give(Cpu::Memcpy(dst, src, size, Take(dir)));
}
cnrtRet_t cnrtMemcpyAsync_V2(void* dst, void* src, std::size_t size, cnrtQueue_t queue,
                             cnrtMemTransDir_t dir) {
  if (dir == cnrtMemcpyHostToHost) return cnrtErrorMemcpyDirectionInvalid;
  return Give(Cpu::MemcpyAsync(dst, src, size, Take(dir), Take(queue)));
}
cnrtRet_t cnrtMemset(void* ptr, int value, std::size_t size) {
  return Give(Cpu::Memset(ptr, value, size));
}
cnrtRet_t cnrtMemsetAsync(void* ptr, int value, std::size_t size, cnrtQueue_t queue) {
  return Give(Cpu::MemsetAsync(ptr, value, size, Take(queue)));
}
cnrtRet_t cnrtQueueCreate(cnrtQueue_t* queue) {
  return Give(Cpu::StreamCreate(reinterpret_cast<runtime::Stream*>(queue)));
}
cnrtRet_t cnrtQueueDestroy(cnrtQueue_t queue) {
  return Give(Cpu::StreamDestroy(Take(queue)));
}
cnrtRet_t cnrtQueueSync(cnrtQueue_t queue) {
  return Give(Cpu::StreamSynchronize(Take(queue)));
}
cnrtRet_t cnrtQueueQuery(cnrtQueue_t queue) {
  return Give(Cpu::StreamQuery(Take(queue)));
}
cnrtRet_t cnrtQueueWaitNotifier(cnrtNotifier_t notifier, cnrtQueue_t queue, unsigned int flags) {
  return Give(Cpu::StreamWaitEvent(Take(queue), Take(notifier), flags));
}
cnrtRet_t cnrtNotifierCreate(cnrtNotifier_t* notifier) {
  return cnrtNotifierCreateWithFlags(notifier, CNRT_NOTIFIER_DEFAULT);
}
cnrtRet_t cnrtNotifierCreateWithFlags(cnrtNotifier_t* notifier, unsigned int flags) {
  if ((flags & ~CNRT_NOTIFIER_DISABLE_TIMING) != 0) return cnrtErrorArgsInvalid;
  unsigned int own = flags != 0 ? runtime::kEventDisableTiming : runtime::kEventDefault;
  return Give(Cpu::EventCreateWithFlags(reinterpret_cast<runtime::Event*>(notifier), own));
}
cnrtRet_t cnrtNotifierDestroy(cnrtNotifier_t notifier) {
  return Give(Cpu::EventDestroy(Take(notifier)));
}
cnrtRet_t cnrtPlaceNotifier(cnrtNotifier_t notifier, cnrtQueue_t queue) {
  return Give(Cpu::EventRecord(Take(notifier), Take(queue)));
}
cnrtRet_t cnrtQueryNotifier(cnrtNotifier_t notifier) {
  return Give(Cpu::EventQuery(Take(notifier)));
}
cnrtRet_t cnrtWaitNotifier(cnrtNotifier_t notifier) {
  return Give(Cpu::EventSynchronize(Take(notifier)));
}
cnrtRet_t cnrtNotifierDuration(cnrtNotifier_t start, cnrtNotifier_t end, float* microseconds) {
  float milliseconds = 0;
  runtime::Error error = Cpu::EventElapsedTime(&milliseconds, Take(start), Take(end));
  if (error == runtime::kErrorInvalidResourceHandle) return cnrtErrorCndrvFuncCall;
  *microseconds = milliseconds * 1000;
  return Give(error);
}
cnrtRet_t cnrtQueueBeginCapture(cnrtQueue_t queue, cnrtQueueCaptureMode mode) {
  return Give(Cpu::StreamBeginCapture(Take(queue), static_cast<runtime::StreamCaptureMode>(mode)));
}
cnrtRet_t cnrtQueueEndCapture(cnrtQueue_t queue, cnrtTaskTopo_t* topo) {
  return Give(Cpu::StreamEndCapture(Take(queue), reinterpret_cast<runtime::Graph*>(topo)));
}
cnrtRet_t cnrtQueueIsCapturing(cnrtQueue_t queue, cnrtQueueCaptureStatus* status) {
  return Give(
      Cpu::StreamIsCapturing(Take(queue), reinterpret_cast<runtime::StreamCaptureStatus*>(status)));
}
cnrtRet_t cnrtTaskTopoInstantiate(cnrtTaskTopoEntity_t* entity, cnrtTaskTopo_t topo,
                                  cnrtTaskTopoNode_t*, char*, std::size_t) {
  return Give(Cpu::GraphInstantiate(reinterpret_cast<runtime::GraphExec*>(entity), Take(topo), 0));
}
cnrtRet_t cnrtTaskTopoEntityInvoke(cnrtTaskTopoEntity_t entity, cnrtQueue_t queue) {
  return Give(Cpu::GraphLaunch(Take(entity), Take(queue)));
}
cnrtRet_t cnrtTaskTopoDestroy(cnrtTaskTopo_t topo) {
  return Give(Cpu::GraphDestroy(Take(topo)));
}
cnrtRet_t cnrtTaskTopoEntityDestroy(cnrtTaskTopoEntity_t entity) {
  return Give(Cpu::GraphExecDestroy(Take(entity)));
}
