// What one op costs besides its work: tensors of one element on the CPU.

#include <benchmark/benchmark.h>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {
namespace {

/// The kernel through dispatch, into memory that exists.
void CallAdd(benchmark::State& state) {
  const Tensor a = Ones({1});
  const Tensor b = Ones({1});
  Tensor out = Ones({1});
  for (auto _ : state)
    Call<op::Add>(out, a, b);
}
BENCHMARK(CallAdd);

void AllocateTensor(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(Tensor::Empty({1}));
}
BENCHMARK(AllocateTensor);

void AddWithoutRecording(benchmark::State& state) {
  const Tensor a = Ones({1}).set_requires_grad();
  const Tensor b = Ones({1});
  const NoGrad no_grad;
  for (auto _ : state)
    benchmark::DoNotOptimize(Add(a, b));
}
BENCHMARK(AddWithoutRecording);

/// Includes freeing the node, as the end of a step does.
void AddRecorded(benchmark::State& state) {
  const Tensor a = Ones({1}).set_requires_grad();
  const Tensor b = Ones({1});
  // Keeps a's accumulator alive, as the rest of a graph does.
  const Tensor graph = Add(a, b);
  for (auto _ : state)
    benchmark::DoNotOptimize(Add(a, b));
}
BENCHMARK(AddRecorded);

/// Saves both factors.
void MulRecorded(benchmark::State& state) {
  const Tensor a = Ones({1}).set_requires_grad();
  const Tensor b = Ones({1}).set_requires_grad();
  const Tensor graph = Add(a, b);
  for (auto _ : state)
    benchmark::DoNotOptimize(Mul(a, b));
}
BENCHMARK(MulRecorded);

void AddBroadcast(benchmark::State& state) {
  const Tensor a = Ones({1, 1});
  const Tensor b = Ones({1});
  for (auto _ : state)
    benchmark::DoNotOptimize(Add(a, b));
}
BENCHMARK(AddBroadcast);

/// A chain of `range` recorded operations and backward through it; the time is of the whole.
void ForwardAndBackward(benchmark::State& state) {
  const Tensor x = Ones({1}).set_requires_grad();
  const Tensor factor = Ones({1});
  for (auto _ : state) {
    Tensor y = x;
    for (std::int64_t i = 0; i < state.range(0); ++i)
      y = Mul(y, factor);
    Backward(y);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(ForwardAndBackward)->Arg(1)->Arg(1000);

}  // namespace
}  // namespace infini_train
