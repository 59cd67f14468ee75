#pragma once

// Stand-in for the vendor's header: what InfiniRT uses of CNRT, with its numbers.

#include <cstddef>

#define CNRT_STANDIN_API extern "C" __attribute__((visibility("default")))

enum cnrtRet_t {
  cnrtSuccess = 0,
  cnrtErrorNotReady = 1,
  cnrtErrorNoDevice = 100004,
  cnrtErrorDeviceInvalid = 100005,
  cnrtErrorArgsInvalid = 100006,
  cnrtErrorSysNoMem = 100010,
  cnrtErrorInvalidResourceHandle = 100014,
  cnrtErrorIllegalState = 100015,
  cnrtErrorNotSupport = 100050,
  cnrtErrorOpsNotPermitted = 100051,
  cnrtErrorNoMem = 100100,
  cnrtErrorCndrvFuncCall = 632007,
  cnrtErrorMemcpyDirectionInvalid = 632013,
  cnrtErrorBusy = 632014,
  cnrtErrorUnknown = 999999,
};

enum cnrtMemTransDir_t {
  cnrtMemcpyHostToDev = 0,
  cnrtMemcpyDevToDev = 1,
  cnrtMemcpyDevToHost = 2,
  cnrtMemcpyHostToHost = 3,
  cnrtMemcpyPeerToPeer = 4,
  cnrtMemcpyNoDirection = 5,
};

enum cnrtQueueCaptureMode {
  cnrtQueueCaptureModeGlobal = 0,
  cnrtQueueCaptureModeThreadLocal = 1,
  cnrtQueueCaptureModeRelaxed = 2,
};
enum cnrtQueueCaptureStatus {
  cnrtQueueCaptureStatusNone = 0,
  cnrtQueueCaptureStatusActive = 1,
  cnrtQueueCaptureStatusInvalidated = 2,
};

#define CNRT_NOTIFIER_DEFAULT 0x0
#define CNRT_NOTIFIER_DISABLE_TIMING 0x2

typedef struct cnrtQueueSt* cnrtQueue_t;
typedef struct cnrtNotifierSt* cnrtNotifier_t;
typedef struct cnrtTaskTopoSt* cnrtTaskTopo_t;
typedef struct cnrtTaskTopoEntitySt* cnrtTaskTopoEntity_t;
typedef struct cnrtTaskTopoNodeSt* cnrtTaskTopoNode_t;

CNRT_STANDIN_API cnrtRet_t cnrtSetDevice(int device);
CNRT_STANDIN_API cnrtRet_t cnrtGetDevice(int* device);
CNRT_STANDIN_API cnrtRet_t cnrtGetDeviceCount(unsigned int* count);
CNRT_STANDIN_API cnrtRet_t cnrtSyncDevice(void);
CNRT_STANDIN_API cnrtRet_t cnrtMalloc(void** ptr, std::size_t size);
CNRT_STANDIN_API cnrtRet_t cnrtFree(void* ptr);
CNRT_STANDIN_API cnrtRet_t cnrtHostMalloc(void** ptr, std::size_t size);
CNRT_STANDIN_API cnrtRet_t cnrtFreeHost(void* ptr);
CNRT_STANDIN_API cnrtRet_t cnrtMemGetInfo(std::size_t* free, std::size_t* total);
CNRT_STANDIN_API cnrtRet_t cnrtMemcpy(void* dst, void* src, std::size_t size,
                                      cnrtMemTransDir_t dir);
CNRT_STANDIN_API cnrtRet_t cnrtMemcpyAsync_V2(void* dst, void* src, std::size_t size,
                                              cnrtQueue_t queue, cnrtMemTransDir_t dir);
CNRT_STANDIN_API cnrtRet_t cnrtMemset(void* ptr, int value, std::size_t size);
CNRT_STANDIN_API cnrtRet_t cnrtMemsetAsync(void* ptr, int value, std::size_t size,
                                           cnrtQueue_t queue);
CNRT_STANDIN_API cnrtRet_t cnrtQueueCreate(cnrtQueue_t* queue);
CNRT_STANDIN_API cnrtRet_t cnrtQueueDestroy(cnrtQueue_t queue);
CNRT_STANDIN_API cnrtRet_t cnrtQueueSync(cnrtQueue_t queue);
CNRT_STANDIN_API cnrtRet_t cnrtQueueQuery(cnrtQueue_t queue);
CNRT_STANDIN_API cnrtRet_t cnrtQueueWaitNotifier(cnrtNotifier_t notifier, cnrtQueue_t queue,
                                                 unsigned int flags);
CNRT_STANDIN_API cnrtRet_t cnrtNotifierCreate(cnrtNotifier_t* notifier);
CNRT_STANDIN_API cnrtRet_t cnrtNotifierCreateWithFlags(cnrtNotifier_t* notifier,
                                                       unsigned int flags);
CNRT_STANDIN_API cnrtRet_t cnrtNotifierDestroy(cnrtNotifier_t notifier);
CNRT_STANDIN_API cnrtRet_t cnrtPlaceNotifier(cnrtNotifier_t notifier, cnrtQueue_t queue);
CNRT_STANDIN_API cnrtRet_t cnrtQueryNotifier(cnrtNotifier_t notifier);
CNRT_STANDIN_API cnrtRet_t cnrtWaitNotifier(cnrtNotifier_t notifier);
CNRT_STANDIN_API cnrtRet_t cnrtNotifierDuration(cnrtNotifier_t start, cnrtNotifier_t end,
                                                float* microseconds);
CNRT_STANDIN_API cnrtRet_t cnrtQueueBeginCapture(cnrtQueue_t queue, cnrtQueueCaptureMode mode);
CNRT_STANDIN_API cnrtRet_t cnrtQueueEndCapture(cnrtQueue_t queue, cnrtTaskTopo_t* topo);
CNRT_STANDIN_API cnrtRet_t cnrtQueueIsCapturing(cnrtQueue_t queue, cnrtQueueCaptureStatus* status);
CNRT_STANDIN_API cnrtRet_t cnrtTaskTopoInstantiate(cnrtTaskTopoEntity_t* entity,
                                                   cnrtTaskTopo_t topo,
                                                   cnrtTaskTopoNode_t* error_node, char* log,
                                                   std::size_t log_size);
CNRT_STANDIN_API cnrtRet_t cnrtTaskTopoEntityInvoke(cnrtTaskTopoEntity_t entity, cnrtQueue_t queue);
CNRT_STANDIN_API cnrtRet_t cnrtTaskTopoDestroy(cnrtTaskTopo_t topo);
CNRT_STANDIN_API cnrtRet_t cnrtTaskTopoEntityDestroy(cnrtTaskTopoEntity_t entity);
