// Causal attention on views of packed heads, as training calls it: that of GPT-2 124M in bfloat16
// and in float32, and that of LLaMA 3.2 1B at two lengths and over packed samples. Gradients with
// sums of fixed order and without.

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "benchmarks/device_ops/cases.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::device_ops {
namespace {

struct Shape {
  std::int64_t batch, heads, kv_heads, length, head_size;
  DataType dtype = DataType::kBFloat16;
  std::int64_t samples = 1;  ///< equally long, that the length is divided among

  /// Of the causal half of two products.
  double Flops() const {
    return 2.0 * static_cast<double>(batch * heads * length * (length / samples) * head_size);
  }

  Tensor CumulativeLengths(Device device) const {
    if (samples == 1) return {};
    std::vector<std::int32_t> ends;
    for (std::int64_t i = 0; i <= samples; ++i)
      ends.push_back(static_cast<std::int32_t>(length * i / samples));
    const Tensor result = Tensor::Empty({samples + 1}, DataType::kInt32, device);
    result.CopyFromHost(ends.data(), ends.size() * sizeof(std::int32_t));
    return result;
  }
};

struct Heads {
  Tensor q, k, v;
};

/// Views on the heads of [B, T, (H + 2 K) D].
Heads Unpack(const Tensor& packed, const Shape& s) {
  const std::int64_t width = packed.size(2);
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    return packed.AsStrided({s.batch, count, s.length, s.head_size},
                            {s.length * width, s.head_size, width, 1}, first * s.head_size);
  };
  return {heads(0, s.heads), heads(s.heads, s.kv_heads), heads(s.heads + s.kv_heads, s.kv_heads)};
}

struct Operands {
  Operands(const Shape& s, Device device)
      : packed(
            Random({s.batch, s.length, (s.heads + 2 * s.kv_heads) * s.head_size}, s.dtype, device)),
        in(Unpack(packed, s)),
        out(Merged(s, device)),
        lse(Tensor::Empty({s.batch, s.heads, s.length}, DataType::kFloat32, device)),
        lengths(s.CumulativeLengths(device)) {
    params.scale = 1 / std::sqrt(static_cast<double>(s.head_size));
  }

  /// [B, H, T, D] stored as [B, T, H, D].
  static Tensor Merged(const Shape& s, Device device) {
    return Random({s.batch, s.length, s.heads, s.head_size}, s.dtype, device)
        .AsStrided({s.batch, s.heads, s.length, s.head_size},
                   {s.length * s.heads * s.head_size, s.head_size, s.heads * s.head_size, 1}, 0);
  }

  void Forward() { Call<op::Attention>(out, lse, in.q, in.k, in.v, lengths, params); }

  Tensor packed;
  Heads in;
  Tensor out, lse, lengths;
  AttentionParams params;
};

Measured Forward(const Shape& shape, Device device) {
  Operands o(shape, device);
  const auto bytes = static_cast<double>(o.packed.nbytes() + o.out.nbytes() + o.lse.nbytes());
  return {[=]() mutable { o.Forward(); }, shape.Flops(), bytes};
}

Measured Backward(const Shape& shape, Device device, bool deterministic) {
  Operands o(shape, device);
  o.Forward();
  const Tensor grad_out = Operands::Merged(shape, device);
  const Tensor grad_packed = Tensor::EmptyLike(o.packed);
  Heads grads = Unpack(grad_packed, shape);
  const auto bytes = static_cast<double>(2 * (o.packed.nbytes() + o.out.nbytes()) + o.lse.nbytes());
  return {[=]() mutable {
            const bool before = IsDeterministic();
            SetDeterministic(deterministic);
            Call<op::AttentionBackward>(grads.q, grads.k, grads.v, grad_out, o.out, o.lse, o.in.q,
                                        o.in.k, o.in.v, o.lengths, o.params);
            SetDeterministic(before);
          },
          2.5 * shape.Flops(), bytes};
}

}  // namespace

void AppendAttentionCases(std::vector<Case>& cases) {
  for (const Shape& shape :
       {Shape{64, 12, 12, 1024, 64}, Shape{8, 12, 12, 1024, 64, DataType::kFloat32},
        Shape{8, 32, 8, 1024, 64}, Shape{2, 32, 8, 8192, 64},
        Shape{1, 32, 8, 8192, 64, DataType::kBFloat16, 16}}) {
    const auto add = [&](const char* op, std::function<Measured(Device)> make) {
      cases.push_back(
          {fmt::format("attention/{} {} {}x{}({})x{}x{}{}", op, ToString(shape.dtype), shape.batch,
                       shape.heads, shape.kv_heads, shape.length, shape.head_size,
                       shape.samples > 1 ? fmt::format(" of {} samples", shape.samples) : ""),
           std::move(make)});
    };
    add("forward", [=](Device d) { return Forward(shape, d); });
    add("backward", [=](Device d) { return Backward(shape, d, true); });
    add("backward any order", [=](Device d) { return Backward(shape, d, false); });
  }
}

}  // namespace infini_train::device_ops
