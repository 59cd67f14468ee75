// The runtime API of a vendor that follows CUDA with a prefix. The including header defines
// STANDIN(name), STANDIN_NAMED_ERRORS (added to the numbers of errors that are translated by name),
// and STANDIN_HAS_* (0 or 1) for what the vendor's SDK does not always have.

#include <cstddef>

#define STANDIN_API extern "C" __attribute__((visibility("default")))

enum STANDIN(Error_t) {
  STANDIN(Success) = 0,
  STANDIN(ErrorInvalidValue) = STANDIN_NAMED_ERRORS + 1,
  STANDIN(ErrorMemoryAllocation) = STANDIN_NAMED_ERRORS + 2,
  STANDIN(ErrorDeinitialized) = STANDIN_NAMED_ERRORS + 4,
  STANDIN(ErrorInvalidDevice) = STANDIN_NAMED_ERRORS + 101,
  STANDIN(ErrorInvalidResourceHandle) = STANDIN_NAMED_ERRORS + 400,
  STANDIN(ErrorNotReady) = STANDIN_NAMED_ERRORS + 600,
  STANDIN(ErrorUnknown) = 999,
};

enum STANDIN(MemcpyKind) {
  STANDIN(MemcpyHostToHost) = 0,
  STANDIN(MemcpyHostToDevice) = 1,
  STANDIN(MemcpyDeviceToHost) = 2,
  STANDIN(MemcpyDeviceToDevice) = 3,
  STANDIN(MemcpyDefault) = 4,
};

enum STANDIN(StreamCaptureMode) {
  STANDIN(StreamCaptureModeGlobal) = 0,
  STANDIN(StreamCaptureModeThreadLocal) = 1,
  STANDIN(StreamCaptureModeRelaxed) = 2,
};

typedef struct STANDIN(Stream_st) * STANDIN(Stream_t);
typedef struct STANDIN(Event_st) * STANDIN(Event_t);
typedef struct STANDIN(Graph_st) * STANDIN(Graph_t);
typedef struct STANDIN(GraphNode_st) * STANDIN(GraphNode_t);
typedef struct STANDIN(GraphExec_st) * STANDIN(GraphExec_t);

STANDIN_API STANDIN(Error_t) STANDIN(SetDevice)(int device);
STANDIN_API STANDIN(Error_t) STANDIN(GetDevice)(int* device);
STANDIN_API STANDIN(Error_t) STANDIN(GetDeviceCount)(int* count);
STANDIN_API STANDIN(Error_t) STANDIN(DeviceSynchronize)(void);
STANDIN_API STANDIN(Error_t) STANDIN(DeviceGetStreamPriorityRange)(int* least, int* greatest);
STANDIN_API STANDIN(Error_t) STANDIN(Malloc)(void** ptr, std::size_t size);
STANDIN_API STANDIN(Error_t) STANDIN(Free)(void* ptr);
STANDIN_API STANDIN(Error_t) STANDIN(MallocHost)(void** ptr, std::size_t size);
STANDIN_API STANDIN(Error_t) STANDIN(FreeHost)(void* ptr);
STANDIN_API STANDIN(Error_t) STANDIN(MemGetInfo)(std::size_t* free, std::size_t* total);
STANDIN_API STANDIN(Error_t)
    STANDIN(Memcpy)(void* dst, const void* src, std::size_t count, STANDIN(MemcpyKind) kind);
STANDIN_API STANDIN(Error_t)
    STANDIN(MemcpyAsync)(void* dst, const void* src, std::size_t count, STANDIN(MemcpyKind) kind,
                         STANDIN(Stream_t) stream);
STANDIN_API STANDIN(Error_t) STANDIN(Memset)(void* ptr, int value, std::size_t count);
STANDIN_API STANDIN(Error_t)
    STANDIN(MemsetAsync)(void* ptr, int value, std::size_t count, STANDIN(Stream_t) stream);
STANDIN_API STANDIN(Error_t)
    STANDIN(MemcpyPeerAsync)(void* dst, int dst_device, const void* src, int src_device,
                             std::size_t count, STANDIN(Stream_t) stream);
STANDIN_API STANDIN(Error_t) STANDIN(StreamCreate)(STANDIN(Stream_t) * stream);
STANDIN_API STANDIN(Error_t)
    STANDIN(StreamCreateWithFlags)(STANDIN(Stream_t) * stream, unsigned int flags);
STANDIN_API STANDIN(Error_t)
    STANDIN(StreamCreateWithPriority)(STANDIN(Stream_t) * stream, unsigned int flags, int priority);
STANDIN_API STANDIN(Error_t) STANDIN(StreamDestroy)(STANDIN(Stream_t) stream);
STANDIN_API STANDIN(Error_t) STANDIN(StreamSynchronize)(STANDIN(Stream_t) stream);
STANDIN_API STANDIN(Error_t) STANDIN(StreamQuery)(STANDIN(Stream_t) stream);
STANDIN_API STANDIN(Error_t)
    STANDIN(StreamWaitEvent)(STANDIN(Stream_t) stream, STANDIN(Event_t) event, unsigned int flags);
STANDIN_API STANDIN(Error_t) STANDIN(EventCreate)(STANDIN(Event_t) * event);
STANDIN_API STANDIN(Error_t)
    STANDIN(EventCreateWithFlags)(STANDIN(Event_t) * event, unsigned int flags);
