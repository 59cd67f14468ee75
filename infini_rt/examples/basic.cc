/// Two streams, an event between them, and a copy back to the host.

#include <vector>

#include "check.h"

int main() {
  using namespace infini::rt::runtime;
  constexpr std::size_t kBytes = 1 << 20;

  void *a = nullptr, *b = nullptr;
  CHECK(Malloc(&a, kBytes));
  CHECK(Malloc(&b, kBytes));

  Stream producer, consumer;
  CHECK(StreamCreate(&producer));
  CHECK(StreamCreate(&consumer));
  Event ready;
  CHECK(EventCreate(&ready));

  // The fill runs in one stream; the copy in the other waits for it, the host does not.
  CHECK(MemsetAsync(a, 42, kBytes, producer));
  CHECK(EventRecord(ready, producer));
  CHECK(StreamWaitEvent(consumer, ready));
  CHECK(MemcpyAsync(b, a, kBytes, kMemcpyDeviceToDevice, consumer));
  CHECK(StreamSynchronize(consumer));

  std::vector<unsigned char> host(kBytes);
  CHECK(Memcpy(host.data(), b, kBytes, kMemcpyDeviceToHost));

  CHECK(EventDestroy(ready));
  CHECK(StreamDestroy(producer));
  CHECK(StreamDestroy(consumer));
  CHECK(Free(a));
  CHECK(Free(b));

  std::printf("the copy holds %d\n", host.back());
  return host.front() == 42 && host.back() == 42 ? 0 : 1;
}
