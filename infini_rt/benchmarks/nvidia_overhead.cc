/// What InfiniRT adds to CUDA: calls directly and through InfiniRT in short turns within one
/// process, and compares the medians of the turns.

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include <infini/rt.h>

namespace {

using namespace infini::rt;
namespace rtr = infini::rt::runtime;

constexpr int kTurns = 301;
constexpr int kCallsPerTurn = 200;
constexpr std::size_t kBytes = 4096;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kTurns / 2, values.end());
  return values[kTurns / 2];
}

double Turn(cudaStream_t stream, const std::function<void()>& turn) {
  cudaStreamSynchronize(stream);
  auto begin = std::chrono::steady_clock::now();
  turn();
  std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
  cudaStreamSynchronize(stream);
  return spent.count() / kCallsPerTurn;
}

// Loops are inside the functions, so that both sides are compiled call by call.
template <typename Direct, typename Through>
void Compare(const char* name, cudaStream_t stream, Direct direct, Through through) {
  auto repeat = [](auto& call) {
    for (int i = 0; i < kCallsPerTurn; ++i)
      call();
  };
  std::vector<double> direct_ns, through_ns;
  for (int turn = 0; turn < kTurns; ++turn) {
    // The order alternates, so that neither side always runs second.
    if (turn % 2 == 0) direct_ns.push_back(Turn(stream, [&] { repeat(direct); }));
    through_ns.push_back(Turn(stream, [&] { repeat(through); }));
    if (turn % 2 != 0) direct_ns.push_back(Turn(stream, [&] { repeat(direct); }));
  }
  double a = Median(direct_ns), b = Median(through_ns);
  std::printf("%-28s %10.1f ns %10.1f ns  %+6.2f %%\n", name, a, b, (b / a - 1) * 100);
}

}  // namespace

int main() {
  if (set_runtime_device_type(Device::Type::kNvidia) != rtr::kSuccess ||
      cudaSetDevice(0) != cudaSuccess) {
    std::fprintf(stderr, "no NVIDIA device\n");
    return 1;
  }
  cudaStream_t stream;
  cudaEvent_t event;
  void *device = nullptr, *host = nullptr;
  cudaStreamCreate(&stream);
  cudaEventCreate(&event);
  cudaMalloc(&device, kBytes);
  cudaMallocHost(&host, kBytes);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
  for (int i = 0; i < 10; ++i)
    cudaMemsetAsync(device, i, kBytes, stream);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&exec, graph, 0);

  auto own_stream = reinterpret_cast<rtr::Stream>(stream);
  auto own_event = reinterpret_cast<rtr::Event>(event);
  auto own_exec = reinterpret_cast<rtr::GraphExec>(exec);
  int current = 0;

  std::printf("%-28s %13s %13s\n", "", "CUDA", "InfiniRT");
  Compare(
      "GetDevice", stream, [&] { cudaGetDevice(&current); }, [&] { rtr::GetDevice(&current); });
  Compare(
      "MemcpyAsync host to device", stream,
      [&] { cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, stream); },
      [&] { rtr::MemcpyAsync(device, host, kBytes, rtr::kMemcpyHostToDevice, own_stream); });
  Compare(
      "EventRecord", stream, [&] { cudaEventRecord(event, stream); },
      [&] { rtr::EventRecord(own_event, own_stream); });
  Compare(
      "GraphLaunch", stream, [&] { cudaGraphLaunch(exec, stream); },
      [&] { rtr::GraphLaunch(own_exec, own_stream); });
  Compare(
      "MallocAsync + FreeAsync", stream,
      [&] {
        void* ptr;
        cudaMallocAsync(&ptr, kBytes, stream);
        cudaFreeAsync(ptr, stream);
      },
      [&] {
        void* ptr;
        rtr::MallocAsync(&ptr, kBytes, own_stream);
        rtr::FreeAsync(ptr, own_stream);
      });

  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaFreeHost(host);
  cudaFree(device);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
  return 0;
}
