#pragma once

// Stand-in for the vendor's header: what InfiniRT uses of ACL, with its numbers. The capture calls
// are not declared: InfiniRT looks them up at run time.

#include <cstddef>
#include <cstdint>

#define ACL_STANDIN_API extern "C" __attribute__((visibility("default")))

typedef int aclError;
#define ACL_SUCCESS 0

typedef void* aclrtStream;
typedef void* aclrtEvent;

enum aclrtMemMallocPolicy { ACL_MEM_MALLOC_HUGE_FIRST = 0 };
enum aclrtMemAttr { ACL_DDR_MEM = 0, ACL_HBM_MEM = 1 };
enum aclrtMemcpyKind {
  ACL_MEMCPY_HOST_TO_HOST = 0,
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
};
enum aclrtEventRecordedStatus {
  ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
  ACL_EVENT_RECORDED_STATUS_COMPLETE = 1,
};

#define ACL_EVENT_SYNC 0x1u
#define ACL_EVENT_CAPTURE_STREAM_PROGRESS 0x2u
#define ACL_EVENT_TIME_LINE 0x8u

ACL_STANDIN_API aclError aclInit(const char* config);
ACL_STANDIN_API aclError aclrtSetDevice(int32_t device);
ACL_STANDIN_API aclError aclrtGetDevice(int32_t* device);
ACL_STANDIN_API aclError aclrtGetDeviceCount(uint32_t* count);
ACL_STANDIN_API aclError aclrtSynchronizeDevice(void);
ACL_STANDIN_API aclError aclrtMalloc(void** ptr, std::size_t size, aclrtMemMallocPolicy policy);
ACL_STANDIN_API aclError aclrtFree(void* ptr);
ACL_STANDIN_API aclError aclrtMallocHost(void** ptr, std::size_t size);
ACL_STANDIN_API aclError aclrtFreeHost(void* ptr);
ACL_STANDIN_API aclError aclrtGetMemInfo(aclrtMemAttr attr, std::size_t* free, std::size_t* total);
ACL_STANDIN_API aclError aclrtMemcpy(void* dst, std::size_t dst_max, const void* src,
                                     std::size_t count, aclrtMemcpyKind kind);
ACL_STANDIN_API aclError aclrtMemcpyAsync(void* dst, std::size_t dst_max, const void* src,
                                          std::size_t count, aclrtMemcpyKind kind,
                                          aclrtStream stream);
ACL_STANDIN_API aclError aclrtMemset(void* ptr, std::size_t max_count, int32_t value,
                                     std::size_t count);
ACL_STANDIN_API aclError aclrtMemsetAsync(void* ptr, std::size_t max_count, int32_t value,
                                          std::size_t count, aclrtStream stream);
ACL_STANDIN_API aclError aclrtCreateStream(aclrtStream* stream);
ACL_STANDIN_API aclError aclrtDestroyStream(aclrtStream stream);
ACL_STANDIN_API aclError aclrtSynchronizeStream(aclrtStream stream);
ACL_STANDIN_API aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
ACL_STANDIN_API aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag);
ACL_STANDIN_API aclError aclrtDestroyEvent(aclrtEvent event);
ACL_STANDIN_API aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
ACL_STANDIN_API aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status);
ACL_STANDIN_API aclError aclrtSynchronizeEvent(aclrtEvent event);
ACL_STANDIN_API aclError aclrtEventElapsedTime(float* ms, aclrtEvent start, aclrtEvent end);
