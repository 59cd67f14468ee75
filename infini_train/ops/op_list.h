#pragma once

/// The declaration of every op, once: OP(Name, sentence, parameters...).
///
/// The list drives dispatch (dispatch.h), the CPU fallback, the conformance report and the docs. A
/// kernel of op Name is a function `void(const KernelContext&, parameters...)`.
///
/// Conventions. Outputs come first and are `Tensor&` (written; allocated by the caller with the
/// right shape and dtype); inputs are `const Tensor&`. "any strides" means that a kernel must take
/// every layout including stride 0 (broadcast inputs are expanded to the output's shape by the
/// caller); "contiguous" means that callers pass row-major tensors. Zero-size tensors are legal.
/// All tensors are on one device; unless said otherwise all have one dtype. An optional tensor may
/// be undefined. Statistics ("stat") are float32, or float64 where the data is float64. Sums run in
/// float32 or wider, in a fixed order: the same inputs give the same bits.
#define INFINI_TRAIN_OP_LIST(OP) \
  INFINI_TRAIN_MEMORY_OPS(OP)    \
  INFINI_TRAIN_UNARY_OPS(OP)     \
  INFINI_TRAIN_BINARY_OPS(OP)    \
  INFINI_TRAIN_REDUCTION_OPS(OP) \
  INFINI_TRAIN_INDEX_OPS(OP)     \
  INFINI_TRAIN_RANDOM_OPS(OP)    \
  INFINI_TRAIN_MATMUL_OPS(OP)    \
  INFINI_TRAIN_FP8_OPS(OP)       \
  INFINI_TRAIN_NORM_OPS(OP)      \
  INFINI_TRAIN_SEQUENCE_OPS(OP)  \
  INFINI_TRAIN_EXPERT_OPS(OP)    \
  INFINI_TRAIN_OPTIMIZER_OPS(OP) \
  INFINI_TRAIN_DECODE_OPS(OP)

// clang-format off

// Any dtype, any strides.
#define INFINI_TRAIN_MEMORY_OPS(OP)                                                                \
  OP(Fill, "Sets every element to a number.", Tensor& out, Scalar value)                           \
  OP(Copy, "Copies elements, converting between any two dtypes.", Tensor& out, const Tensor& x)    \
  OP(CopyAll, "Copies every tensor of xs to that of outs at its place, converting between "        \
     "floating dtypes. Contiguous.",                                                               \
     MutableTensorList outs, TensorList xs)                                                        \
  OP(Arange, "out[i] = start + i * step for a 1-D contiguous out.",                                \
     Tensor& out, Scalar start, Scalar step)

// Floating dtypes (Neg, Abs and Square: signed integers too), any strides unless said otherwise.
#define INFINI_TRAIN_UNARY_OPS(OP)                                                                 \
  OP(Neg, "out = -x", Tensor& out, const Tensor& x)                                                \
  OP(Abs, "out = |x|", Tensor& out, const Tensor& x)                                               \
  OP(Square, "out = x * x", Tensor& out, const Tensor& x)                                          \
  OP(Exp, "out = e^x", Tensor& out, const Tensor& x)                                               \
  OP(Log, "out = ln x", Tensor& out, const Tensor& x)                                              \
  OP(Sqrt, "out = sqrt(x)", Tensor& out, const Tensor& x)                                          \
  OP(Rsqrt, "out = 1 / sqrt(x)", Tensor& out, const Tensor& x)                                     \
  OP(Reciprocal, "out = 1 / x", Tensor& out, const Tensor& x)                                      \
  OP(Sin, "out = sin x", Tensor& out, const Tensor& x)                                             \
  OP(Cos, "out = cos x", Tensor& out, const Tensor& x)                                             \
  OP(Tanh, "out = tanh x", Tensor& out, const Tensor& x)                                           \
  OP(Sigmoid, "out = 1 / (1 + e^-x)", Tensor& out, const Tensor& x)                                \
  OP(Silu, "out = x * sigmoid(x)", Tensor& out, const Tensor& x)                                   \
  OP(Gelu, "GELU, by the tanh approximation or the exact erf form; finite for every finite x.",    \
     Tensor& out, const Tensor& x, bool tanh_approximation)                                        \
  OP(LogicalNot, "out = !x, both bool", Tensor& out, const Tensor& x)                              \
  OP(TanhBackward, "grad_x = grad_y * (1 - y^2)",                                                  \
     Tensor& grad_x, const Tensor& grad_y, const Tensor& y)                                        \
  OP(SigmoidBackward, "grad_x = grad_y * y * (1 - y)",                                             \
     Tensor& grad_x, const Tensor& grad_y, const Tensor& y)                                        \
  OP(SiluBackward, "Gradient of Silu.", Tensor& grad_x, const Tensor& grad_y, const Tensor& x)     \
  OP(GeluBackward, "Gradient of Gelu; finite where tanh and erf have saturated.",                  \
     Tensor& grad_x, const Tensor& grad_y, const Tensor& x, bool tanh_approximation)               \
  OP(SwiGlu, "Packed SwiGLU on contiguous rows: x [rows, 2F] = [gate | up], out [rows, F] = "      \
     "silu(gate) * up.",                                                                           \
     Tensor& out, const Tensor& x)                                                                 \
  OP(SwiGluBackward,                                                                               \
     "Gradient of SwiGlu: grad_x [rows, 2F], contiguous; out (optional) = SwiGlu of x again.",     \
     Tensor& grad_x, Tensor& out, const Tensor& grad_y, const Tensor& x)

