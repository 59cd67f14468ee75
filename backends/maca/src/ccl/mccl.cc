#include <mccl.h>

#include <string>

#include "backends/runtime/nccl_style_ccl.h"
#include "infini_train/parallel/ccl.h"
#include "runtime/policy.h"

namespace infini_train::maca {
namespace {

struct Mccl {
  using Comm = mcclComm_t;
  using Id = mcclUniqueId;
  using Result = mcclResult_t;
  using Stream = mcStream_t;

  static constexpr const char* kName = "MCCL";
  static constexpr Result kSuccess = mcclSuccess;

  static constexpr auto GetErrorString = &mcclGetErrorString;
  static constexpr auto GetVersion = &mcclGetVersion;
  static constexpr auto GetUniqueId = &mcclGetUniqueId;
  static constexpr auto CommInitRank = &mcclCommInitRank;
  static constexpr auto CommDestroy = &mcclCommDestroy;
  static constexpr auto CommAbort = &mcclCommAbort;
  static constexpr auto CommGetAsyncError = &mcclCommGetAsyncError;
  static constexpr auto GroupStart = &mcclGroupStart;
  static constexpr auto GroupEnd = &mcclGroupEnd;
  static constexpr auto AllReduce = &mcclAllReduce;
  static constexpr auto AllGather = &mcclAllGather;
  static constexpr auto ReduceScatter = &mcclReduceScatter;
  static constexpr auto Broadcast = &mcclBroadcast;
  static constexpr auto Send = &mcclSend;
  static constexpr auto Recv = &mcclRecv;

  static mcclDataType_t TypeOf(DataType dtype) {
    switch (dtype) {
      case DataType::kUInt8:
        return mcclUint8;
      case DataType::kInt32:
        return mcclInt32;
      case DataType::kInt64:
        return mcclInt64;
      case DataType::kFloat16:
        return mcclFloat16;
      case DataType::kBFloat16:
        return mcclBfloat16;
      case DataType::kFloat32:
        return mcclFloat32;
      case DataType::kFloat64:
        return mcclFloat64;
      default:
        throw Error("MCCL does not reduce " + std::string(ToString(dtype)));
    }
  }

  static mcclRedOp_t OpOf(parallel::ReduceOp op) {
    switch (op) {
      case parallel::ReduceOp::kProduct:
        return mcclProd;
      case parallel::ReduceOp::kMin:
        return mcclMin;
      case parallel::ReduceOp::kMax:
        return mcclMax;
      case parallel::ReduceOp::kAverage:
        return mcclAvg;
      case parallel::ReduceOp::kSum:
        break;
    }
    return mcclSum;
  }

  /// The library's throughput collapses for a very large message.
  static std::size_t MaxAllReduceBytes() { return GetPolicy().allreduce_segment_bytes; }
};

struct MacaCcl : backend::NcclStyleCcl<Mccl> {
  /// Starts the runtime, which comes first.
  MacaCcl() { GetDeviceGuardImpl(DeviceType::kPrivateUse1).DeviceCount(); }
};
REGISTER_CCL(kPrivateUse1, MacaCcl);

}  // namespace
}  // namespace infini_train::maca
