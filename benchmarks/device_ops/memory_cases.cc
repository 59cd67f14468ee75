// What a training step does besides its large products and attention, bounded by memory: at the
// shapes of GPT-2 124M with 65536 tokens in bfloat16 and of LLaMA 3.2 1B with 8192 tokens.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/device_ops/cases.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::device_ops {
namespace {

constexpr DataType kBFloat16 = DataType::kBFloat16;
constexpr DataType kFloat32 = DataType::kFloat32;
constexpr std::int64_t kTokens = 65536;
constexpr std::int64_t kHidden = 768;
constexpr std::int64_t kVocabulary = 50304;
constexpr std::int64_t kIgnoreIndex = -100;

/// The measure of the others: bytes read and written by a plain copy.
Measured CopyOf(DataType to, DataType from, Device device) {
  const Tensor x = Random({kTokens, 4 * kHidden}, from, device);
  Tensor out = Tensor::Empty(x.shape(), to, device);
  return {[=]() mutable { Call<op::Copy>(out, x); }, 0, Bytes({x, out})};
}

struct Norm {
  Norm(std::int64_t rows, std::int64_t hidden, Device device)
      : x(Random({rows, hidden}, kBFloat16, device)),
        residual(Random({rows, hidden}, kBFloat16, device)),
        sum(Random({rows, hidden}, kBFloat16, device)),
        out(Tensor::EmptyLike(x)),
        weight(Random({hidden}, kFloat32, device)),
        bias(Random({hidden}, kFloat32, device)),
        grad_weight(Tensor::EmptyLike(weight)),
        grad_bias(Tensor::EmptyLike(bias)),
        mean(Tensor::Empty({rows}, kFloat32, device)),
        rstd(Tensor::Empty({rows}, kFloat32, device)) {
    Call<op::Fill>(mean, 0.0);
    Call<op::Fill>(rstd, 50.0);
  }

