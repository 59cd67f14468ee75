#pragma once

#include <cstddef>
#include <cstdint>

#include <infini/rt/cpu/runtime.h>

namespace infini::rt::cpu {

class Event;
class GraphBody;
class Stream;

enum class OpCode : std::uint8_t {
  kNop,
  kCopy,
  kFill,
  kHostFunction,
  kKernel,
  kRecord,        // writes an event's timestamp
  kWait,          // waits for a point of another stream
  kWaitExternal,  // waits for an event's latest record at the time of execution
  kGraph,         // replays a graph
};

/// One operation of a stream or node of a graph: 64 bytes, trivially copyable. References in it are
/// owned by whoever holds the operation and are returned by `Release`.
struct alignas(64) Op {
  static constexpr std::size_t kInlineArgs = 48;

  OpCode code;
  bool
      owns_memory;  // kCopy: a staging buffer is the source; kKernel: the arguments are on the heap
  union {
    runtime::HostFn host;
    runtime::KernelFunction kernel;
    void* target;  // kCopy, kFill
    Event* event;
    Stream* stream;
    GraphBody* graph;
  };
  union {
    struct {
      const void* source;
      std::size_t count;
      int value;
    } memory;
    void* user_data;
    std::uint64_t point;  // kWait: position in `stream`; kRecord: generation
    void* heap_args;
    alignas(16) std::byte inline_args[kInlineArgs];
  };

  static Op Nop();
  static Op Copy(void* target, const void* source, std::size_t count);
  static Op Fill(void* target, int value, std::size_t count);
  static Op HostFunction(runtime::HostFn host, void* user_data);
  /// Copies the arguments; throws `std::bad_alloc` if they need the heap and it is exhausted.
  static Op Kernel(runtime::KernelFunction kernel, const void* args, std::size_t size);
  /// These three take a reference to their object.
  static Op Record(Event* event, std::uint64_t generation);
  static Op Wait(Stream* stream, std::uint64_t point);
  static Op WaitExternal(Event* event);
  static Op Replay(GraphBody* graph);

  /// Carries the operation out on the calling thread. After a device fault only ordering remains:
  /// copies, fills and functions are skipped.
  void Execute() const;

  /// Gives back what the operation owns.
  void Release() const;
};

static_assert(sizeof(Op) == 64);

/// Whether the calling thread is inside a host function or kernel, where runtime calls are not
/// permitted.
bool InsideCallback();

}  // namespace infini::rt::cpu