// Any strides; out, a and b have one shape. Arithmetic: every dtype but bool. Div, Pow and their
// scalar forms: floating. Comparisons: out is bool.
#define INFINI_TRAIN_BINARY_OPS(OP)                                                                \
  OP(Add, "out = a + b", Tensor& out, const Tensor& a, const Tensor& b)                            \
  OP(Sub, "out = a - b", Tensor& out, const Tensor& a, const Tensor& b)                            \
  OP(Mul, "out = a * b", Tensor& out, const Tensor& a, const Tensor& b)                            \
  OP(Div, "out = a / b", Tensor& out, const Tensor& a, const Tensor& b)                            \
  OP(Pow, "out = a^b", Tensor& out, const Tensor& a, const Tensor& b)                              \
  OP(Maximum, "out = max(a, b); NaN if either is", Tensor& out, const Tensor& a, const Tensor& b)  \
  OP(Minimum, "out = min(a, b); NaN if either is", Tensor& out, const Tensor& a, const Tensor& b)  \
  OP(AddScalar, "out = x + value", Tensor& out, const Tensor& x, Scalar value)                     \
  OP(MulScalar, "out = x * value", Tensor& out, const Tensor& x, Scalar value)                     \
  OP(DivScalar, "out = x / value", Tensor& out, const Tensor& x, Scalar value)                     \
  OP(PowScalar, "out = x^value", Tensor& out, const Tensor& x, Scalar value)                       \
  OP(RsubScalar, "out = value - x", Tensor& out, const Tensor& x, Scalar value)                    \
  OP(RdivScalar, "out = value / x", Tensor& out, const Tensor& x, Scalar value)                    \
  OP(Clamp, "out = min(max(x, low), high)", Tensor& out, const Tensor& x, Scalar low, Scalar high) \
  OP(AddScaled, "out += x * factor, in place.", Tensor& out, const Tensor& x, Scalar factor)       \
  OP(Eq, "out = a == b", Tensor& out, const Tensor& a, const Tensor& b)                            \
  OP(Ne, "out = a != b", Tensor& out, const Tensor& a, const Tensor& b)                            \
  OP(Lt, "out = a < b", Tensor& out, const Tensor& a, const Tensor& b)                             \
  OP(Le, "out = a <= b", Tensor& out, const Tensor& a, const Tensor& b)                            \
  OP(Gt, "out = a > b", Tensor& out, const Tensor& a, const Tensor& b)                             \
  OP(Ge, "out = a >= b", Tensor& out, const Tensor& a, const Tensor& b)                            \
  OP(LogicalAnd, "out = a && b, all bool", Tensor& out, const Tensor& a, const Tensor& b)          \
  OP(LogicalOr, "out = a || b, all bool", Tensor& out, const Tensor& a, const Tensor& b)           \
  OP(Where, "out = condition ? a : b, condition bool; any dtype",                                  \
     Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b)                       \
  OP(MaskedFill, "out = mask ? value : x, mask bool; any dtype",                                   \
     Tensor& out, const Tensor& x, const Tensor& mask, Scalar value)

