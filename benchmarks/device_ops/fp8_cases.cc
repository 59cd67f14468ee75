// The FP8 ops of a GPT-2 124M step of 65536 tokens in bfloat16.

#include <fmt/format.h>

#include <utility>

#include "benchmarks/device_ops/cases.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::device_ops {
namespace {

constexpr std::int64_t kTokens = 65536;

Tensor Codes(const Dims& shape, Device device) {
  Tensor codes = Tensor::Empty(shape, DataType::kUInt8, device);
  Call<op::Fill>(codes, 0x38);
  return codes;
}

Tensor One(Device device) {
  Tensor scale = Tensor::Empty({2}, DataType::kFloat32, device);
  Call<op::Fill>(scale, 1);
  return scale;
}

enum class Numbers { kPlain, kGelu, kGeluBackward };

Measured Quantize(Numbers numbers, Fp8Format format, std::int64_t width, bool sums, Device device) {
  const Tensor x = Random({kTokens, width}, DataType::kBFloat16, device);
  Tensor out = Codes({kTokens, width}, device), transposed = Codes({width, kTokens}, device);
  Tensor amax = Tensor::Empty({}, DataType::kFloat32, device);
  Call<op::Fill>(amax, 0);
  Tensor column_sums = sums ? Tensor::Empty({width}, DataType::kFloat32, device) : Tensor();
  const Tensor scale = One(device);
  const double codes = 2.0 * static_cast<double>(out.nbytes());
  const auto bytes = static_cast<double>(x.nbytes());
  switch (numbers) {
    case Numbers::kPlain:
      return {[=]() mutable {
                Call<op::Fp8Quantize>(out, transposed, column_sums, amax, x, scale, format);
              },
              0, codes + bytes};
    case Numbers::kGelu:
      return {[=]() mutable {
                Call<op::Fp8QuantizeGelu>(out, transposed, amax, x, scale, format, true);
              },
              0, codes + bytes};
    case Numbers::kGeluBackward:
      break;
  }
  const Tensor grad = Random({kTokens, width}, DataType::kBFloat16, device);
  return {[=]() mutable {
            Call<op::Fp8QuantizeGeluBackward>(out, transposed, column_sums, amax, grad, x, scale,
                                              format, true);
          },
          0, codes + 2 * bytes};
}

/// LayerNorm of a sum.
Measured QuantizeNorm(std::int64_t rows, std::int64_t width, Device device) {
  const Tensor x = Random({rows, width}, DataType::kBFloat16, device);
  const Tensor residual = Random({rows, width}, DataType::kBFloat16, device);
  const Tensor weight = Random({width}, DataType::kFloat32, device);
  const Tensor bias = Random({width}, DataType::kFloat32, device);
  Tensor out = Codes({rows, width}, device), transposed = Codes({width, rows}, device);
  Tensor amax = Tensor::Empty({}, DataType::kFloat32, device);
  Call<op::Fill>(amax, 0);
  Tensor sum = Tensor::EmptyLike(x);
  Tensor mean = Tensor::Empty({rows}, DataType::kFloat32, device), rstd = Tensor::EmptyLike(mean);
  const Tensor scale = One(device);
  return {[=]() mutable {
            Call<op::Fp8QuantizeNorm>(out, transposed, amax, sum, mean, rstd, x, residual, weight,
                                      bias, scale, Fp8Format::kE4M3, 1e-5);
          },
          0, static_cast<double>(3 * x.nbytes() + 2 * out.nbytes())};
}

/// Three products, and each logit read and written in 8 bits between them, which are transposed.
Measured Head(std::int64_t tokens, std::int64_t width, std::int64_t vocabulary, Device device) {
  const Tensor x = Random({tokens, width}, DataType::kBFloat16, device);
  const Tensor weight = Random({vocabulary, width}, DataType::kBFloat16, device);
  const Tensor codes = Codes({width, vocabulary}, device);
  const Tensor targets = Indices({tokens}, vocabulary, device);
  Tensor loss = Tensor::Empty({}, DataType::kFloat32, device), amax = Tensor::EmptyLike(loss);
  Call<op::Fill>(amax, 0);
  Tensor grad_x = Tensor::EmptyLike(x);
  Tensor grad_weight = Tensor::Empty(weight.shape(), DataType::kFloat32, device);
  const Tensor scale = One(device);
  const double products = static_cast<double>(tokens * vocabulary);
  return {[=]() mutable {
            Call<op::Fp8LinearCrossEntropy>(loss, grad_x, grad_weight, amax, x, weight, targets,
                                            scale, codes, scale, -100,
                                            1.0 / static_cast<double>(tokens));
          },
          6 * products * static_cast<double>(width), 5 * products};
}

/// out [m, n] = a [m, k] @ b [n, k]^T.
Measured Gemm(std::int64_t m, std::int64_t n, std::int64_t k, DataType dtype, Fp8Format format,
              bool bias, bool accumulate, Device device) {
  const Tensor a = Codes({m, k}, device), b = Codes({n, k}, device);
  Tensor out = Tensor::Empty({m, n}, dtype, device);
  Call<op::Fill>(out, 0);
  const Tensor scale = One(device);
  const Tensor with = bias ? Random({n}, DataType::kBFloat16, device) : Tensor();
  return {[=]() mutable {
            Call<op::Fp8Gemm>(out, a, format, scale, b, Fp8Format::kE4M3, scale, with, accumulate);
          },
          2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          static_cast<double>(a.nbytes() + b.nbytes() + out.nbytes() * (accumulate ? 2 : 1))};
}

}  // namespace