  Tensor x, residual, sum, out, weight, bias, grad_weight, grad_bias, mean, rstd;
};

constexpr double kEps = 1e-5;

Measured LayerNorm(Device device) {
  Norm n(kTokens, kHidden, device);
  return {
      [=]() mutable { Call<op::LayerNorm>(n.out, n.mean, n.rstd, n.x, n.weight, n.bias, kEps); }, 0,
      Bytes({n.x, n.out})};
}
Measured LayerNormBackward(Device device) {
  Norm n(kTokens, kHidden, device);
  return {[=]() mutable {
            Call<op::LayerNormBackward>(n.out, n.grad_weight, n.grad_bias, n.residual, n.x,
                                        n.weight, n.mean, n.rstd);
          },
          0, Bytes({n.x, n.residual, n.out})};
}
Measured AddLayerNorm(Device device) {
  Norm n(kTokens, kHidden, device);
  return {[=]() mutable {
            Call<op::AddLayerNorm>(n.sum, n.out, n.mean, n.rstd, n.x, n.residual, n.weight, n.bias,
                                   kEps);
          },
          0, Bytes({n.x, n.residual, n.sum, n.out})};
}
Measured AddLayerNormBackward(std::int64_t rows, std::int64_t hidden, bool sums, Device device) {
  Norm n(rows, hidden, device);
  Tensor grad_x_sums = sums ? Tensor::Empty({hidden}, kBFloat16, device) : Tensor();
  return {[=]() mutable {
            Call<op::AddLayerNormBackward>(n.out, n.grad_weight, n.grad_bias, grad_x_sums,
                                           n.residual, n.x, n.sum, n.weight, n.mean, n.rstd);
          },
          0, Bytes({n.x, n.residual, n.sum, n.out})};
}
Measured AddRmsNorm(std::int64_t hidden, Device device) {
  Norm n(8192, hidden, device);
  return {[=]() mutable {
            Call<op::AddRmsNorm>(n.sum, n.out, n.rstd, n.x, n.residual, n.weight, kEps);
          },
          0, Bytes({n.x, n.residual, n.sum, n.out})};
}
Measured AddRmsNormBackward(std::int64_t hidden, Device device) {
  Norm n(8192, hidden, device);
  return {[=]() mutable {
            Call<op::AddRmsNormBackward>(n.out, n.grad_weight, n.residual, n.x, n.sum, n.weight,
                                         n.rstd);
          },
          0, Bytes({n.x, n.residual, n.sum, n.out})};
}

/// Three products, and each logit read and written once between them.
Measured LinearCrossEntropy(std::int64_t tokens, std::int64_t hidden, std::int64_t vocabulary,
                            Device device) {
  const Tensor x = Random({tokens, hidden}, kBFloat16, device);
  const Tensor weight = Random({vocabulary, hidden}, kBFloat16, device);
  const Tensor targets = Indices({tokens}, vocabulary, device);
  Tensor loss = Tensor::Empty({}, kFloat32, device);
  Tensor grad_x = Tensor::EmptyLike(x);
  Tensor grad_weight = Tensor::Empty(weight.shape(), kFloat32, device);
  const double products = static_cast<double>(tokens * vocabulary);
  return {[=]() mutable {
            Call<op::LinearCrossEntropy>(loss, grad_x, grad_weight, x, weight, targets,
                                         kIgnoreIndex, 1.0 / static_cast<double>(tokens));
          },
          6 * products * static_cast<double>(hidden), 4 * products};
}
Measured CrossEntropy(Device device) {
  const Tensor logits = Random({8192, kVocabulary}, kBFloat16, device);
  const Tensor targets = Indices({8192}, kVocabulary, device);
  Tensor losses = Tensor::Empty({8192}, kFloat32, device);
  Tensor lse = Tensor::EmptyLike(losses);
  return {[=]() mutable { Call<op::CrossEntropy>(losses, lse, logits, targets, kIgnoreIndex); }, 0,
          Bytes({logits})};
}

Measured Unary(std::int64_t rows, std::int64_t columns, std::int64_t out_columns, Device device,
               std::function<void(Tensor&, const Tensor&)> op) {
  const Tensor x = Random({rows, columns}, kBFloat16, device);
  Tensor out = Tensor::Empty({rows, out_columns}, kBFloat16, device);
  return {[=]() mutable { op(out, x); }, 0, Bytes({x, out})};
}
/// Of a gradient as large as x or half of it.
Measured Binary(std::int64_t rows, std::int64_t columns, std::int64_t grad_columns, Device device,
                std::function<void(Tensor&, const Tensor&, const Tensor&)> op) {
  const Tensor x = Random({rows, columns}, kBFloat16, device);
  const Tensor grad = Random({rows, grad_columns}, kBFloat16, device);
  Tensor out = Tensor::EmptyLike(x);
  return {[=]() mutable { op(out, grad, x); }, 0, Bytes({x, grad, out})};
}

Measured Rotary(Device device) {
  const Tensor x = Random({8, 32, 1024, 64}, kBFloat16, device);
  const Tensor cos = Random({1024, 32}, kFloat32, device);
  const Tensor sin = Random({1024, 32}, kFloat32, device);
  Tensor out = Tensor::EmptyLike(x);
  return {[=]() mutable { Call<op::Rotary>(out, x, cos, sin, false, false); }, 0, Bytes({x, out})};
}

Measured SwiGluBackward(bool with_out, Device device) {
  const Tensor x = Random({8192, 16384}, kBFloat16, device);
  const Tensor grad = Random({8192, 8192}, kBFloat16, device);
  Tensor grad_x = Tensor::EmptyLike(x);
  Tensor out = with_out ? Tensor::EmptyLike(grad) : Tensor();
  return {[=]() mutable { Call<op::SwiGluBackward>(grad_x, out, grad, x); }, 0,
          Bytes({x, grad, grad_x}) + (with_out ? Bytes({out}) : 0)};
}

/// Heads of a projection of 8 sequences of 1024 positions and their angles, as [B, H, T, D].
struct Projection {
  Projection(std::int64_t all_heads, std::int64_t heads, std::int64_t size, Device device)
      : memory(Random({8, 1024, all_heads * size}, kBFloat16, device)),
        heads(memory.AsStrided({8, heads, 1024, size},
                               {1024 * all_heads * size, size, all_heads * size, 1}, 0)),
        cos(Random({1024, size / 2}, kFloat32, device)),
        sin(Random({1024, size / 2}, kFloat32, device)),
        bytes(static_cast<double>(8 * heads * 1024 * size * 2)) {}

