#pragma once

#include <cstdint>
#include <string>

#include "infini_train/core/dims.h"
#include "infini_train/core/dtype.h"
#include "infini_train/parallel/ccl.h"

namespace infini_train::parallel {

enum class Collective : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kSend,
  kRecv,
  kAllToAll,
};

constexpr bool Reduces(Collective kind) {
  return kind == Collective::kAllReduce || kind == Collective::kReduceScatter;
}

/// What a rank calls, for messages and for comparing it with what the others call.
struct CollectiveCall {
  Collective kind = Collective::kAllReduce;
  ReduceOp op = ReduceOp::kSum;  ///< of those that reduce
  int root = 0;                  ///< of a broadcast; the other rank of a Send or Recv
  DataType dtype = DataType::kUInt8;
  Dims shape = {};  ///< of the input

  /// Whether ranks that make these calls make the same one. A Send matches its Recv.
  bool Matches(const CollectiveCall& other) const;
  /// "AllReduce(sum) of [2, 3] float32", "Send to rank 1 of [4] int64".
  std::string ToString() const;
};

}  // namespace infini_train::parallel