void AppendFp8Cases(std::vector<Case>& cases) {
  using enum Fp8Format;
  const auto add = [&](std::string name, std::function<Measured(Device)> make) {
    cases.push_back({"fp8/" + std::move(name), std::move(make)});
  };
  for (const std::int64_t width : {768, 3072}) {
    const std::string shape = fmt::format("{}x{}", kTokens, width);
    add("quantize " + shape,
        [=](Device d) { return Quantize(Numbers::kPlain, kE4M3, width, false, d); });
    add("quantize dbias " + shape,
        [=](Device d) { return Quantize(Numbers::kPlain, kE5M2, width, true, d); });
  }
  add("quantize gelu 65536x3072",
      [](Device d) { return Quantize(Numbers::kGelu, kE4M3, 3072, false, d); });
  add("quantize dgelu dbias 65536x3072",
      [](Device d) { return Quantize(Numbers::kGeluBackward, kE5M2, 3072, true, d); });

  add("quantize AddLayerNorm 65536x768", [](Device d) { return QuantizeNorm(kTokens, 768, d); });
  add("quantize AddLayerNorm 16384x2048", [](Device d) { return QuantizeNorm(16384, 2048, d); });
  add("LinearCrossEntropy 65536x768x50304", [](Device d) { return Head(kTokens, 768, 50304, d); });

  struct Layer {
    const char* name;
    std::int64_t in, out;
  };
  for (const Layer layer : {Layer{"qkv", 768, 2304}, Layer{"proj", 768, 768},
                            Layer{"fc", 768, 3072}, Layer{"fcproj", 3072, 768}}) {
    const auto name = [&](const char* op) {
      return fmt::format("{}/{} {}x{}x{}", layer.name, op, kTokens, layer.in, layer.out);
    };
    const std::int64_t in = layer.in, out = layer.out;
    constexpr DataType kBFloat16 = DataType::kBFloat16, kFloat32 = DataType::kFloat32;
    add(name("forward bias"),
        [=](Device d) { return Gemm(kTokens, out, in, kBFloat16, kE4M3, true, false, d); });
    add(name("dgrad"),
        [=](Device d) { return Gemm(kTokens, in, out, kBFloat16, kE5M2, false, false, d); });
    add(name("wgrad"),
        [=](Device d) { return Gemm(out, in, kTokens, kFloat32, kE5M2, false, false, d); });
    add(name("wgrad accumulate"),
        [=](Device d) { return Gemm(out, in, kTokens, kFloat32, kE5M2, false, true, d); });
  }
}

}  // namespace infini_train::device_ops
