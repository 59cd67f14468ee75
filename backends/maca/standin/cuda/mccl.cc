// MCCL by NCCL, whose numbers it has.
#include <nccl.h>

#include <cstring>

#include <mccl.h>

namespace {

static_assert(sizeof(mcclUniqueId) == sizeof(ncclUniqueId));
static_assert(static_cast<int>(mcclBfloat16) == static_cast<int>(ncclBfloat16));
static_assert(static_cast<int>(mcclMax) == static_cast<int>(ncclMax));
static_assert(static_cast<int>(mcclAvg) == static_cast<int>(ncclAvg));

mcclResult_t Give(ncclResult_t result) {
  return static_cast<mcclResult_t>(result);
}
ncclComm_t Native(mcclComm_t comm) {
  return reinterpret_cast<ncclComm_t>(comm);
}
ncclComm_t* Native(mcclComm_t* comms) {
  return reinterpret_cast<ncclComm_t*>(comms);
}
ncclDataType_t Native(mcclDataType_t type) {
  return static_cast<ncclDataType_t>(type);
}
ncclRedOp_t Native(mcclRedOp_t op) {
  return static_cast<ncclRedOp_t>(op);
}

}  // namespace

const char* mcclGetErrorString(mcclResult_t result) {
  return ncclGetErrorString(static_cast<ncclResult_t>(result));
}
mcclResult_t mcclGetVersion(int* version) {
  return Give(ncclGetVersion(version));
}
mcclResult_t mcclGetUniqueId(mcclUniqueId* id) {
  return Give(ncclGetUniqueId(reinterpret_cast<ncclUniqueId*>(id)));
}
mcclResult_t mcclCommInitAll(mcclComm_t* comms, int count, const int* devices) {
  return Give(ncclCommInitAll(Native(comms), count, devices));
}
mcclResult_t mcclCommInitRank(mcclComm_t* comm, int size, mcclUniqueId id, int rank) {
  ncclUniqueId native;
  std::memcpy(&native, &id, sizeof(native));
  return Give(ncclCommInitRank(Native(comm), size, native, rank));
}
mcclResult_t mcclCommDestroy(mcclComm_t comm) {
  return Give(ncclCommDestroy(Native(comm)));
}
mcclResult_t mcclCommAbort(mcclComm_t comm) {
  return Give(ncclCommAbort(Native(comm)));
}
mcclResult_t mcclCommGetAsyncError(mcclComm_t comm, mcclResult_t* result) {
  ncclResult_t found = ncclSuccess;
  const ncclResult_t error = ncclCommGetAsyncError(Native(comm), &found);
  *result = Give(found);
  return Give(error);
}
mcclResult_t mcclGroupStart() {
  return Give(ncclGroupStart());
}
mcclResult_t mcclGroupEnd() {
  return Give(ncclGroupEnd());
}
mcclResult_t mcclAllReduce(const void* send, void* recv, size_t count, mcclDataType_t type,
                           mcclRedOp_t op, mcclComm_t comm, mcStream_t stream) {
  return Give(ncclAllReduce(send, recv, count, Native(type), Native(op), Native(comm), stream));
}
mcclResult_t mcclBroadcast(const void* send, void* recv, size_t count, mcclDataType_t type,
                           int root, mcclComm_t comm, mcStream_t stream) {
  return Give(ncclBroadcast(send, recv, count, Native(type), root, Native(comm), stream));
}
mcclResult_t mcclReduce(const void* send, void* recv, size_t count, mcclDataType_t type,
                        mcclRedOp_t op, int root, mcclComm_t comm, mcStream_t stream) {
  return Give(ncclReduce(send, recv, count, Native(type), Native(op), root, Native(comm), stream));
}
mcclResult_t mcclAllGather(const void* send, void* recv, size_t send_count, mcclDataType_t type,
                           mcclComm_t comm, mcStream_t stream) {
  return Give(ncclAllGather(send, recv, send_count, Native(type), Native(comm), stream));
}
mcclResult_t mcclReduceScatter(const void* send, void* recv, size_t recv_count, mcclDataType_t type,
                               mcclRedOp_t op, mcclComm_t comm, mcStream_t stream) {
  return Give(
      ncclReduceScatter(send, recv, recv_count, Native(type), Native(op), Native(comm), stream));
}
mcclResult_t mcclSend(const void* data, size_t count, mcclDataType_t type, int peer,
                      mcclComm_t comm, mcStream_t stream) {
  return Give(ncclSend(data, count, Native(type), peer, Native(comm), stream));
}
mcclResult_t mcclRecv(void* data, size_t count, mcclDataType_t type, int peer, mcclComm_t comm,
                      mcStream_t stream) {
  return Give(ncclRecv(data, count, Native(type), peer, Native(comm), stream));
}