// x with any strides. `dims` are distinct and not negative; out keeps them with extent 1.
#define INFINI_TRAIN_REDUCTION_OPS(OP)                                                             \
  OP(Sum, "Sum over dims; floating dtypes, int64 and int32. An empty sum is 0. Sums of the half "  \
     "types may be float32.",                                                                      \
     Tensor& out, const Tensor& x, const Dims& dims)                                               \
  OP(Mean, "Mean over dims; floating dtypes. An empty mean is NaN.",                               \
     Tensor& out, const Tensor& x, const Dims& dims)                                               \
  OP(Max, "Largest element over dims, NaN if any is; every dtype. dims hold elements.",            \
     Tensor& out, const Tensor& x, const Dims& dims)                                               \
  OP(Min, "Smallest element over dims, NaN if any is; every dtype. dims hold elements.",           \
     Tensor& out, const Tensor& x, const Dims& dims)                                               \
  OP(ArgMax, "int64 position of the first largest element (or first NaN) along dim; out keeps "    \
     "the dim with extent 1.",                                                                     \
     Tensor& out, const Tensor& x, int dim)                                                        \
  OP(ArgMin, "int64 position of the first smallest element (or first NaN) along dim; out keeps "   \
     "the dim with extent 1.",                                                                     \
     Tensor& out, const Tensor& x, int dim)                                                        \
  OP(CumSum, "Inclusive running sum along dim; floating dtypes, int64 and int32.",                 \
     Tensor& out, const Tensor& x, int dim)                                                        \
  OP(Softmax, "Softmax over the last dimension of a contiguous tensor; a row of -inf only gives "  \
     "zeros.",                                                                                     \
     Tensor& out, const Tensor& x)                                                                 \
  OP(SoftmaxBackward, "grad_x = y * (grad_y - sum(grad_y * y)), contiguous.",                      \
     Tensor& grad_x, const Tensor& grad_y, const Tensor& y)                                        \
  OP(LogSoftmax, "Log-softmax over the last dimension of a contiguous tensor.",                    \
     Tensor& out, const Tensor& x)                                                                 \
  OP(LogSoftmaxBackward, "grad_x = grad_y - e^y * sum(grad_y), contiguous.",                       \
     Tensor& grad_x, const Tensor& grad_y, const Tensor& y)

// Indices are int64 or int32, checked: one outside its range is an Error that names it where the
// device can tell at once (the CPU), and is never used as an address anywhere. Data: any dtype, any
// strides; the adding ones floating, int64 or int32. Adding runs in a fixed order.
#define INFINI_TRAIN_INDEX_OPS(OP)                                                                 \
  OP(Gather, "out[.., i, ..] = x[.., index[.., i, ..], ..] along dim; out has index's shape.",     \
     Tensor& out, const Tensor& x, const Tensor& index, int dim)                                   \
  OP(Scatter, "out[.., index[.., i, ..], ..] = src[.., i, ..] along dim, in place; src has "       \
     "index's shape; the last write wins.",                                                        \
     Tensor& out, const Tensor& index, const Tensor& src, int dim)                                 \
  OP(ScatterAdd, "out[.., index[.., i, ..], ..] += src[.., i, ..] along dim, in place.",           \
     Tensor& out, const Tensor& index, const Tensor& src, int dim)                                 \
  OP(IndexSelect, "out = the slices of x along dim that the 1-D index names.",                     \
     Tensor& out, const Tensor& x, const Tensor& index, int dim)                                   \
  OP(IndexAdd, "Adds the slices of src along dim to the slices of out that the 1-D index names, "  \
     "in place.",                                                                                  \
     Tensor& out, const Tensor& index, const Tensor& src, int dim)                                 \
  OP(Embedding, "out [.., hidden] = weight [vocab, hidden] row ids [..]; contiguous, floating.",   \
     Tensor& out, const Tensor& weight, const Tensor& ids)                                         \
  OP(EmbeddingBackward, "Adds grad_y [.., hidden] to the rows ids [..] of grad_weight [vocab, "    \
     "hidden], in place; contiguous; grad_weight may be wider than grad_y.",                       \
     Tensor& grad_weight, const Tensor& grad_y, const Tensor& ids)                                 \
  OP(Sort, "Stable sort along the last dimension, with int64 positions; NaN is largest. "          \
     "Contiguous.",                                                                                \
     Tensor& values, Tensor& indices, const Tensor& x, bool descending)                            \
  OP(TopK, "The k = values.size(-1) largest (or smallest) elements of the last dimension, "        \
     "sorted, with int64 positions; equal elements in order of position; NaN is largest. "         \
     "Contiguous.",                                                                                \
     Tensor& values, Tensor& indices, const Tensor& x, bool largest)

