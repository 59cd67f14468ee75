#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "native/cpu/engine/handle.h"
#include "native/cpu/engine/op.h"
#include "native/cpu/engine/stream.h"

namespace infini::rt::cpu {

class DeviceState;

/// Memory that a captured `MallocAsync` stands for. Its address is fixed at capture. Without a free
/// node it is live from a launch until the program frees it, which must come before the next
/// launch.
struct GraphAllocation {
  void* ptr = nullptr;
  std::size_t size = 0;
  DeviceState* device = nullptr;
  bool freed_in_graph = false;
  std::atomic<bool> live{false};
};

/// A captured graph. Nodes are stored in the order of capture, which is a topological order, and
/// replayed in it by the worker of the launching stream: CUDA promises no concurrency between the
/// branches of a graph. Once captured the body does not change, so executables share it.
class GraphBody : public HandleObject<GraphBody> {
 public:
  void Reset();

  /// Adds a node, which owns `op`, and returns its index.
  std::uint32_t Add(const Op& op, std::vector<std::uint32_t> dependencies);
  std::size_t size() const { return ops_.size(); }

  /// Whether every node of `nodes` is among `roots` or comes before one of them.
  bool Covers(const std::vector<std::uint32_t>& roots,
              const std::vector<std::uint32_t>& nodes) const;

  void Run() const;

  /// Memory of a captured allocation, or null.
  void* Allocate(std::size_t size, DeviceState& device);
  /// Whether the pointer is an allocation of this graph that a free node may name; marks it freed.
  bool FreeInGraph(void* ptr);
  bool has_allocations() const { return !allocations_.empty(); }
  /// Marks the allocations without a free node live; false, changing nothing, if one still is and
  /// `auto_free` does not permit that.
  bool StartLifetimes(bool auto_free);

  /// With allocations a graph has one executable at a time: claims or gives back that place.
  bool ClaimExecutable();
  void ReturnExecutable();

 private:
  std::vector<Op> ops_;
  std::vector<std::vector<std::uint32_t>> dependencies_;
  std::vector<std::unique_ptr<GraphAllocation>> allocations_;
  std::atomic<bool> claimed_{false};
};

/// An executable graph: remembers the point of its last launch, after which the next one runs.
class GraphExecutable : public HandleObject<GraphExecutable> {
 public:
  void Init(GraphBody* body, bool auto_free);
  void Reset();

  GraphBody& body() const { return *body_.get(); }
  bool auto_free() const { return auto_free_; }

  /// Enqueues a replay; false if the queue is out of memory.
  bool Launch(Stream& stream);

 private:
  RefPtr<GraphBody> body_;
  bool auto_free_ = false;
  std::mutex mutex_;
  RefPtr<Stream> last_stream_;
  std::uint64_t last_position_ = 0;
};

}  // namespace infini::rt::cpu
