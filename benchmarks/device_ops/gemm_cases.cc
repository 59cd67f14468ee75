// The products of a GPT-2 124M step of 65536 tokens in bfloat16 with float32 weight gradients,
// plain and with what training puts behind them: as an epilogue of the product, and as ops of their
// own.

#include <fmt/format.h>

#include <utility>

#include "benchmarks/device_ops/cases.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::device_ops {
namespace {

constexpr DataType kBFloat16 = DataType::kBFloat16;
constexpr DataType kFloat32 = DataType::kFloat32;

struct Layer {
  const char* name;
  std::int64_t tokens, in, out;
  DataType dtype = kBFloat16;
};

Tensor Transpose(const Tensor& x) {
  return x.AsStrided({x.size(1), x.size(0)}, {x.strides()[1], x.strides()[0]}, x.offset());
}

/// y = x w^T + bias, dx = dy w and dw = dy^T x of a layer.
struct Operands {
  Operands(const Layer& layer, Device device)
      : x(Random({layer.tokens, layer.in}, layer.dtype, device)),
        weight(Random({layer.out, layer.in}, layer.dtype, device)),
        bias(Random({layer.out}, layer.dtype, device)),
        grad(Random({layer.tokens, layer.out}, layer.dtype, device)),
        flops(2.0 * static_cast<double>(layer.tokens * layer.in * layer.out)) {}

  Tensor x, weight, bias, grad;
  double flops;
};

Measured Forward(const Layer& layer, Device device, bool bias) {
  const Operands o(layer, device);
  Tensor y = Tensor::EmptyLike(o.grad);
  const Tensor with = bias ? o.bias : Tensor();
  return {[=]() mutable { Call<op::Gemm>(y, o.x, Transpose(o.weight), with, false); }, o.flops,
          Bytes({o.x, o.weight, y})};
}

Measured ForwardGelu(const Layer& layer, Device device, bool fused) {
  const Operands o(layer, device);
  Tensor pre = Tensor::EmptyLike(o.grad), y = Tensor::EmptyLike(o.grad);
  const double bytes = Bytes({o.x, o.weight, pre, y});
  if (fused) {
    return {[=]() mutable { Call<op::GemmGelu>(y, pre, o.x, Transpose(o.weight), o.bias); },
            o.flops, bytes};
  }
  return {[=]() mutable {
            Call<op::Gemm>(pre, o.x, Transpose(o.weight), o.bias, false);
            Call<op::Gelu>(y, pre, true);
          },
          o.flops, bytes};
}

Measured InputGradient(const Layer& layer, Device device) {
  const Operands o(layer, device);
  Tensor dx = Tensor::EmptyLike(o.x);
  return {[=]() mutable { Call<op::Gemm>(dx, o.grad, o.weight, Tensor(), false); }, o.flops,
          Bytes({o.grad, o.weight, dx})};
}

Measured InputGradientGelu(const Layer& layer, Device device, bool fused) {
  const Operands o(layer, device);
  Tensor dx = Tensor::EmptyLike(o.x);
  const double bytes = Bytes({o.grad, o.weight, o.x, dx});
  if (fused) {
    Tensor sums = Tensor::Empty({dx.size(1)}, dx.dtype(), device);
    return {[=]() mutable { Call<op::GemmGeluBackward>(dx, sums, o.grad, o.weight, o.x); }, o.flops,
            bytes};
  }
  return {[=]() mutable {
            Call<op::Gemm>(dx, o.grad, o.weight, Tensor(), false);
            Call<op::GeluBackward>(dx, dx, o.x, true);
          },
          o.flops, bytes};
}

enum class BiasGradient { kNone, kFused, kApart };

Measured WeightGradient(const Layer& layer, Device device, bool accumulate, BiasGradient bias) {
  const Operands o(layer, device);
  Tensor dw = Tensor::Empty(o.weight.shape(), kFloat32, device);
  Call<op::Fill>(dw, 0.0);
  // Of the type that the layer's bias has in training.
  Tensor db = Tensor::Empty({layer.out}, kFloat32, device);
  const double bytes = Bytes({o.grad, o.x, dw}) + (accumulate ? Bytes({dw}) : 0);
  if (bias == BiasGradient::kFused) {
    return {[=]() mutable { Call<op::GemmRowSums>(dw, db, Transpose(o.grad), o.x, accumulate); },
            o.flops, bytes};
  }
  Tensor column = db.AsStrided({1, layer.out}, {layer.out, 1}, 0);
  return {[=]() mutable {
            Call<op::Gemm>(dw, Transpose(o.grad), o.x, Tensor(), accumulate);
            if (bias == BiasGradient::kApart) Call<op::Sum>(column, o.grad, Dims{0});
          },
          o.flops, bytes};
}

}  // namespace

void AppendGemmCases(std::vector<Case>& cases) {
  constexpr std::int64_t kTokens = 65536;
  // The head as the fused loss calls it, in chunks of tokens; a step in float32; a small one, where
  // what surrounds the products rules.
  constexpr Layer kLayers[] = {{"qkv", kTokens, 768, 2304},
                               {"proj", kTokens, 768, 768},
                               {"fc", kTokens, 768, 3072},
                               {"fcproj", kTokens, 3072, 768},
                               {"head", 8192, 768, 50304},
                               {"fc-float32", 8192, 768, 3072, kFloat32},
                               {"fcproj-float32", 8192, 3072, 768, kFloat32},
                               {"fc-small", 256, 768, 3072},
                               {"fcproj-small", 256, 3072, 768}};
  for (const Layer& layer : kLayers) {
    const auto add = [&](const char* op, std::function<Measured(Device)> make) {
      cases.push_back(
          {fmt::format("gemm/{}/{} {}x{}x{}", layer.name, op, layer.tokens, layer.in, layer.out),
           std::move(make)});
    };
    add("forward", [=](Device d) { return Forward(layer, d, false); });
    add("forward bias", [=](Device d) { return Forward(layer, d, true); });
    add("forward bias gelu fused", [=](Device d) { return ForwardGelu(layer, d, true); });
    add("forward bias gelu apart", [=](Device d) { return ForwardGelu(layer, d, false); });
    add("dgrad", [=](Device d) { return InputGradient(layer, d); });
    add("dgrad dgelu fused", [=](Device d) { return InputGradientGelu(layer, d, true); });
    add("dgrad dgelu apart", [=](Device d) { return InputGradientGelu(layer, d, false); });
    for (const bool accumulate : {false, true}) {
      const auto wgrad = [&](const char* op, BiasGradient bias) {
        add(fmt::format("wgrad{}{}", accumulate ? " accumulate" : "", op).c_str(),
            [=](Device d) { return WeightGradient(layer, d, accumulate, bias); });
      };
      wgrad("", BiasGradient::kNone);
      wgrad(" dbias fused", BiasGradient::kFused);
      wgrad(" dbias apart", BiasGradient::kApart);
    }
  }
}

}  // namespace infini_train::device_ops
