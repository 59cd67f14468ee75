#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include <mccl.h>

/// Collectives between the threads of a process.
namespace maca_standin {

enum class CallKind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSendRecv };

/// What one rank does in a call. Counts as in MCCL's functions.
struct Call {
  CallKind kind;
  const void* send = nullptr;
  void* recv = nullptr;  ///< null: the rank receives nothing
  std::size_t count = 0;
  mcclDataType_t type = mcclFloat32;
  mcclRedOp_t op = mcclSum;
  int root = 0;
  mcStream_t stream = nullptr;
  int device = 0;
};

/// A call that ranks make together. All parts are there before any work is enqueued; each rank's
/// work goes into its own stream, behind what the others' streams hold by then.
class Meeting {
 public:
  explicit Meeting(int size)
      : calls_(static_cast<std::size_t>(size)), ready_(calls_.size()), done_(calls_.size()) {}

  /// The steps of one participant, in this order. Each waits for the others to have made the last.
  void Arrive(int place, const Call& call);
  mcclResult_t Enqueue(int place);
  mcclResult_t Finish(int place);
  void Abort();
  /// Whether all participants have finished.
  bool IsOver();
  ~Meeting();

 private:
  mcclResult_t Await(int& count);
  bool Agrees() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
  int arrived_ = 0, enqueued_ = 0, finished_ = 0;
  std::vector<Call> calls_;
  std::vector<mcEvent_t> ready_, done_;
  std::map<int, std::shared_ptr<std::vector<std::byte>>> results_;
};

/// Ranks that an id names.
class Group {
 public:
  explicit Group(int size) : size(size) {}

  /// `count` ranks of the calling thread are there; waits for all others.
  mcclResult_t Join(int count);
  /// The meeting for a rank's next call: `from` and `to` are -1 for all ranks, else `receives` says
  /// which of the two it is.
  std::shared_ptr<Meeting> NextMeeting(int rank, int from, int to, bool receives);
  void Abort();
  bool aborted();

  const int size;

 private:
  using Key = std::tuple<int, int, long>;  ///< from, to, number

  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
  int joined_ = 0;
  std::map<std::tuple<int, int, int, bool>, long> numbers_;  ///< of the next calls
  std::map<Key, std::weak_ptr<Meeting>> meetings_;
  std::vector<std::shared_ptr<Meeting>> kept_;
};

}  // namespace maca_standin