// Contiguous; floating dtypes unless said otherwise. Element i uses word i % 4 of Philox block
// i / 4 (core/philox.h).
#define INFINI_TRAIN_RANDOM_OPS(OP)                                                                \
  OP(RandomUniform, "Uniform in [low, high).",                                                     \
     Tensor& out, double low, double high, Generator::State state)                                 \
  OP(RandomNormal, "Normal with mean and standard deviation (Box-Muller on word pairs).",          \
     Tensor& out, double mean, double stddev, Generator::State state)                              \
  OP(RandomInt, "Uniform integers in [low, high); int64 or int32.",                                \
     Tensor& out, std::int64_t low, std::int64_t high, Generator::State state)                     \
  OP(Dropout, "out = uniform < p ? 0 : x / (1 - p). Its gradient is itself on grad_y.",            \
     Tensor& out, const Tensor& x, double p, Generator::State state)

#define INFINI_TRAIN_MATMUL_OPS(OP)                                                                \
  OP(Gemm,                                                                                         \
     "out [batch.., M, N] = a [batch.., M, K] @ b [batch.., K, N] + bias [N] (optional), plus "    \
     "the former out where accumulate. In the last two dims of a, b and out one stride is 1 and "  \
     "the other at least the extent; batch strides are free (0 for a shared operand). a, b and "   \
     "bias: one floating dtype; out: the same or float32. K = 0 gives bias or 0. Products are "    \
     "summed in float32 or wider.",                                                                \
     Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias, bool accumulate)           \
  OP(GemmGelu,                                                                                     \
     "pre [M, N] = a [M, K] @ b [K, N] + bias [N] (optional), out [M, N] = gelu(pre) by the tanh " \
     "approximation. Layouts as Gemm's; out and pre contiguous; one floating dtype.",              \
     Tensor& out, Tensor& pre, const Tensor& a, const Tensor& b, const Tensor& bias)               \
  OP(GemmGeluBackward,                                                                             \
     "out [M, N] = (a [M, K] @ b [K, N]) * gelu'(pre [M, N]), of the tanh approximation, and "     \
     "column_sums [N] (optional; out's dtype) = sums of out's columns: the gradients of what GELU "\
     "was applied to and of its bias. Layouts as Gemm's; out and pre contiguous; one floating "    \
     "dtype.",                                                                                     \
     Tensor& out, Tensor& column_sums, const Tensor& a, const Tensor& b, const Tensor& pre)        \
  OP(GemmRowSums,                                                                                  \
     "out = a [M, K] @ b [K, N], plus the former out where accumulate, and row_sums [M] = sums "   \
     "of a's rows: a weight's gradient with the bias's. Layouts and dtypes as Gemm's; row_sums: "  \
     "a's dtype or float32.",                                                                      \
     Tensor& out, Tensor& row_sums, const Tensor& a, const Tensor& b, bool accumulate)

