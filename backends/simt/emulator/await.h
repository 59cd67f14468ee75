#pragma once

#include <infini/rt/cpu/runtime.h>

namespace infini_train::simt::emulator {

/// Waits for what was launched on a stream of InfiniRT's CPU runtime, unless a graph captures it.
inline infini::rt::runtime::Error Await(infini::rt::runtime::Stream stream) {
  namespace rt = infini::rt::runtime;
  using Runtime = rt::Runtime<infini::rt::Device::Type::kCpu>;
  rt::StreamCaptureStatus status = rt::kStreamCaptureStatusNone;
  const rt::Error error = Runtime::StreamIsCapturing(stream, &status);
  if (error != rt::kSuccess || status != rt::kStreamCaptureStatusNone) return error;
  return Runtime::StreamSynchronize(stream);
}

}  // namespace infini_train::simt::emulator