  Tensor memory, heads, cos, sin;
  double bytes;
};
Measured RotaryInProjection(Device device) {
  Projection p(48, 40, 64, device);
  return {[=]() mutable { Call<op::Rotary>(p.heads, p.heads, p.cos, p.sin, false, true); }, 0,
          2 * p.bytes};
}
Measured NormRotary(Device device) {
  const Projection p(32, 16, 128, device);
  Tensor out = Projection(24, 16, 128, device).heads;
  Tensor rstd = Tensor::Empty({8, 16, 1024}, kFloat32, device);
  const Tensor weight = Random({128}, kFloat32, device);
  return {[=]() mutable { Call<op::NormRotary>(out, rstd, p.heads, weight, p.cos, p.sin, 1e-6); },
          0, 2 * p.bytes};
}
Measured NormRotaryBackward(Device device) {
  const Projection p(32, 16, 128, device);
  Tensor grad = Projection(32, 16, 128, device).heads;
  Tensor rstd = Tensor::Empty({8, 16, 1024}, kFloat32, device);
  Call<op::Fill>(rstd, 1.0);
  const Tensor weight = Random({128}, kFloat32, device);
  Tensor grad_weight = Tensor::EmptyLike(weight);
  return {[=]() mutable {
            Call<op::NormRotaryBackward>(grad, grad_weight, grad, p.heads, weight, rstd, p.cos,
                                         p.sin);
          },
          0, 3 * p.bytes};
}
/// The gradient of a head shares the table: only the rows of ids are touched.
Measured LargeEmbeddingBackward(Device device) {
  Tensor grad_weight = Random({128256, 2048}, kFloat32, device);
  const Tensor ids = Indices({8192}, 128256, device);
  const Tensor grad = Random({8192, 2048}, kFloat32, device);
  return {[=]() mutable { Call<op::EmbeddingBackward>(grad_weight, grad, ids); }, 0,
          3 * Bytes({grad})};
}

Measured Embedding(Device device) {
  const Tensor weight = Random({kVocabulary, kHidden}, kFloat32, device);
  const Tensor ids = Indices({kTokens}, kVocabulary, device);
  Tensor out = Tensor::Empty({kTokens, kHidden}, kFloat32, device);
  return {[=]() mutable { Call<op::Embedding>(out, weight, ids); }, 0, 2 * Bytes({out})};
}
Measured EmbeddingBackward(DataType dtype, Device device) {
  Tensor grad_weight = Random({kVocabulary, kHidden}, kFloat32, device);
  const Tensor ids = Indices({kTokens}, kVocabulary, device);
  const Tensor grad = Random({kTokens, kHidden}, dtype, device);
  return {[=]() mutable { Call<op::EmbeddingBackward>(grad_weight, grad, ids); }, 0,
          Bytes({grad}) + 2 * Bytes({grad_weight})};
}

Measured Sum(const Dims& shape, const Dims& dims, DataType dtype, Device device) {
  const Tensor x = Random(shape, dtype, device);
  Dims kept = shape;
  for (const auto dim : dims)
    kept[static_cast<int>(dim)] = 1;
  Tensor out = Tensor::Empty(kept, dtype, device);
  return {[=]() mutable { Call<op::Sum>(out, x, dims); }, 0, Bytes({x, out})};
}

/// Tensors of the shapes of GPT-2 124M's parameters.
std::vector<Tensor> Gpt2Tensors(Device device) {
  std::vector<Tensor> tensors = {Random({kVocabulary, kHidden}, kFloat32, device),
                                 Random({1024, kHidden}, kFloat32, device)};
  for (int layer = 0; layer < 12; ++layer) {
    for (const std::int64_t width : {3, 1, 4, 4}) {
      tensors.push_back(Random({width * kHidden, kHidden}, kFloat32, device));
      tensors.push_back(Random({width * kHidden}, kFloat32, device));
    }
    for (int i = 0; i < 4; ++i)
      tensors.push_back(Random({kHidden}, kFloat32, device));
  }
  return tensors;
}
double TotalBytes(const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors)
    bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

Measured AdamW(Device device) {
  std::vector<Tensor> params = Gpt2Tensors(device), firsts = Gpt2Tensors(device);
  std::vector<Tensor> seconds = Gpt2Tensors(device), masters;
  const std::vector<Tensor> grads = Gpt2Tensors(device);
  for (Tensor& second : seconds)
    Call<op::Abs>(second, second);
  Tensor scalars = Tensor::Empty({4}, DataType::kFloat64, device);
  Call<op::Fill>(scalars, 1e-4);
  const double bytes = 7 * TotalBytes(params);
  return {[=]() mutable {
            Call<op::AdamW>(params, grads, firsts, seconds, masters, scalars, AdamWParams{});
          },
          0, bytes};
}
Measured GlobalNorm(Device device) {
  const std::vector<Tensor> grads = Gpt2Tensors(device);
  Tensor norm = Tensor::Empty({}, kFloat32, device);
  return {[=]() mutable { Call<op::GlobalNorm>(norm, grads); }, 0, TotalBytes(grads)};
}
Measured ScaleAll(Device device) {
  std::vector<Tensor> grads = Gpt2Tensors(device);
  Tensor factor = Tensor::Empty({}, kFloat32, device);
  Call<op::Fill>(factor, -1.0);
  const double bytes = 2 * TotalBytes(grads);
  return {[=]() mutable { Call<op::ScaleAll>(grads, factor); }, 0, bytes};
}

/// All parameters to bfloat16.
Measured CopyAll(Device device) {
  const std::vector<Tensor> params = Gpt2Tensors(device);
  std::vector<Tensor> copies;
  for (const Tensor& param : params)
    copies.push_back(Tensor::Empty(param.shape(), kBFloat16, device));
  const double bytes = 1.5 * TotalBytes(params);
  return {[=]() mutable { Call<op::CopyAll>(copies, params); }, 0, bytes};
}

}  // namespace

