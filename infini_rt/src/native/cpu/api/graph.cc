#include "native/cpu/api/call.h"

namespace infini::rt::runtime {
namespace {

using cpu::Call;
using cpu::Resolve;
using Cpu = Runtime<Device::Type::kCpu>;

// cudaGraphInstantiateFlagAutoFreeOnLaunch and ...UseNodePriority.
constexpr unsigned long long kAutoFreeOnLaunch = 1;
constexpr unsigned long long kUseNodePriority = 8;

cpu::GraphBody* Resolve(Graph handle) {
  auto* body = reinterpret_cast<cpu::GraphBody*>(handle);
  return body != nullptr && body->open() ? body : nullptr;
}

cpu::GraphExecutable* Resolve(GraphExec handle) {
  auto* executable = reinterpret_cast<cpu::GraphExecutable*>(handle);
  return executable != nullptr && executable->open() ? executable : nullptr;
}

}  // namespace

Error Cpu::StreamBeginCapture(Stream stream, StreamCaptureMode mode) {
  return Call([&] {
    if (mode < kStreamCaptureModeGlobal || mode > kStreamCaptureModeRelaxed) {
      return kErrorInvalidValue;
    }
    cpu::Stream* target = cpu::Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    return cpu::BeginCapture(*target, mode);
  });
}

Error Cpu::StreamEndCapture(Stream stream, Graph* graph) {
  return Call([&] {
    if (graph == nullptr) return kErrorInvalidValue;
    cpu::Stream* target = cpu::Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    cpu::GraphBody* body = nullptr;
    Error error = cpu::EndCapture(*target, &body);
    *graph = reinterpret_cast<Graph>(body);
    return error;
  });
}

Error Cpu::StreamIsCapturing(Stream stream, StreamCaptureStatus* status) {
  return Call([&] {
    if (status == nullptr) return kErrorInvalidValue;
    cpu::Stream* target = cpu::Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    return cpu::CaptureStatus(*target, status);
  });
}

Error Cpu::GraphInstantiate(GraphExec* graph_exec, Graph graph, unsigned long long flags) {
  return Call([&] {
    cpu::GraphBody* body = Resolve(graph);
    if (graph_exec == nullptr || body == nullptr ||
        (flags & ~(kAutoFreeOnLaunch | kUseNodePriority)) != 0) {
      return kErrorInvalidValue;
    }
    if (!body->ClaimExecutable()) return kErrorNotSupported;
    cpu::GraphExecutable* executable = cpu::GraphExecutable::Create();
    executable->Init(body, (flags & kAutoFreeOnLaunch) != 0);
    *graph_exec = reinterpret_cast<GraphExec>(executable);
    return kSuccess;
  });
}

Error Cpu::GraphLaunch(GraphExec graph_exec, Stream stream) {
  return Call([&] {
    cpu::GraphExecutable* executable = Resolve(graph_exec);
    if (executable == nullptr) return kErrorInvalidValue;
    cpu::Stream* target = cpu::Resolve(stream);
    if (target == nullptr) return kErrorInvalidResourceHandle;
    // A launch cannot be captured.
    Error error = cpu::CheckUncapturable(*target);
    if (error != kSuccess) return error;
    if (!executable->body().StartLifetimes(executable->auto_free())) return kErrorInvalidValue;
    return executable->Launch(*target) ? kSuccess : kErrorMemoryAllocation;
  });
}

Error Cpu::GraphExecDestroy(GraphExec graph_exec) {
  return Call([&] {
    cpu::GraphExecutable* executable = Resolve(graph_exec);
    if (executable == nullptr || !executable->Shut()) return kErrorInvalidValue;
    executable->Unref();
    return kSuccess;
  });
}

Error Cpu::GraphDestroy(Graph graph) {
  return Call([&] {
    cpu::GraphBody* body = Resolve(graph);
    if (body == nullptr || !body->Shut()) return kErrorInvalidValue;
    body->Unref();
    return kSuccess;
  });
}

}  // namespace infini::rt::runtime