// FP8 with per-tensor scaling. A scale is float32 [2]: the inverse of a power of two from 2^-100 to
// 2^100, and that power, which the numbers are multiplied by; libraries read the inverse where it
// lies, at a multiple of 16 bytes. Contiguous but for rows of scales. The numbers that are
// quantised are of a floating dtype; out [M, K] and transposed [K, M] (uint8) get their product
// with the scale, rounded to even to the format, larger ones to its largest, NaN kept; amax
// (float32 []) becomes the larger of amax and their magnitudes, NaN if one is; column_sums [K]
// (their dtype or float32) gets the sums of the columns. Each of these outputs is optional.
#define INFINI_TRAIN_FP8_OPS(OP)                                                                   \
  OP(Fp8Quantize, "Quantises x [M, K].",                                                           \
     Tensor& out, Tensor& transposed, Tensor& column_sums, Tensor& amax, const Tensor& x,          \
     const Tensor& scale, Fp8Format format)                                                        \
  OP(Fp8QuantizeGelu, "Quantises Gelu of x [M, K].",                                               \
     Tensor& out, Tensor& transposed, Tensor& amax, const Tensor& x, const Tensor& scale,          \
     Fp8Format format, bool tanh_approximation)                                                    \
  OP(Fp8QuantizeGeluBackward, "Quantises GeluBackward of grad_y and x [M, K].",                    \
     Tensor& out, Tensor& transposed, Tensor& column_sums, Tensor& amax, const Tensor& grad_y,     \
     const Tensor& x, const Tensor& scale, Fp8Format format, bool tanh_approximation)              \
  OP(Fp8QuantizeNorm,                                                                              \
     "Quantises a norm [M, K]: LayerNorm where mean is defined, else RmsNorm, which has no bias; " \
     "of sum = x + residual where these two are defined, else of x. The rest is as of the norms.", \
     Tensor& out, Tensor& transposed, Tensor& amax, Tensor& sum, Tensor& mean, Tensor& rstd,       \
     const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,            \
     const Tensor& scale, Fp8Format format, double eps)                                            \
  OP(Fp8Gemm,                                                                                      \
     "out [M, N] = (a [M, K] @ b [N, K]^T) divided by both scales + bias [N] (optional), plus the "\
     "former out where accumulate. a, b: uint8 of their formats; out: bfloat16 or float32; bias: " \
     "bfloat16. A sum may keep as few as 13 bits, as tensor cores do.",                            \
     Tensor& out, const Tensor& a, Fp8Format a_format, const Tensor& a_scale, const Tensor& b,     \
     Fp8Format b_format, const Tensor& b_scale, const Tensor& bias, bool accumulate)               \
  OP(Fp8LinearCrossEntropy,                                                                        \
     "LinearCrossEntropy of float32 or bfloat16 whose gradients come from products in FP8: of the "\
     "gradient of the logits in E5M2, by a scale that follows from its bound |scale|, with hidden "\
     "in E4M3 by hidden_scale, and with weight_codes [C, V], the transposed weight in E4M3 by "    \
     "weight_scale. amax: of hidden where grad_weight is defined; ignored rows count as 0 there.", \
     Tensor& loss, Tensor& grad_hidden, Tensor& grad_weight, Tensor& amax, const Tensor& hidden,   \
     const Tensor& weight, const Tensor& targets, const Tensor& hidden_scale,                      \
     const Tensor& weight_codes, const Tensor& weight_scale, std::int64_t ignore_index,            \
     double scale)                                                                                 \
  OP(Fp8UpdateScales,                                                                              \
     "Delayed scaling: each row of history [T, H] moves by one and takes amax [T] (0 where that "  \
     "is not finite), which becomes 0; row t of scales [T, 2] becomes the scale of the largest "   \
     "power of two that brings 2 max of the row to at most largest [T], and stays where the max "  \
     "is 0. All float32.",                                                                         \
     Tensor& scales, Tensor& amax, Tensor& history, const Tensor& largest)

// x, out, grads: [rows, hidden] contiguous. weight, bias [hidden] of x's dtype or float32;
// grad_weight, grad_bias of weight's dtype, overwritten. mean, rstd: stat [rows].
#define INFINI_TRAIN_NORM_OPS(OP)                                                                  \
  OP(LayerNorm, "out = (x - mean) * rstd * weight + bias, biased variance, rstd = (var + "         \
     "eps)^-1/2; weight and bias optional.",                                                       \
     Tensor& out, Tensor& mean, Tensor& rstd, const Tensor& x, const Tensor& weight,               \
     const Tensor& bias, double eps)                                                               \
  OP(LayerNormBackward, "Gradients of LayerNorm; grad_weight and grad_bias optional.",             \
     Tensor& grad_x, Tensor& grad_weight, Tensor& grad_bias, const Tensor& grad_y,                 \
     const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd)                \
  OP(RmsNorm, "out = x * rstd * weight, rstd = (mean(x^2) + eps)^-1/2; weight optional.",          \
     Tensor& out, Tensor& rstd, const Tensor& x, const Tensor& weight, double eps)                 \
  OP(RmsNormBackward, "Gradients of RmsNorm; grad_weight optional.",                               \
     Tensor& grad_x, Tensor& grad_weight, const Tensor& grad_y, const Tensor& x,                   \
     const Tensor& weight, const Tensor& rstd)                                                     \
  OP(AddLayerNorm, "sum = x + residual, out = LayerNorm of sum.",                                  \
     Tensor& sum, Tensor& out, Tensor& mean, Tensor& rstd, const Tensor& x,                        \
     const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps)                 \
  OP(AddLayerNormBackward,                                                                         \
     "grad_x = gradient of x (and of residual) = grad_sum + the gradient through the norm of "     \
     "sum; grad_weight and grad_bias optional; grad_x_sums [hidden] (optional; grad_x's dtype or " \
     "float32) = sums of grad_x's columns, taken before grad_x is rounded: the gradient of a bias "\
     "that was added to x.",                                                                       \
     Tensor& grad_x, Tensor& grad_weight, Tensor& grad_bias, Tensor& grad_x_sums,                  \
     const Tensor& grad_y, const Tensor& grad_sum, const Tensor& sum, const Tensor& weight,        \
     const Tensor& mean, const Tensor& rstd)                                                       \
  OP(AddRmsNorm, "sum = x + residual, out = RmsNorm of sum.",                                      \
     Tensor& sum, Tensor& out, Tensor& rstd, const Tensor& x, const Tensor& residual,              \
     const Tensor& weight, double eps)                                                             \
  OP(AddRmsNormBackward,                                                                           \
     "grad_x = gradient of x (and of residual) = grad_sum + the gradient through the norm of "     \
     "sum; grad_weight optional.",                                                                 \
     Tensor& grad_x, Tensor& grad_weight, const Tensor& grad_y, const Tensor& grad_sum,            \
     const Tensor& sum, const Tensor& weight, const Tensor& rstd)

