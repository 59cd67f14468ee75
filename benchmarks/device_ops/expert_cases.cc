// Layers of experts in bfloat16 with float32 weight gradients, of 16384 rows (8192 tokens, two
// experts for each) and 8 experts: even, or with half of the rows at one expert; and one dense
// layer of as many rows, which is the most that they can reach.

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "benchmarks/device_ops/cases.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::device_ops {
namespace {

constexpr DataType kBFloat16 = DataType::kBFloat16;
constexpr std::int64_t kRows = 16384;
constexpr std::int64_t kExperts = 8;

struct Layer {
  const char* name;
  std::int64_t in, out;
};

struct Routing {
  const char* name;
  std::array<std::int64_t, kExperts> counts;
};
constexpr Routing kRoutings[] = {{"even", {2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048}},
                                 {"uneven", {8192, 77, 3000, 0, 1123, 2050, 1942, 0}}};

Tensor Counts(std::span<const std::int64_t> counts, Device device) {
  Tensor tensor =
      Tensor::Empty({static_cast<std::int64_t>(counts.size())}, DataType::kInt64, device);
  for (std::size_t e = 0; e < counts.size(); ++e) {
    Tensor count = tensor.AsStrided({1}, {1}, static_cast<std::int64_t>(e));
    Call<op::Fill>(count, counts[e]);
  }
  return tensor;
}

/// The last two dimensions exchanged.
Tensor Transpose(const Tensor& x) {
  Dims shape = x.shape(), strides = x.strides();
  const int last = shape.size() - 1;
  std::swap(shape[last - 1], shape[last]);
  std::swap(strides[last - 1], strides[last]);
  return x.AsStrided(shape, strides, x.offset());
}

/// y = x w^T, dx = dy w and dw = dy^T x, of the rows of each expert.
struct Operands {
  Operands(const Layer& layer, const Routing& routing, Device device)
      : x(Random({kRows, layer.in}, kBFloat16, device)),
        weight(Random({kExperts, layer.out, layer.in}, kBFloat16, device)),
        grad(Random({kRows, layer.out}, kBFloat16, device)),
        counts(Counts(routing.counts, device)),
        flops(2.0 * static_cast<double>(kRows * layer.in * layer.out)) {}

  Tensor x, weight, grad, counts;
  double flops;
};

Measured Forward(const Layer& layer, const Routing& routing, Device device) {
  const Operands o(layer, routing, device);
  Tensor y = Tensor::EmptyLike(o.grad);
  return {[=]() mutable { Call<op::GroupedGemm>(y, o.x, Transpose(o.weight), o.counts, false); },
          o.flops, Bytes({o.x, o.weight, y})};
}

Measured InputGradient(const Layer& layer, const Routing& routing, Device device) {
  const Operands o(layer, routing, device);
  Tensor dx = Tensor::EmptyLike(o.x);
  return {[=]() mutable { Call<op::GroupedGemm>(dx, o.grad, o.weight, o.counts, false); }, o.flops,
          Bytes({o.grad, o.weight, dx})};
}

Measured WeightGradient(const Layer& layer, const Routing& routing, bool accumulate,
                        Device device) {
  const Operands o(layer, routing, device);
  Tensor dw = Tensor::Empty(o.weight.shape(), DataType::kFloat32, device);
  Call<op::Fill>(dw, 0.0);
  return {
      [=]() mutable { Call<op::KGroupedGemm>(dw, Transpose(o.grad), o.x, o.counts, accumulate); },
      o.flops, Bytes({o.grad, o.x, dw}) + (accumulate ? Bytes({dw}) : 0)};
}

Measured Dense(const Layer& layer, Device device) {
  const Operands o(layer, kRoutings[0], device);
  const Tensor weight = o.weight.AsStrided({layer.out, layer.in}, {layer.in, 1}, 0);
  Tensor y = Tensor::EmptyLike(o.grad);
  return {[=]() mutable { Call<op::Gemm>(y, o.x, Transpose(weight), Tensor(), false); }, o.flops,
          Bytes({o.x, weight, y})};
}

}  // namespace

void AppendExpertCases(std::vector<Case>& cases) {
  // A Mixtral of 1.2 billion parameters, gate and up projections together, and Mixtral 8x7B's.
  constexpr Layer kLayers[] = {
      {"gate-up", 1024, 7168}, {"down", 3584, 1024}, {"8x7b", 4096, 14336}};
  for (const Layer& layer : kLayers) {
    const auto add = [&](std::string op, std::function<Measured(Device)> make) {
      cases.push_back(
          {fmt::format("experts/{}/{} {}x{}x{}", layer.name, op, kRows, layer.in, layer.out),
           std::move(make)});
    };
    add("forward dense", [=](Device d) { return Dense(layer, d); });
    for (const Routing& routing : kRoutings) {
      const auto name = [&](const char* op) { return fmt::format("{} {}", op, routing.name); };
      add(name("forward"), [=](Device d) { return Forward(layer, routing, d); });
      add(name("dgrad"), [=](Device d) { return InputGradient(layer, routing, d); });
      add(name("wgrad"), [=](Device d) { return WeightGradient(layer, routing, false, d); });
      add(name("wgrad accumulate"),
          [=](Device d) { return WeightGradient(layer, routing, true, d); });
    }
  }
}

}  // namespace infini_train::device_ops
