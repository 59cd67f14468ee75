/// The CPU runtime: cost of enqueuing, of a round trip, of many queued operations, of replays.

#include <benchmark/benchmark.h>

#include <infini/rt.h>
#include <infini/rt/cpu/runtime.h>

namespace {

using namespace infini::rt;
using namespace infini::rt::runtime;
using Cpu = Runtime<Device::Type::kCpu>;

constexpr int kBatch = 10'000;
constexpr int kGraphNodes = 100;

void Nothing(void*) {}
Error EmptyKernel(const void*) {
  return kSuccess;
}

class StreamScope {
 public:
  StreamScope() { Cpu::StreamCreate(&stream_); }
  ~StreamScope() { Cpu::StreamDestroy(stream_); }
  operator Stream() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

// Time of the calling thread per call; the queue drains between batches, off the clock.
template <typename Call>
void EnqueueInBatches(benchmark::State& state, Call call) {
  StreamScope stream;
  while (state.KeepRunningBatch(kBatch)) {
    for (int i = 0; i < kBatch; ++i)
      call(stream);
    state.PauseTiming();
    Cpu::StreamSynchronize(stream);
    state.ResumeTiming();
  }
}

void EnqueueHostFunction(benchmark::State& state) {
  EnqueueInBatches(state, [](Stream stream) { Cpu::LaunchHostFunc(stream, Nothing, nullptr); });
}
BENCHMARK(EnqueueHostFunction);

void EnqueueKernel(benchmark::State& state) {
  int args[4] = {};
  EnqueueInBatches(
      state, [&](Stream stream) { Cpu::LaunchKernel(EmptyKernel, args, sizeof(args), stream); });
}
BENCHMARK(EnqueueKernel);

void EnqueueMemset(benchmark::State& state) {
  void* ptr = nullptr;
  Cpu::Malloc(&ptr, 256);
  EnqueueInBatches(state, [&](Stream stream) { Cpu::MemsetAsync(ptr, 0, 256, stream); });
  Cpu::Free(ptr);
}
BENCHMARK(EnqueueMemset);

void EnqueueEventRecord(benchmark::State& state) {
  Event event = nullptr;
  Cpu::EventCreate(&event);
  EnqueueInBatches(state, [&](Stream stream) { Cpu::EventRecord(event, stream); });
  Cpu::EventDestroy(event);
}
BENCHMARK(EnqueueEventRecord);

void MallocAndFreeAsync(benchmark::State& state) {
  MemPool pool = nullptr;
  std::uint64_t threshold = UINT64_MAX;
  Cpu::DeviceGetDefaultMemPool(&pool, 0);
  Cpu::MemPoolSetAttribute(pool, kMemPoolAttrReleaseThreshold, &threshold);
  EnqueueInBatches(state, [](Stream stream) {
    void* ptr = nullptr;
    Cpu::MallocAsync(&ptr, 1 << 16, stream);
    Cpu::FreeAsync(ptr, stream);
  });
}
BENCHMARK(MallocAndFreeAsync);

void HostFunctionRoundTrip(benchmark::State& state) {
  StreamScope stream;
  for (auto _ : state) {
    Cpu::LaunchHostFunc(stream, Nothing, nullptr);
    Cpu::StreamSynchronize(stream);
  }
}
BENCHMARK(HostFunctionRoundTrip)->UseRealTime();

void QueueOneMillion(benchmark::State& state) {
  constexpr int kOperations = 1'000'000;
  StreamScope stream;
  for (auto _ : state) {
    for (int i = 0; i < kOperations; ++i)
      Cpu::LaunchHostFunc(stream, Nothing, nullptr);
    Cpu::StreamSynchronize(stream);
  }
  state.SetItemsProcessed(state.iterations() * kOperations);
}
BENCHMARK(QueueOneMillion)->UseRealTime()->Unit(benchmark::kMillisecond);

// Both include the execution, so that they compare like with like; items are nodes.
void EnqueueNodes(benchmark::State& state) {
  StreamScope stream;
  for (auto _ : state) {
    for (int i = 0; i < kGraphNodes; ++i)
      Cpu::LaunchHostFunc(stream, Nothing, nullptr);
    Cpu::StreamSynchronize(stream);
  }
  state.SetItemsProcessed(state.iterations() * kGraphNodes);
}
BENCHMARK(EnqueueNodes)->UseRealTime();

void ReplayNodes(benchmark::State& state) {
  StreamScope stream;
  Cpu::StreamBeginCapture(stream, kStreamCaptureModeRelaxed);
  for (int i = 0; i < kGraphNodes; ++i)
    Cpu::LaunchHostFunc(stream, Nothing, nullptr);
  Graph graph = nullptr;
  GraphExec exec = nullptr;
  Cpu::StreamEndCapture(stream, &graph);
  Cpu::GraphInstantiate(&exec, graph, 0);
  for (auto _ : state) {
    Cpu::GraphLaunch(exec, stream);
    Cpu::StreamSynchronize(stream);
  }
  Cpu::GraphExecDestroy(exec);
  Cpu::GraphDestroy(graph);
  state.SetItemsProcessed(state.iterations() * kGraphNodes);
}
BENCHMARK(ReplayNodes)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
