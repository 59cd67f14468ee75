#include "native/cpu/graph/graph.h"

#include <utility>

#include "native/cpu/engine/context.h"
#include "native/cpu/engine/device_state.h"

namespace infini::rt::cpu {

void GraphBody::Reset() {
  for (const Op& op : ops_)
    op.Release();
  ops_.clear();
  dependencies_.clear();
  AllocationTable& table = Context::Get().allocations();
  for (auto& allocation : allocations_) {
    auto entry = table.Remove(allocation->ptr);
    if (entry && allocation->live.load()) {
      // Still the program's: from here on it is ordinary device memory.
      entry->kind = MemoryKind::kDevice;
      entry->graph = nullptr;
      table.Insert(*entry);
    } else {
      allocation->device->Deallocate(allocation->ptr, allocation->size);
    }
  }
  allocations_.clear();
  claimed_.store(false);
}

std::uint32_t GraphBody::Add(const Op& op, std::vector<std::uint32_t> dependencies) {
  ops_.push_back(op);
  dependencies_.push_back(std::move(dependencies));
  return static_cast<std::uint32_t>(ops_.size() - 1);
}

bool GraphBody::Covers(const std::vector<std::uint32_t>& roots,
                       const std::vector<std::uint32_t>& nodes) const {
  std::vector<bool> covered(ops_.size(), false);
  for (std::uint32_t root : roots)
    covered[root] = true;
  // Dependencies have smaller indices, so one pass downwards marks all that come before.
  for (std::size_t i = ops_.size(); i-- > 0;) {
    if (!covered[i]) continue;
    for (std::uint32_t dependency : dependencies_[i])
      covered[dependency] = true;
  }
  for (std::uint32_t node : nodes) {
    if (!covered[node]) return false;
  }
  return true;
}

void GraphBody::Run() const {
  for (const Op& op : ops_)
    op.Execute();
}

void* GraphBody::Allocate(std::size_t size, DeviceState& device) {
  void* ptr = device.Allocate(size);
  if (ptr == nullptr) return nullptr;
  auto allocation = std::make_unique<GraphAllocation>();
  allocation->ptr = ptr;
  allocation->size = size;
  allocation->device = &device;
  Allocation entry;
  entry.base = reinterpret_cast<std::uintptr_t>(ptr);
  entry.size = size;
  entry.kind = MemoryKind::kGraph;
  entry.device = &device;
  entry.graph = allocation.get();
  Context::Get().allocations().Insert(entry);
  allocations_.push_back(std::move(allocation));
  return ptr;
}

bool GraphBody::FreeInGraph(void* ptr) {
  for (auto& allocation : allocations_) {
    if (allocation->ptr == ptr) return !std::exchange(allocation->freed_in_graph, true);
  }
  return false;
}

bool GraphBody::StartLifetimes(bool auto_free) {
  if (!auto_free) {
    for (auto& allocation : allocations_) {
      if (allocation->live.load()) return false;
    }
  }
  for (auto& allocation : allocations_) {
    if (!allocation->freed_in_graph) allocation->live.store(true);
  }
  return true;
}

bool GraphBody::ClaimExecutable() {
  return !has_allocations() || !claimed_.exchange(true);
}

void GraphBody::ReturnExecutable() {
  claimed_.store(false);
}

void GraphExecutable::Init(GraphBody* body, bool auto_free) {
  body_ = RefPtr<GraphBody>(body);
  auto_free_ = auto_free;
}

void GraphExecutable::Reset() {
  body_->ReturnExecutable();
  body_ = {};
  last_stream_ = {};
  last_position_ = 0;
}

bool GraphExecutable::Launch(Stream& stream) {
  std::lock_guard lock(mutex_);
  if (last_stream_ && last_stream_.get() != &stream && last_stream_->completed() < last_position_) {
    if (stream.Enqueue(Op::Wait(last_stream_.get(), last_position_)) == 0) return false;
  }
  std::uint64_t position = stream.Enqueue(Op::Replay(body_.get()));
  if (position == 0) return false;
  if (last_stream_.get() != &stream) last_stream_ = RefPtr<Stream>(&stream);
  last_position_ = position;
  return true;
}

}  // namespace infini::rt::cpu
