/// Memory that is allocated, used and freed in the order of a stream.

#include "check.h"

using namespace infini::rt::runtime;

int main() {
  if (!Supports(infini::rt::runtime_device_type(), kFeatureAsyncMemory)) return 0;

  Stream stream;
  void* buffer;
  CHECK(StreamCreate(&stream));
  CHECK(MallocAsync(&buffer, 1 << 20, stream));
  CHECK(MemsetAsync(buffer, 0, 1 << 20, stream));
  CHECK(FreeAsync(buffer, stream));
  CHECK(StreamSynchronize(stream));
  CHECK(StreamDestroy(stream));
  std::printf("done\n");
  return 0;
}
