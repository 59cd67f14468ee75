// Speed of the CPU kernels that a training step spends its time in, in GFLOP/s:
//
//   benchmarks/kernels --benchmark_filter=gemm/forward/float32
//
// OMP_NUM_THREADS chooses the threads. Anchors named onednn run oneDNN's matmul on the same
// matrices in the same process.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "infini_train/core/tensor.h"
#include "infini_train/kernels/cpu/gemm/onednn.h"
#include "infini_train/ops/dispatch.h"

namespace {

using infini_train::AttentionParams;
using infini_train::Call;
using infini_train::DataType;
using infini_train::Dims;
using infini_train::Tensor;
using infini_train::cpu::ColumnMajor;
using infini_train::cpu::GemmProblem;
using infini_train::cpu::MatrixLayout;
using infini_train::cpu::RowMajor;
namespace op = infini_train::op;

constexpr DataType kFloat32 = DataType::kFloat32;
constexpr DataType kBFloat16 = DataType::kBFloat16;

Tensor Random(const Dims& shape, DataType dtype) {
  Tensor values = Tensor::Empty(shape, dtype);
  Call<op::RandomNormal>(values, 0.0, 0.02, infini_train::Generator::State{1, 0});
  return values;
}

void Report(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// A linear layer's three products for `tokens` tokens: y = x w^T, dx = dy w, dw += dy^T x.
enum class Product { kForward, kInputGradient, kWeightGradient };

struct Matrices {
  GemmProblem problem;
  Tensor a, b, c;  // as stored
};

Matrices MakeMatrices(Product product, std::int64_t tokens, std::int64_t in, std::int64_t out,
                      DataType dtype) {
  Matrices result;
  GemmProblem& p = result.problem;
  p.input = p.output = dtype;
  switch (product) {
    case Product::kForward:
      p.m = tokens, p.n = out, p.k = in;
      p.a = RowMajor(in), p.b = ColumnMajor(in);
      break;
    case Product::kInputGradient:
      p.m = tokens, p.n = in, p.k = out;
      p.a = RowMajor(out), p.b = RowMajor(in);
      break;
    case Product::kWeightGradient:
      p.m = out, p.n = in, p.k = tokens;
      p.a = ColumnMajor(out), p.b = RowMajor(in);
      p.output = kFloat32;
      p.accumulate = true;
      break;
  }
  p.c = RowMajor(p.n);
  const auto strided = [&](std::int64_t rows, std::int64_t columns, MatrixLayout layout) {
    const Tensor memory = Random({rows * columns}, dtype);
    return memory.AsStrided({rows, columns}, {layout.row, layout.column}, 0);
  };
  result.a = strided(p.m, p.k, p.a);
  result.b = strided(p.k, p.n, p.b);
  result.c = Tensor::Empty({p.m, p.n}, p.output);
  Call<op::Fill>(result.c, 0.0);
  return result;
}

void Gemm(benchmark::State& state, Product product, std::int64_t tokens, std::int64_t in,
          std::int64_t out, DataType dtype) {
  Matrices x = MakeMatrices(product, tokens, in, out, dtype);
  for (auto _ : state)
    Call<op::Gemm>(x.c, x.a, x.b, Tensor(), x.problem.accumulate);
  Report(state,
         2.0 * static_cast<double>(tokens) * static_cast<double>(in) * static_cast<double>(out));
}

void OneDnn(benchmark::State& state, Product product, std::int64_t tokens, std::int64_t in,
            std::int64_t out, DataType dtype) {
  const Matrices x = MakeMatrices(product, tokens, in, out, dtype);
  for (auto _ : state) {
    if (!infini_train::cpu::TryOneDnnGemm(x.problem, x.c.raw_data(), x.a.raw_data(), x.b.raw_data(),
                                          nullptr)) {
      state.SkipWithError("oneDNN has no fast implementation");
      break;
    }
  }
  Report(state,
         2.0 * static_cast<double>(tokens) * static_cast<double>(in) * static_cast<double>(out));
}

// Causal attention of GPT-2's heads in one packed buffer. Counts the products that a causal mask
// leaves: half of 2 (forward) or 5 (backward).
struct Heads {
  Heads(std::int64_t batch, std::int64_t length, std::int64_t heads, std::int64_t size,
        DataType dtype)
      : params{.scale = 1.0 / std::sqrt(static_cast<double>(size))} {
    const std::int64_t width = 3 * heads * size;
    const Tensor inputs = Random({batch, length, width}, dtype);
    const Tensor outputs = Tensor::EmptyLike(inputs);
    const auto slice = [&](const Tensor& packed, std::int64_t i) {
      return packed.AsStrided({batch, heads, length, size}, {length * width, size, width, 1},
                              i * heads * size);
    };
    q = slice(inputs, 0), k = slice(inputs, 1), v = slice(inputs, 2);
    grad_q = slice(outputs, 0), grad_k = slice(outputs, 1), grad_v = slice(outputs, 2);
    const Dims strides{length * heads * size, size, heads * size, 1};
    const Dims shape{batch, heads, length, size};
    out = Random({batch, length, heads, size}, dtype).AsStrided(shape, strides, 0);
    grad_out = Random({batch, length, heads, size}, dtype).AsStrided(shape, strides, 0);
    lse = Tensor::Empty({batch, heads, length});
    flops = static_cast<double>(batch * heads * length * length * size);
  }

  AttentionParams params;
  Tensor q, k, v, out, lse, grad_out, grad_q, grad_k, grad_v;
  double flops;  // of one causal product
};

void Attention(benchmark::State& state, std::int64_t batch, std::int64_t length, DataType dtype) {
  Heads x(batch, length, 12, 64, dtype);
  for (auto _ : state)
    Call<op::Attention>(x.out, x.lse, x.q, x.k, x.v, Tensor(), x.params);
  Report(state, 2 * x.flops);
}

void AttentionBackward(benchmark::State& state, std::int64_t batch, std::int64_t length,
                       DataType dtype) {
  Heads x(batch, length, 12, 64, dtype);
  Call<op::Attention>(x.out, x.lse, x.q, x.k, x.v, Tensor(), x.params);
  for (auto _ : state) {
    Call<op::AttentionBackward>(x.grad_q, x.grad_k, x.grad_v, x.grad_out, x.out, x.lse, x.q, x.k,
                                x.v, Tensor(), x.params);
  }
  Report(state, 5 * x.flops);
}

// One token's query on a key/value cache; bounded by reading it, so bytes count.
void Decode(benchmark::State& state, std::int64_t length, DataType dtype) {
  const Tensor q = Random({1, 12, 1, 64}, dtype);
  const Tensor k = Random({1, 12, length, 64}, dtype);
  const Tensor v = Random({1, 12, length, 64}, dtype);
  Tensor out = Tensor::EmptyLike(q);
  Tensor lse = Tensor::Empty({1, 12, 1});
  for (auto _ : state)
    Call<op::Attention>(out, lse, q, k, v, Tensor(), AttentionParams{.scale = 0.125});
  state.SetBytesProcessed(static_cast<std::int64_t>(k.nbytes() + v.nbytes()) * state.iterations());
}

void LinearCrossEntropy(benchmark::State& state, std::int64_t tokens, DataType dtype) {
  constexpr std::int64_t kHidden = 768;
  constexpr std::int64_t kVocabulary = 50257;
  const Tensor hidden = Random({tokens, kHidden}, dtype);
  const Tensor weight = Random({kVocabulary, kHidden}, dtype);
  Tensor targets = Tensor::Empty({tokens}, DataType::kInt64);
  Call<op::RandomInt>(targets, std::int64_t{0}, kVocabulary, infini_train::Generator::State{2, 0});
  Tensor loss = Tensor::Empty({});
  Tensor grad_hidden = Tensor::EmptyLike(hidden);
  Tensor grad_weight = Tensor::Empty(weight.shape());
  for (auto _ : state) {
    Call<op::LinearCrossEntropy>(loss, grad_hidden, grad_weight, hidden, weight, targets,
                                 std::int64_t{-100}, 1.0 / static_cast<double>(tokens));
  }
  Report(state, 6.0 * static_cast<double>(tokens) * kHidden * kVocabulary);
}

void TinyGemm(benchmark::State& state) {
  const Tensor a = Random({1, 1}, kFloat32);
  Tensor out = Tensor::Empty({1, 1});
  for (auto _ : state)
    Call<op::Gemm>(out, a, a, Tensor(), false);
}

template <typename... Arguments>
void Register(const std::string& name, void (*function)(benchmark::State&, Arguments...),
              std::type_identity_t<Arguments>... arguments) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { function(state, arguments...); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void RegisterGemms(DataType dtype, const std::string& type) {
  constexpr std::pair<Product, const char*> kProducts[] = {
      {Product::kForward, "forward"},
      {Product::kInputGradient, "input_gradient"},
      {Product::kWeightGradient, "weight_gradient"}};
  constexpr std::pair<std::int64_t, std::int64_t> kLayers[] = {
      {768, 2304}, {768, 768}, {768, 3072}, {3072, 768}};
  for (const auto& [product, name] : kProducts) {
    for (const std::int64_t tokens : {1, 64, 256, 1024}) {
      for (const auto& [in, out] : kLayers) {
        const std::string shape = std::string(name) + "/" + type + "/" + std::to_string(tokens) +
                                  "x" + std::to_string(in) + "x" + std::to_string(out);
        Register("gemm/" + shape, &Gemm, product, tokens, in, out, dtype);
        Register("onednn/" + shape, &OneDnn, product, tokens, in, out, dtype);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto& [dtype, type] :
       {std::pair{kFloat32, std::string("float32")}, {kBFloat16, std::string("bfloat16")}}) {
    RegisterGemms(dtype, type);
    for (const auto& [batch, length] :
         {std::pair<std::int64_t, std::int64_t>{4, 64}, {1, 1024}, {1, 4096}}) {
      const std::string shape =
          type + "/" + std::to_string(batch) + "x" + std::to_string(length) + "x12x64";
      Register("attention/forward/" + shape, &Attention, batch, length, dtype);
      Register("attention/backward/" + shape, &AttentionBackward, batch, length, dtype);
    }
    for (const std::int64_t length : {256, 4096})
      Register("attention/decode/" + type + "/" + std::to_string(length), &Decode, length, dtype);
    for (const std::int64_t tokens : {256, 1024}) {
      Register("linear_cross_entropy/" + type + "/" + std::to_string(tokens) + "x768x50257",
               &LinearCrossEntropy, tokens, dtype);
    }
  }
  Register("gemm/one_element", &TinyGemm);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