void AppendMemoryCases(std::vector<Case>& cases) {
  const auto add = [&](const char* name, std::function<Measured(Device)> make) {
    cases.push_back({fmt::format("memory/{}", name), std::move(make)});
  };
  add("copy bfloat16", [](Device d) { return CopyOf(kBFloat16, kBFloat16, d); });
  add("copy float32 to bfloat16", [](Device d) { return CopyOf(kBFloat16, kFloat32, d); });
  add("copy bfloat16 to float32", [](Device d) { return CopyOf(kFloat32, kBFloat16, d); });
  add("LayerNorm 65536x768", LayerNorm);
  add("LayerNormBackward 65536x768", LayerNormBackward);
  add("AddLayerNorm 65536x768", AddLayerNorm);
  add("AddLayerNormBackward 65536x768",
      [](Device d) { return AddLayerNormBackward(kTokens, kHidden, false, d); });
  for (const std::int64_t hidden : {768, 1024, 2048, 4096}) {
    const std::int64_t rows = hidden == kHidden ? kTokens : 16384;
    add(fmt::format("AddLayerNormBackward {}x{} with sums", rows, hidden).c_str(),
        [=](Device d) { return AddLayerNormBackward(rows, hidden, true, d); });
  }
  for (const std::int64_t hidden : {2048, 4096, 8192}) {
    add(fmt::format("AddRmsNorm 8192x{}", hidden).c_str(),
        [=](Device d) { return AddRmsNorm(hidden, d); });
    add(fmt::format("AddRmsNormBackward 8192x{}", hidden).c_str(),
        [=](Device d) { return AddRmsNormBackward(hidden, d); });
  }
  add("CrossEntropy 8192x50304", CrossEntropy);
  add("LinearCrossEntropy 65536x768x50304",
      [](Device d) { return LinearCrossEntropy(kTokens, kHidden, kVocabulary, d); });
  add("LinearCrossEntropy 8192x2048x128256",
      [](Device d) { return LinearCrossEntropy(8192, 2048, 128256, d); });
  add("Add 65536x768", [](Device d) {
    return Binary(kTokens, kHidden, kHidden, d,
                  [](Tensor& out, const Tensor& a, const Tensor& b) { Call<op::Add>(out, a, b); });
  });
  add("Gelu 65536x3072", [](Device d) {
    return Unary(kTokens, 4 * kHidden, 4 * kHidden, d,
                 [](Tensor& out, const Tensor& x) { Call<op::Gelu>(out, x, true); });
  });
  add("GeluBackward 65536x3072", [](Device d) {
    return Binary(kTokens, 4 * kHidden, 4 * kHidden, d,
                  [](Tensor& out, const Tensor& g, const Tensor& x) {
                    Call<op::GeluBackward>(out, g, x, true);
                  });
  });
  add("SwiGlu 8192x16384", [](Device d) {
    return Unary(8192, 16384, 8192, d,
                 [](Tensor& out, const Tensor& x) { Call<op::SwiGlu>(out, x); });
  });
  add("SwiGluBackward 8192x16384", [](Device d) { return SwiGluBackward(false, d); });
  add("SwiGluBackward 8192x16384 with SwiGlu", [](Device d) { return SwiGluBackward(true, d); });
  add("Dropout 65536x768", [](Device d) {
    return Unary(kTokens, kHidden, kHidden, d, [](Tensor& out, const Tensor& x) {
      Call<op::Dropout>(out, x, 0.1, Generator::State{.seed = 3});
    });
  });
  add("Rotary 8x32x1024x64", Rotary);
  add("Rotary of 40 of 48 heads 8x1024x64", RotaryInProjection);
  add("NormRotary of 16 of 32 heads 8x1024x128", NormRotary);
  add("NormRotaryBackward of 16 of 32 heads 8x1024x128", NormRotaryBackward);
  add("Embedding 65536 of 50304x768", Embedding);
  add("EmbeddingBackward 65536 of 50304x768",
      [](Device d) { return EmbeddingBackward(kFloat32, d); });
  add("EmbeddingBackward 8192 of 128256x2048", LargeEmbeddingBackward);
  add("EmbeddingBackward bfloat16 65536 of 50304x768",
      [](Device d) { return EmbeddingBackward(kBFloat16, d); });
  add("Sum of 64 of 1024x768", [](Device d) { return Sum({64, 1024 * 768}, {0}, kBFloat16, d); });
  add("Sum of 64 of 1024x768 float32", [](Device d) {
    return Sum({64, 1024 * 768}, {0}, kFloat32, d);
  });
  add("Sum of 65536 of 3072", [](Device d) { return Sum({kTokens, 3072}, {0}, kBFloat16, d); });
  add("AdamW GPT-2 124M", AdamW);
  add("GlobalNorm GPT-2 124M", GlobalNorm);
  add("ScaleAll GPT-2 124M", ScaleAll);
  add("CopyAll GPT-2 124M", CopyAll);
}

}  // namespace infini_train::device_ops
