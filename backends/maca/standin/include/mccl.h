#pragma once

// MCCL: what is known of it. Numbers and the size of the id are NCCL's, as programs that call the
// real library with NCCL's structures show.

#include <stddef.h>

#include "mcr/mc_runtime_api.h"

typedef struct mcclComm* mcclComm_t;
typedef struct {
  char internal[128];
} mcclUniqueId;

typedef enum {
  mcclSuccess = 0,
  mcclUnhandledRuntimeError = 1,
  mcclSystemError = 2,
  mcclInternalError = 3,
  mcclInvalidArgument = 4,
  mcclInvalidUsage = 5,
} mcclResult_t;

typedef enum { mcclSum = 0, mcclProd = 1, mcclMax = 2, mcclMin = 3, mcclAvg = 4 } mcclRedOp_t;

typedef enum {
  mcclInt8 = 0,
  mcclUint8 = 1,
  mcclInt32 = 2,
  mcclInt = 2,
  mcclUint32 = 3,
  mcclInt64 = 4,
  mcclUint64 = 5,
  mcclFloat16 = 6,
  mcclHalf = 6,
  mcclFloat32 = 7,
  mcclFloat = 7,
  mcclFloat64 = 8,
  mcclBfloat16 = 9,
  mcclNumTypes = 10,
} mcclDataType_t;

STANDIN_API const char* mcclGetErrorString(mcclResult_t result);
STANDIN_API mcclResult_t mcclGetVersion(int* version);
STANDIN_API mcclResult_t mcclGetUniqueId(mcclUniqueId* id);

STANDIN_API mcclResult_t mcclCommInitAll(mcclComm_t* comms, int count, const int* devices);
STANDIN_API mcclResult_t mcclCommInitRank(mcclComm_t* comm, int size, mcclUniqueId id, int rank);
STANDIN_API mcclResult_t mcclCommDestroy(mcclComm_t comm);
STANDIN_API mcclResult_t mcclCommAbort(mcclComm_t comm);
STANDIN_API mcclResult_t mcclCommGetAsyncError(mcclComm_t comm, mcclResult_t* result);

STANDIN_API mcclResult_t mcclGroupStart();
STANDIN_API mcclResult_t mcclGroupEnd();

STANDIN_API mcclResult_t mcclAllReduce(const void* send, void* recv, size_t count,
                                       mcclDataType_t type, mcclRedOp_t op, mcclComm_t comm,
                                       mcStream_t stream);
STANDIN_API mcclResult_t mcclBroadcast(const void* send, void* recv, size_t count,
                                       mcclDataType_t type, int root, mcclComm_t comm,
                                       mcStream_t stream);
STANDIN_API mcclResult_t mcclReduce(const void* send, void* recv, size_t count, mcclDataType_t type,
                                    mcclRedOp_t op, int root, mcclComm_t comm, mcStream_t stream);
STANDIN_API mcclResult_t mcclAllGather(const void* send, void* recv, size_t send_count,
                                       mcclDataType_t type, mcclComm_t comm, mcStream_t stream);
STANDIN_API mcclResult_t mcclReduceScatter(const void* send, void* recv, size_t recv_count,
                                           mcclDataType_t type, mcclRedOp_t op, mcclComm_t comm,
                                           mcStream_t stream);
STANDIN_API mcclResult_t mcclSend(const void* data, size_t count, mcclDataType_t type, int peer,
                                  mcclComm_t comm, mcStream_t stream);
STANDIN_API mcclResult_t mcclRecv(void* data, size_t count, mcclDataType_t type, int peer,
                                  mcclComm_t comm, mcStream_t stream);