// B batch, H query heads, K key/value heads (K divides H; query head h uses head h / (H / K)), T
// queries, S keys, D head size, N tokens, V vocabulary, C hidden size.
#define INFINI_TRAIN_SEQUENCE_OPS(OP)                                                              \
  OP(Rotary,                                                                                       \
     "Rotates pairs of x [B, H, T, D] by the angles of cos, sin [T, D/2] (stat), backwards where " \
     "inverse: pair j is elements (j, j + D/2), or (2j, 2j + 1) where interleaved. x and out: "    \
     "last stride 1.",                                                                             \
     Tensor& out, const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved,         \
     bool inverse)                                                                                 \
  OP(NormRotary,                                                                                   \
     "Rotary, forwards and not interleaved, of RmsNorm over the last dimension of x [B, H, T, D] " \
     "with weight [D] (x's dtype or float32). rstd: stat [B, H, T], contiguous. x and out: last "  \
     "stride 1.",                                                                                  \
     Tensor& out, Tensor& rstd, const Tensor& x, const Tensor& weight, const Tensor& cos,          \
     const Tensor& sin, double eps)                                                                \
  OP(NormRotaryBackward,                                                                           \
     "Gradients of NormRotary, overwritten; grad_x may be grad_y itself; grad_weight (of weight's "\
     "dtype) optional.",                                                                           \
     Tensor& grad_x, Tensor& grad_weight, const Tensor& grad_y, const Tensor& x,                   \
     const Tensor& weight, const Tensor& rstd, const Tensor& cos, const Tensor& sin)               \
  OP(Attention,                                                                                    \
     "out [B, H, T, D] = softmax(scale * q k^T + mask) v, q [B, H, T, D], k, v [B, K, S, D], "     \
     "last stride 1. lse: stat [B, H, T], natural log of the sum of exponentials. A query "        \
     "without a key gives 0 and lse -inf. Optional cumulative_lengths c, contiguous int32 "        \
     "[N + 1], with B = 1 and T = S: the positions hold N samples, i from c[i] to c[i + 1], of "   \
     "which each sees its own keys alone; those from c[N] on see none. c[0] is 0 and c does not "  \
     "decrease: otherwise the CPU throws Error, and a device computes something else.",            \
     Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,                  \
     const Tensor& cumulative_lengths, const AttentionParams& params)                              \
  OP(AttentionBackward, "Gradients of Attention, overwritten; last stride 1.",                     \
     Tensor& grad_q, Tensor& grad_k, Tensor& grad_v, const Tensor& grad_out, const Tensor& out,    \
     const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,                         \
     const Tensor& cumulative_lengths, const AttentionParams& params)                              \
  OP(CrossEntropy,                                                                                 \
     "losses (stat [N]) = lse - logits[target] over contiguous logits [N, V], 0 where target "     \
     "(int64 or int32 [N]) is ignore_index; lse: stat [N]. A target outside [0, V) that is not "   \
     "ignore_index is an Error.",                                                                  \
     Tensor& losses, Tensor& lse, const Tensor& logits, const Tensor& targets,                     \
     std::int64_t ignore_index)                                                                    \
  OP(CrossEntropyBackward,                                                                         \
     "grad_logits = (softmax - one_hot) * grad_losses (stat [N], any stride), exact 0 where "      \
     "ignored. grad_logits may be logits itself.",                                                 \
     Tensor& grad_logits, const Tensor& grad_losses, const Tensor& logits, const Tensor& lse,      \
     const Tensor& targets, std::int64_t ignore_index)                                             \
  OP(VocabParallelCrossEntropy,                                                                    \
     "One shard's part of a cross-entropy over a vocabulary that is split across devices: lse "    \
     "(stat [N]) over the shard's contiguous logits [N, V] alone; target_logits (stat [N]) = "     \
     "logits[target - vocab_start], 0 where the target is in another shard or ignore_index.",      \
     Tensor& target_logits, Tensor& lse, const Tensor& logits, const Tensor& targets,              \
     std::int64_t vocab_start, std::int64_t ignore_index)                                          \
  OP(VocabParallelCrossEntropyBackward,                                                            \
     "As CrossEntropyBackward for one shard; lse is that of the whole vocabulary.",                \
     Tensor& grad_logits, const Tensor& grad_losses, const Tensor& logits, const Tensor& lse,      \
     const Tensor& targets, std::int64_t vocab_start, std::int64_t ignore_index)                   \
  OP(MeanOverTargets,                                                                              \
     "inverse_count (stat []) = 1 / max(1, number of targets that are not ignore_index); loss "    \
     "(stat []) = sum of losses * inverse_count, accumulated in float64.",                         \
     Tensor& loss, Tensor& inverse_count, const Tensor& losses, const Tensor& targets,             \
     std::int64_t ignore_index)                                                                    \
  OP(LinearCrossEntropy,                                                                           \
     "loss (stat []) = scale * sum of cross-entropies of hidden [N, C] @ weight [V, C]^T against " \
     "targets [N], without holding all logits at once. Where grad_hidden [N, C] and grad_weight "  \
     "[V, C] are defined they get d loss / d hidden and d loss / d weight; grad_weight may be "    \
     "float32 beside lower-precision inputs.",                                                     \
     Tensor& loss, Tensor& grad_hidden, Tensor& grad_weight, const Tensor& hidden,                 \
     const Tensor& weight, const Tensor& targets, std::int64_t ignore_index, double scale)

