// The ops of generation at the shapes of LLaMA 3.2 1B in bfloat16, one text: graphs of launches one
// behind the other, as a token makes them, each on memory of its own, which no cache holds.

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <vector>

#include "benchmarks/device_ops/cases.h"
#include "infini_train/core/device/graph.h"
#include "infini_train/core/device/launch_overlap.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::device_ops {
namespace {

constexpr double kEps = 1e-5;

/// More than caches hold.
constexpr double kManyBytes = 512e6;
constexpr int kMostLaunches = 64;

/// How many launches of so many bytes a graph has.
int LaunchesOf(double bytes) {
  const double launches = std::ceil(kManyBytes / bytes);
  return launches < kMostLaunches ? static_cast<int>(launches) + 1 : kMostLaunches;
}

/// A graph of `launches` calls of `launch(i)`.
template <typename Launch>
std::function<void()> Repeat(Device device, int launches, const Launch& launch) {
  launch(0);  // Kernels are loaded.
  auto graph = std::make_shared<DeviceGraph>(device, [&] {
    const LaunchOverlap overlap;
    for (int i = 0; i < launches; ++i)
      launch(i);
  });
  return [graph] { graph->Launch(); };
}

struct Product {
  const char* name;
  std::int64_t outputs, inputs;
  bool norm = false, residual = false, gated = false;
};

Measured MakeProduct(const Product& p, Device device) {
  constexpr DataType kType = DataType::kBFloat16;
  const std::int64_t rows = p.gated ? 2 * p.outputs : p.outputs;
  const double bytes = 2.0 * static_cast<double>(rows * p.inputs);
  std::vector<Tensor> weights;
  for (int i = 0; i < LaunchesOf(bytes); ++i)
    weights.push_back(Random({rows, p.inputs}, kType, device));
  const Tensor x = Random({1, p.inputs}, kType, device);
  const Tensor norm = p.norm ? Random({p.inputs}, kType, device) : Tensor();
  const Tensor residual = p.residual ? Random({1, p.outputs}, kType, device) : Tensor();
  Tensor out = Tensor::Empty({1, p.outputs}, kType, device);
  auto call = Repeat(device, static_cast<int>(weights.size()), [&](int i) {
    Call<op::NormGemv>(out, x, norm, weights[static_cast<std::size_t>(i)], Tensor(), residual, kEps,
                       p.gated);
  });
  return {[call, weights, x, norm, residual, out] { call(); }, 0,
          bytes * static_cast<double>(weights.size())};
}

Measured MakeAttention(std::int64_t capacity, std::int64_t length, Device device) {
  constexpr std::int64_t kHeads = 32, kKvHeads = 8, kSize = 64;
  constexpr DataType kType = DataType::kBFloat16;
  const double bytes = 4.0 * static_cast<double>(kKvHeads * length * kSize);
  std::vector<Tensor> keys, values;
  for (int i = 0; i < LaunchesOf(4.0 * static_cast<double>(kKvHeads * capacity * kSize)); ++i) {
    keys.push_back(Random({1, kKvHeads, capacity, kSize}, kType, device));
    values.push_back(Random({1, kKvHeads, capacity, kSize}, kType, device));
  }
  const Tensor qkv = Random({1, (kHeads + 2 * kKvHeads) * kSize}, kType, device);
  const Tensor cos = Random({capacity, kSize / 2}, DataType::kFloat32, device);
  const Tensor sin = Random({capacity, kSize / 2}, DataType::kFloat32, device);
  const Tensor lengths = Tensor::Empty({1}, DataType::kInt32, device);
  const auto held = static_cast<std::int32_t>(length - 1);
  lengths.CopyFromHost(&held, sizeof(held));
  Tensor out = Tensor::Empty({1, kHeads * kSize}, kType, device);
  auto call = Repeat(device, static_cast<int>(keys.size()), [&](int i) {
    const auto layer = static_cast<std::size_t>(i);
    Call<op::CachedAttention>(out, keys[layer], values[layer], qkv, lengths, cos, sin, Tensor(),
                              Tensor(), kEps, AttentionParams{.scale = 0.125});
  });
  return {[call, keys, values, qkv, cos, sin, lengths, out] { call(); }, 0,
          bytes * static_cast<double>(keys.size())};
}

}  // namespace

void AppendDecodeCases(std::vector<Case>& cases) {
  for (const Product& p :
       {Product{"qkv", 3072, 2048, true}, Product{"o", 2048, 2048, false, true},
        Product{"gate_up", 8192, 2048, true, false, true}, Product{"down", 2048, 8192, false, true},
        Product{"head", 128256, 2048, true}}) {
    const double bytes = 2.0 * static_cast<double>(p.outputs * p.inputs) * (p.gated ? 2 : 1);
    cases.push_back({fmt::format("decode/gemv/{} x{}", p.name, LaunchesOf(bytes)),
                     [p](Device device) { return MakeProduct(p, device); }});
  }
  struct Lengths {
    std::int64_t capacity, length;
  };
  for (const auto [capacity, length] :
       {Lengths{392, 130}, {392, 260}, {392, 390}, {2048, 260}, {2048, 2000}, {8192, 8000}}) {
    const double bytes = 4.0 * 8 * 64 * static_cast<double>(capacity);
    cases.push_back(
        {fmt::format("decode/attention/{} of {} x{}", length, capacity, LaunchesOf(bytes)),
         [capacity = capacity, length = length](Device device) {
           return MakeAttention(capacity, length, device);
         }});
  }
}

}  // namespace infini_train::device_ops
