#include "native/cpu/engine/op.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "native/cpu/engine/context.h"
#include "native/cpu/engine/event.h"
#include "native/cpu/engine/stream.h"
#include "native/cpu/graph/graph.h"

namespace infini::rt::cpu {
namespace {

constinit thread_local bool inside_callback = false;

class CallbackScope {
 public:
  CallbackScope() { inside_callback = true; }
  ~CallbackScope() { inside_callback = false; }
};

Op Make(OpCode code) {
  Op op;
  op.code = code;
  op.owns_memory = false;
  return op;
}

}  // namespace

bool InsideCallback() {
  return inside_callback;
}

Op Op::Nop() {
  return Make(OpCode::kNop);
}

Op Op::Copy(void* target, const void* source, std::size_t count) {
  Op op = Make(OpCode::kCopy);
  op.target = target;
  op.memory = {source, count, 0};
  return op;
}

Op Op::Fill(void* target, int value, std::size_t count) {
  Op op = Make(OpCode::kFill);
  op.target = target;
  op.memory = {nullptr, count, value};
  return op;
}

Op Op::HostFunction(runtime::HostFn host, void* user_data) {
  Op op = Make(OpCode::kHostFunction);
  op.host = host;
  op.user_data = user_data;
  return op;
}

Op Op::Kernel(runtime::KernelFunction kernel, const void* args, std::size_t size) {
  Op op = Make(OpCode::kKernel);
  op.kernel = kernel;
  if (size > kInlineArgs) {
    op.heap_args = std::malloc(size);  // malloc aligns to 16 bytes
    if (op.heap_args == nullptr) throw std::bad_alloc();
    op.owns_memory = true;
    std::memcpy(op.heap_args, args, size);
  } else if (size > 0) {
    std::memcpy(op.inline_args, args, size);
  }
  return op;
}

Op Op::Record(Event* event, std::uint64_t generation) {
  Op op = Make(OpCode::kRecord);
  event->Ref();
  op.event = event;
  op.point = generation;
  return op;
}

Op Op::Wait(Stream* stream, std::uint64_t point) {
  Op op = Make(OpCode::kWait);
  stream->Ref();
  op.stream = stream;
  op.point = point;
  return op;
}

Op Op::WaitExternal(Event* event) {
  Op op = Make(OpCode::kWaitExternal);
  event->Ref();
  op.event = event;
  return op;
}

Op Op::Replay(GraphBody* graph) {
  Op op = Make(OpCode::kGraph);
  graph->Ref();
  op.graph = graph;
  return op;
}

void Op::Execute() const {
  switch (code) {
    case OpCode::kNop:
      return;
    case OpCode::kRecord:
      event->Reached(point);
      return;
    case OpCode::kWait:
      stream->WaitUntil(point);
      return;
    case OpCode::kWaitExternal:
      event->WaitLatest();
      return;
    default:
      break;
  }
  Context& context = Context::Get();
  if (context.fault() != runtime::kSuccess) return;
  switch (code) {
    case OpCode::kCopy:
      std::memmove(target, memory.source, memory.count);
      return;
    case OpCode::kFill:
      std::memset(target, memory.value, memory.count);
      return;
    case OpCode::kHostFunction: {
      CallbackScope scope;
      host(user_data);
      return;
    }
    case OpCode::kKernel: {
      CallbackScope scope;
      runtime::Error error = kernel(owns_memory ? heap_args : inline_args);
      if (error != runtime::kSuccess) context.SetFault(error);
      return;
    }
    case OpCode::kGraph:
      graph->Run();
      return;
    default:
      return;
  }
}

void Op::Release() const {
  switch (code) {
    case OpCode::kCopy:
      if (owns_memory) std::free(const_cast<void*>(memory.source));
      return;
    case OpCode::kKernel:
      if (owns_memory) std::free(heap_args);
      return;
    case OpCode::kRecord:
    case OpCode::kWaitExternal:
      event->Unref();
      return;
    case OpCode::kWait:
      stream->Unref();
      return;
    case OpCode::kGraph:
      graph->Unref();
      return;
    default:
      return;
  }
}

}  // namespace infini::rt::cpu