// Mixture of experts: N tokens of C values, each sent to k of E experts. rows (int64 [N, k]) is the
// place of each (token, choice) among the N k rows sorted by expert. Contiguous; floating dtypes.
// An expert outside [0, E) is an Error where the device can tell at once, and has row -1 elsewhere;
// row -1 is skipped.
//
// Grouped products: R rows in E groups that follow each other, of counts (int64 [E], contiguous)
// rows each; rows behind the last group are in none. Layouts and dtypes as Gemm's. A negative count,
// or more than R rows together, is an Error where the device can tell at once; elsewhere a negative
// count is 0 and groups end with the rows.
#define INFINI_TRAIN_EXPERT_OPS(OP)                                                                \
  OP(ExpertSort,                                                                                   \
     "rows of a stable sort of experts (int64 or int32 [N, k]) in order of token, then choice; "   \
     "counts (int64 [E]) = rows of each expert.",                                                  \
     Tensor& rows, Tensor& counts, const Tensor& experts)                                          \
  OP(ExpertPermute,                                                                                \
     "out [N k, C] row rows[t, j] = x [N, C] row t, times weights[t, j] where weights (stat "      \
     "[N, k]) is defined.",                                                                        \
     Tensor& out, const Tensor& x, const Tensor& rows, const Tensor& weights)                      \
  OP(ExpertUnpermute,                                                                              \
     "out [N, C] row t = sum over j of y [N k, C] row rows[t, j], times weights[t, j] where "      \
     "weights (stat [N, k]) is defined.",                                                          \
     Tensor& out, const Tensor& y, const Tensor& rows, const Tensor& weights)                      \
  OP(ExpertWeightsBackward,                                                                        \
     "grad_weights (stat [N, k]) = dot product of grad_out [N, C] row t and y [N k, C] row "       \
     "rows[t, j].",                                                                                \
     Tensor& grad_weights, const Tensor& grad_out, const Tensor& y, const Tensor& rows)            \
  OP(GroupedGemm,                                                                                  \
     "out [R, N] = a [R, K] @ b [E, K, N], the rows of a group by the group's b, plus the former " \
     "out where accumulate. Rows of no group get 0, or stay as they are where accumulate.",        \
     Tensor& out, const Tensor& a, const Tensor& b, const Tensor& counts, bool accumulate)         \
  OP(KGroupedGemm,                                                                                 \
     "out [E, M, N] = a [M, R] @ b [R, N], summed over the rows of b of each group apart, plus "   \
     "the former out where accumulate: the gradient of GroupedGemm's b. Rows of no group are not " \
     "read.",                                                                                      \
     Tensor& out, const Tensor& a, const Tensor& b, const Tensor& counts, bool accumulate)

