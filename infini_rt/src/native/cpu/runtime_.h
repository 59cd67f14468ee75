#pragma once

#include <cstddef>

#include <infini/rt/device.h>
#include <infini/rt/export.h>
#include <infini/rt/runtime.h>
#include <infini/rt/types.h>

namespace infini::rt::runtime {

/// A kernel of a software accelerator. It runs on the stream's worker thread with a copy of the
/// launch's arguments, which also carry what else it needs to know, such as its device. It may run
/// on further threads and wait for them; neither it nor they may call the runtime. Anything but
/// `kSuccess` is a device fault: it becomes the sticky error of the process, as after a faulting
/// CUDA kernel.
using KernelFunction = Error (*)(const void* args);

/// The CPU as an asynchronous device. Streams are ordered queues with a worker thread each, memory
/// is host memory with accounting per device, `INFINI_RT_CPU_DEVICES` (read once, default 1) sets
/// the number of devices. All functions may be called from any thread.
template <>
struct Runtime<Device::Type::kCpu> {
  INFINI_RT_API static Error SetDevice(int device);
  INFINI_RT_API static Error GetDevice(int* device);
  INFINI_RT_API static Error GetDeviceCount(int* count);
  INFINI_RT_API static Error DeviceSynchronize();
  INFINI_RT_API static Error GetDeviceProperties(DeviceProp* prop, int device);
  INFINI_RT_API static Error DeviceGetStreamPriorityRange(int* least_priority,
                                                          int* greatest_priority);

  INFINI_RT_API static Error Malloc(void** ptr, std::size_t size);
  INFINI_RT_API static Error Free(void* ptr);
  INFINI_RT_API static Error MallocHost(void** ptr, std::size_t size);
  INFINI_RT_API static Error FreeHost(void* ptr);
  INFINI_RT_API static Error MemGetInfo(std::size_t* free, std::size_t* total);
  INFINI_RT_API static Error Memcpy(void* dst, const void* src, std::size_t count, MemcpyKind kind);
  INFINI_RT_API static Error MemcpyAsync(void* dst, const void* src, std::size_t count,
                                         MemcpyKind kind, Stream stream);
  INFINI_RT_API static Error Memset(void* ptr, int value, std::size_t count);
  INFINI_RT_API static Error MemsetAsync(void* ptr, int value, std::size_t count, Stream stream);
  INFINI_RT_API static Error MemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                                        std::size_t count);
  INFINI_RT_API static Error MemcpyPeerAsync(void* dst, int dst_device, const void* src,
                                             int src_device, std::size_t count, Stream stream);

  INFINI_RT_API static Error MallocAsync(void** ptr, std::size_t size, Stream stream);
  INFINI_RT_API static Error FreeAsync(void* ptr, Stream stream);
  INFINI_RT_API static Error DeviceGetDefaultMemPool(MemPool* pool, int device);
  INFINI_RT_API static Error MemPoolGetAttribute(MemPool pool, MemPoolAttr attr, void* value);
  INFINI_RT_API static Error MemPoolSetAttribute(MemPool pool, MemPoolAttr attr, void* value);
  INFINI_RT_API static Error MemPoolTrimTo(MemPool pool, std::size_t min_bytes_to_keep);

  INFINI_RT_API static Error StreamCreate(Stream* stream);
  INFINI_RT_API static Error StreamCreateWithFlags(Stream* stream, unsigned int flags);
  INFINI_RT_API static Error StreamCreateWithPriority(Stream* stream, unsigned int flags,
                                                      int priority);
  INFINI_RT_API static Error StreamDestroy(Stream stream);
  INFINI_RT_API static Error StreamSynchronize(Stream stream);
  INFINI_RT_API static Error StreamQuery(Stream stream);
  INFINI_RT_API static Error StreamWaitEvent(Stream stream, Event event, unsigned int flags);
  INFINI_RT_API static Error LaunchHostFunc(Stream stream, HostFn fn, void* user_data);

  INFINI_RT_API static Error EventCreate(Event* event);
  INFINI_RT_API static Error EventCreateWithFlags(Event* event, unsigned int flags);
  INFINI_RT_API static Error EventRecord(Event event, Stream stream);
  INFINI_RT_API static Error EventQuery(Event event);
  INFINI_RT_API static Error EventSynchronize(Event event);
  INFINI_RT_API static Error EventDestroy(Event event);
  INFINI_RT_API static Error EventElapsedTime(float* ms, Event start, Event end);

  INFINI_RT_API static Error StreamBeginCapture(Stream stream, StreamCaptureMode mode);
  INFINI_RT_API static Error StreamEndCapture(Stream stream, Graph* graph);
  INFINI_RT_API static Error StreamIsCapturing(Stream stream, StreamCaptureStatus* status);
  INFINI_RT_API static Error GraphInstantiate(GraphExec* graph_exec, Graph graph,
                                              unsigned long long flags);
  INFINI_RT_API static Error GraphLaunch(GraphExec graph_exec, Stream stream);
  INFINI_RT_API static Error GraphExecDestroy(GraphExec graph_exec);
  INFINI_RT_API static Error GraphDestroy(Graph graph);

  INFINI_RT_API static Error GetLastError();
  INFINI_RT_API static Error PeekAtLastError();

  /// Launches a kernel of a software accelerator in stream order; during capture it becomes a graph
  /// node. `args_size` bytes, as many as memory holds, are copied before the call returns, aligned
  /// to 16 bytes for the kernel; up to 48 bytes the copy costs no allocation.
  INFINI_RT_API static Error LaunchKernel(KernelFunction function, const void* args,
                                          std::size_t args_size, Stream stream);

  /// Device memory in pieces, as CUDA's driver has it: addresses of the current device are
  /// reserved, and memory is put behind multiples of the granularity and taken away again, counted
  /// against the range's device. `MemUnmap` may take a part of what one `MemMap` put there, or of
  /// several; work that uses it must be done. `kErrorMemoryAllocation` leaves everything as it was,
  /// and so does `kErrorInvalidValue`: for pieces of no range, or a part with and a part without
  /// memory. A range goes as a whole, when it has none.
  INFINI_RT_API static Error MemGetAllocationGranularity(std::size_t* granularity);
  INFINI_RT_API static Error MemAddressReserve(void** ptr, std::size_t size);
  INFINI_RT_API static Error MemAddressFree(void* ptr, std::size_t size);
  INFINI_RT_API static Error MemMap(void* ptr, std::size_t size);
  INFINI_RT_API static Error MemUnmap(void* ptr, std::size_t size);
};

}  // namespace infini::rt::runtime
