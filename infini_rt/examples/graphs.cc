/// Captures two branches of work into a graph and replays it on new contents.

#include <vector>

#include "check.h"

int main() {
  using namespace infini::rt::runtime;
  if (!Supports(infini::rt::runtime_device_type(), kFeatureGraph)) return 0;
  constexpr std::size_t kBytes = 4096;

  void *input = nullptr, *left = nullptr, *right = nullptr;
  CHECK(Malloc(&input, kBytes));
  CHECK(Malloc(&left, kBytes));
  CHECK(Malloc(&right, kBytes));
  Stream main_stream, side_stream;
  CHECK(StreamCreate(&main_stream));
  CHECK(StreamCreate(&side_stream));
  Event fork, join;
  CHECK(EventCreate(&fork));
  CHECK(EventCreate(&join));

  // Waiting for an event of the capture draws the side stream into it.
  CHECK(StreamBeginCapture(main_stream, kStreamCaptureModeGlobal));
  CHECK(EventRecord(fork, main_stream));
  CHECK(StreamWaitEvent(side_stream, fork));
  CHECK(MemcpyAsync(left, input, kBytes, kMemcpyDeviceToDevice, main_stream));
  CHECK(MemcpyAsync(right, input, kBytes, kMemcpyDeviceToDevice, side_stream));
  CHECK(EventRecord(join, side_stream));
  CHECK(StreamWaitEvent(main_stream, join));
  Graph graph;
  CHECK(StreamEndCapture(main_stream, &graph));

  GraphExec exec;
  CHECK(GraphInstantiate(&exec, graph));
  CHECK(GraphDestroy(graph));

  // Addresses were frozen by the capture; contents are read at each launch.
  bool good = true;
  std::vector<unsigned char> host(kBytes);
  for (int value = 1; value <= 3; ++value) {
    CHECK(MemsetAsync(input, value, kBytes, main_stream));
    CHECK(GraphLaunch(exec, main_stream));
    CHECK(StreamSynchronize(main_stream));
    CHECK(Memcpy(host.data(), right, kBytes, kMemcpyDeviceToHost));
    good = good && host.front() == value && host.back() == value;
  }

  CHECK(GraphExecDestroy(exec));
  CHECK(EventDestroy(fork));
  CHECK(EventDestroy(join));
  CHECK(StreamDestroy(main_stream));
  CHECK(StreamDestroy(side_stream));
  for (void* ptr : {input, left, right})
    CHECK(Free(ptr));
  std::printf("three replays, three contents\n");
  return good ? 0 : 1;
}