STANDIN_API STANDIN(Error_t) STANDIN(EventRecord)(STANDIN(Event_t) event, STANDIN(Stream_t) stream);
STANDIN_API STANDIN(Error_t) STANDIN(EventQuery)(STANDIN(Event_t) event);
STANDIN_API STANDIN(Error_t) STANDIN(EventSynchronize)(STANDIN(Event_t) event);
STANDIN_API STANDIN(Error_t) STANDIN(EventDestroy)(STANDIN(Event_t) event);
STANDIN_API STANDIN(Error_t)
    STANDIN(EventElapsedTime)(float* ms, STANDIN(Event_t) start, STANDIN(Event_t) end);
STANDIN_API STANDIN(Error_t)
    STANDIN(StreamBeginCapture)(STANDIN(Stream_t) stream, STANDIN(StreamCaptureMode) mode);
STANDIN_API STANDIN(Error_t)
    STANDIN(StreamEndCapture)(STANDIN(Stream_t) stream, STANDIN(Graph_t) * graph);
STANDIN_API STANDIN(Error_t)
    STANDIN(GraphLaunch)(STANDIN(GraphExec_t) exec, STANDIN(Stream_t) stream);
STANDIN_API STANDIN(Error_t) STANDIN(GraphExecDestroy)(STANDIN(GraphExec_t) exec);
STANDIN_API STANDIN(Error_t) STANDIN(GraphDestroy)(STANDIN(Graph_t) graph);
STANDIN_API STANDIN(Error_t) STANDIN(GetLastError)(void);

#if STANDIN_HAS_THREE_ARGUMENT_INSTANTIATE
STANDIN_API STANDIN(Error_t)
    STANDIN(GraphInstantiate)(STANDIN(GraphExec_t) * exec, STANDIN(Graph_t) graph,
                              unsigned long long flags);
#else
STANDIN_API STANDIN(Error_t)
    STANDIN(GraphInstantiate)(STANDIN(GraphExec_t) * exec, STANDIN(Graph_t) graph,
                              STANDIN(GraphNode_t) * error_node, char* log, std::size_t log_size);
#endif

#if STANDIN_HAS_ASYNC_MEMORY
STANDIN_API STANDIN(Error_t)
    STANDIN(MallocAsync)(void** ptr, std::size_t size, STANDIN(Stream_t) stream);
STANDIN_API STANDIN(Error_t) STANDIN(FreeAsync)(void* ptr, STANDIN(Stream_t) stream);
#endif

#if STANDIN_HAS_POOLS
typedef struct STANDIN(MemPool_st) * STANDIN(MemPool_t);
// Numbers that are not CUDA's, so that a translation by number shows.
enum STANDIN(MemPoolAttr) {
  STANDIN(MemPoolReuseFollowEventDependencies) = 11,
  STANDIN(MemPoolReuseAllowOpportunistic) = 12,
  STANDIN(MemPoolReuseAllowInternalDependencies) = 13,
  STANDIN(MemPoolAttrReleaseThreshold) = 14,
  STANDIN(MemPoolAttrReservedMemCurrent) = 15,
  STANDIN(MemPoolAttrReservedMemHigh) = 16,
  STANDIN(MemPoolAttrUsedMemCurrent) = 17,
  STANDIN(MemPoolAttrUsedMemHigh) = 18,
};
STANDIN_API STANDIN(Error_t)
    STANDIN(DeviceGetDefaultMemPool)(STANDIN(MemPool_t) * pool, int device);
STANDIN_API STANDIN(Error_t)
    STANDIN(MemPoolGetAttribute)(STANDIN(MemPool_t) pool, STANDIN(MemPoolAttr) attr, void* value);
STANDIN_API STANDIN(Error_t)
    STANDIN(MemPoolSetAttribute)(STANDIN(MemPool_t) pool, STANDIN(MemPoolAttr) attr, void* value);
#endif

#if STANDIN_HAS_CUDA_EXTRAS
enum STANDIN(StreamCaptureStatus) {
  STANDIN(StreamCaptureStatusNone) = 0,
  STANDIN(StreamCaptureStatusActive) = 1,
  STANDIN(StreamCaptureStatusInvalidated) = 2,
};
struct STANDIN(DeviceProp) {
  char name[256];
  std::size_t totalGlobalMem;
  int warpSize;
  int multiProcessorCount;
};
typedef void (*STANDIN(HostFn_t))(void* user_data);
STANDIN_API STANDIN(Error_t) STANDIN(GetDeviceProperties)(STANDIN(DeviceProp) * prop, int device);
STANDIN_API STANDIN(Error_t) STANDIN(MemcpyPeer)(void* dst, int dst_device, const void* src,
                                                 int src_device, std::size_t count);
STANDIN_API STANDIN(Error_t)
    STANDIN(LaunchHostFunc)(STANDIN(Stream_t) stream, STANDIN(HostFn_t) fn, void* user_data);
STANDIN_API STANDIN(Error_t)
    STANDIN(StreamIsCapturing)(STANDIN(Stream_t) stream, STANDIN(StreamCaptureStatus) * status);
STANDIN_API STANDIN(Error_t) STANDIN(PeekAtLastError)(void);
#endif
