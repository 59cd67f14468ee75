#include "infini_train/parallel/ccl/collective_call.h"

#include <fmt/format.h>

namespace infini_train::parallel {
namespace {

std::string NameOf(const CollectiveCall& call) {
  switch (call.kind) {
    case Collective::kAllReduce:
      return fmt::format("AllReduce({})", ToString(call.op));
    case Collective::kAllGather:
      return "AllGather";
    case Collective::kReduceScatter:
      return fmt::format("ReduceScatter({})", ToString(call.op));
    case Collective::kBroadcast:
      return fmt::format("Broadcast from rank {}", call.root);
    case Collective::kSend:
      return fmt::format("Send to rank {}", call.root);
    case Collective::kRecv:
      return fmt::format("Recv from rank {}", call.root);
    case Collective::kAllToAll:
      break;
  }
  return "AllToAll";
}

Collective Counterpart(Collective kind) {
  return kind == Collective::kSend   ? Collective::kRecv
         : kind == Collective::kRecv ? Collective::kSend
                                     : kind;
}

}  // namespace

bool CollectiveCall::Matches(const CollectiveCall& other) const {
  const bool between_two = kind == Collective::kSend || kind == Collective::kRecv;
  return other.kind == Counterpart(kind) && other.dtype == dtype &&
         Numel(other.shape) == Numel(shape) && (!Reduces(kind) || other.op == op) &&
         (between_two || other.root == root);
}

std::string CollectiveCall::ToString() const {
  return fmt::format("{} of {} {}", NameOf(*this), shape.ToString(), infini_train::ToString(dtype));
}

}  // namespace infini_train::parallel
