/// What the dispatching API adds to a direct call of one backend's function. Run with
/// --benchmark_enable_random_interleaving=true to measure both in turn.

#include <benchmark/benchmark.h>

#include <infini/rt.h>

#if INFINI_RT_WITH_CPU
#include <infini/rt/cpu/runtime.h>
#endif

namespace {

using namespace infini::rt;

void Dispatched(benchmark::State& state, Device::Type type) {
  RuntimeDeviceTypeGuard guard(type);
  int device = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(runtime::GetDevice(&device));
    benchmark::DoNotOptimize(device);
  }
}

#if INFINI_RT_WITH_CPU
void DirectCpu(benchmark::State& state) {
  int device = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(runtime::Runtime<Device::Type::kCpu>::GetDevice(&device));
    benchmark::DoNotOptimize(device);
  }
}
BENCHMARK(DirectCpu);
#endif

void Register() {
  for (Device::Type type : kEnabledDeviceTypes) {
    std::string name = "Dispatched/" + std::string(Device::StringFromType(type));
    benchmark::RegisterBenchmark(name.c_str(),
                                 [type](benchmark::State& state) { Dispatched(state, type); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