// Multi-tensor, without host synchronisation. Lists run parallel to params; masters is empty or has
// for low-precision parameters (undefined for others) a float32 copy, or of bfloat16 what it lacks
// of one (uint16, core/split_float.h), which is updated and rounded to the parameter. Contiguous.
// Where the gradient factor is not finite nothing is written: such a step leaves all as it was.
#define INFINI_TRAIN_OPTIMIZER_OPS(OP)                                                             \
  OP(GlobalNorm, "norm (float32 []) = square root of the sum of squares of all elements, "         \
     "accumulated in float64.",                                                                    \
     Tensor& norm, TensorList xs)                                                                  \
  OP(ScaleAll, "Multiplies every tensor by factor (float32 []), in place.",                        \
     MutableTensorList xs, const Tensor& factor)                                                   \
  OP(AdamW,                                                                                        \
     "Decoupled weight decay Adam (Loshchilov and Hutter 2019): with g = grad * scalars[3], m = "  \
     "beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, p = p (1 - lr decay) - lr (m / "     \
     "scalars[1]) / (sqrt(v / scalars[2]) + eps). scalars (float64 [4]): lr, 1 - beta1^t, 1 - "    \
     "beta2^t, gradient factor. Moments are float32 (float64 for float64).",                       \
     MutableTensorList params, TensorList grads, MutableTensorList exp_avgs,                       \
     MutableTensorList exp_avg_sqs, MutableTensorList masters, const Tensor& scalars,              \
     const AdamWParams& hyper)                                                                     \
  OP(Sgd,                                                                                          \
     "SGD as PyTorch defines it: g = grad * scalars[1] + decay p, b = momentum b + (1 - "          \
     "dampening) g (b = g on the first step), p -= lr * (nesterov ? g + momentum b : b). "         \
     "scalars (float64 [2]): lr, gradient factor. momentum_buffers is empty without momentum.",    \
     MutableTensorList params, TensorList grads, MutableTensorList momentum_buffers,               \
     MutableTensorList masters, const Tensor& scalars, const SgdParams& hyper)

// Generation, a token of each of B sequences at a time; bound by reading weights and keys once.
// Contiguous; one floating dtype, but norm weights may be float32.
#define INFINI_TRAIN_DECODE_OPS(OP)                                                                \
  OP(NormGemv,                                                                                     \
     "out [M, N] = residual [M, N] (optional) + n [M, K] @ weight [N, K]^T + bias [N] (optional), "\
     "n = RmsNorm of x [M, K] with norm_weight [K] and eps where that is defined, else x. Where "  \
     "gated, weight is [2 N, K] = [gate | up], bias [2 N], and the product passes through SwiGlu. "\
     "For few rows.",                                                                              \
     Tensor& out, const Tensor& x, const Tensor& norm_weight, const Tensor& weight,                \
     const Tensor& bias, const Tensor& residual, double eps, bool gated)                           \
  OP(CachedAttention,                                                                              \
     "The heads of qkv [B, (H + 2 K) D] meet a cache keys, values [B, K, S, D] that holds "        \
     "lengths[b] (int32 [B]) positions. Queries and keys are rotated as by Rotary by the angles "  \
     "cos, sin [P, D/2] (stat) of position lengths[b], where these are defined, and before that "  \
     "normalised as by RmsNorm with query_norm, key_norm [D] and norm_eps, where those are. Keys " \
     "and values are written to the cache at that position, and out [B, H D] = Attention of the "  \
     "queries over positions up to it, with the scale and window of params. lengths stay. A "      \
     "length that is negative or has no place in cache or angles is an Error where the device can "\
     "tell at once; elsewhere nothing is written to the cache and out is NaN.",                    \
     Tensor& out, Tensor& keys, Tensor& values, const Tensor& qkv, const Tensor& lengths,          \
     const Tensor& cos, const Tensor& sin, const Tensor& query_norm, const Tensor& key_norm,       \
     double norm_eps, const AttentionParams& params)

// clang-format on
