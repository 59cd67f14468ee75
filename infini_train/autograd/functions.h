#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/core/dims.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/generator.h"
#include "infini_train/core/scalar.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/params.h"

/// Computation on tensors. Every function checks its arguments (Error says what was expected and
/// what was found), runs on the device of its tensors and, while recording (grad_mode.h), is
/// differentiable in its floating arguments. Operands of binary functions broadcast as in NumPy and
/// meet in PromoteTypes. Functions whose names end in InPlace write their first argument.
///
/// Shapes in comments: B batch, T positions, C hidden size, H heads, D head size, V vocabulary.
namespace infini_train {

// ---- Making tensors (not differentiable) ----

INFINI_TRAIN_API Tensor Full(const Dims& shape, Scalar value, DataType dtype = DataType::kFloat32,
                             Device device = {});
INFINI_TRAIN_API Tensor Zeros(const Dims& shape, DataType dtype = DataType::kFloat32,
                              Device device = {});
INFINI_TRAIN_API Tensor Ones(const Dims& shape, DataType dtype = DataType::kFloat32,
                             Device device = {});
INFINI_TRAIN_API Tensor ZerosLike(const Tensor& x);
/// [start, start + step, …) below `end` (above it for a negative step).
INFINI_TRAIN_API Tensor Arange(Scalar start, Scalar end, Scalar step = 1,
                               DataType dtype = DataType::kInt64, Device device = {});
/// Uniform in [low, high). Draws from `generator`, or the thread's default one.
INFINI_TRAIN_API Tensor Uniform(const Dims& shape, double low = 0.0, double high = 1.0,
                                DataType dtype = DataType::kFloat32, Device device = {},
                                Generator* generator = nullptr);
INFINI_TRAIN_API Tensor Normal(const Dims& shape, double mean = 0.0, double stddev = 1.0,
                               DataType dtype = DataType::kFloat32, Device device = {},
                               Generator* generator = nullptr);
/// Integers in [low, high).
INFINI_TRAIN_API Tensor RandomInt(const Dims& shape, std::int64_t low, std::int64_t high,
                                  DataType dtype = DataType::kInt64, Device device = {},
                                  Generator* generator = nullptr);

// ---- Type, device and layout ----

/// Converted; the same tensor when nothing changes.
INFINI_TRAIN_API Tensor To(const Tensor& x, DataType dtype);
INFINI_TRAIN_API Tensor To(const Tensor& x, Device device);
/// Row-major; the same tensor when it is already.
INFINI_TRAIN_API Tensor Contiguous(const Tensor& x);
/// A row-major copy.
INFINI_TRAIN_API Tensor Clone(const Tensor& x);

// ---- Views (no copy) and joining ----

/// One extent may be -1. A view where the strides allow it, else a copy.
INFINI_TRAIN_API Tensor Reshape(const Tensor& x, const Dims& shape);
/// Merges dimensions [start, end].
INFINI_TRAIN_API Tensor Flatten(const Tensor& x, int start = 0, int end = -1);
INFINI_TRAIN_API Tensor Transpose(const Tensor& x, int dim0, int dim1);
INFINI_TRAIN_API Tensor Permute(const Tensor& x, const std::vector<int>& order);
INFINI_TRAIN_API Tensor Squeeze(const Tensor& x, int dim);
INFINI_TRAIN_API Tensor Unsqueeze(const Tensor& x, int dim);
/// Broadcasts extents of 1 (and missing leading dimensions) to `shape`; -1 keeps an extent.
INFINI_TRAIN_API Tensor Expand(const Tensor& x, const Dims& shape);
/// Elements start, start + step, … below end along dim. Negative bounds count from the end, bounds
/// beyond the extent are clamped, as in Python. step is positive.
INFINI_TRAIN_API Tensor Slice(const Tensor& x, int dim, std::int64_t start,
                              std::int64_t end = std::numeric_limits<std::int64_t>::max(),
                              std::int64_t step = 1);
/// Slice of one index, without the dimension.
INFINI_TRAIN_API Tensor Select(const Tensor& x, int dim, std::int64_t index);
/// Pieces of the given extents, which must add up to x's.
INFINI_TRAIN_API std::vector<Tensor> Split(const Tensor& x, const std::vector<std::int64_t>& sizes,
                                           int dim);
INFINI_TRAIN_API Tensor Concat(const std::vector<Tensor>& xs, int dim);
/// Concat along a new dimension.
INFINI_TRAIN_API Tensor Stack(const std::vector<Tensor>& xs, int dim);

// ---- Elementwise ----

INFINI_TRAIN_API Tensor Add(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor Sub(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor Mul(const Tensor& a, const Tensor& b);
// Div and Pow of integers give float32.
INFINI_TRAIN_API Tensor Div(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor Pow(const Tensor& a, const Tensor& b);
/// Equal elements share the gradient evenly.
INFINI_TRAIN_API Tensor Maximum(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor Minimum(const Tensor& a, const Tensor& b);
// With a number. An integer tensor stays one with an integer number (bool becomes int64), else the
// result is float32.
INFINI_TRAIN_API Tensor Add(const Tensor& a, Scalar b);
INFINI_TRAIN_API Tensor Sub(const Tensor& a, Scalar b);
INFINI_TRAIN_API Tensor Sub(Scalar a, const Tensor& b);
INFINI_TRAIN_API Tensor Mul(const Tensor& a, Scalar b);
INFINI_TRAIN_API Tensor Div(const Tensor& a, Scalar b);
INFINI_TRAIN_API Tensor Div(Scalar a, const Tensor& b);
INFINI_TRAIN_API Tensor Pow(const Tensor& a, Scalar b);
/// min(max(x, low), high); gradient 1 inside [low, high], 0 outside.
INFINI_TRAIN_API Tensor Clamp(const Tensor& x, Scalar low, Scalar high);

INFINI_TRAIN_API Tensor Neg(const Tensor& x);
INFINI_TRAIN_API Tensor Abs(const Tensor& x);
INFINI_TRAIN_API Tensor Square(const Tensor& x);
INFINI_TRAIN_API Tensor Exp(const Tensor& x);
INFINI_TRAIN_API Tensor Log(const Tensor& x);
INFINI_TRAIN_API Tensor Sqrt(const Tensor& x);
INFINI_TRAIN_API Tensor Rsqrt(const Tensor& x);
INFINI_TRAIN_API Tensor Reciprocal(const Tensor& x);
INFINI_TRAIN_API Tensor Sin(const Tensor& x);
INFINI_TRAIN_API Tensor Cos(const Tensor& x);
INFINI_TRAIN_API Tensor Tanh(const Tensor& x);
INFINI_TRAIN_API Tensor Sigmoid(const Tensor& x);
INFINI_TRAIN_API Tensor Silu(const Tensor& x);
enum class GeluApproximation : std::uint8_t { kNone, kTanh };
/// kNone: x Φ(x) by erf. kTanh: 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), as GPT-2 uses.
INFINI_TRAIN_API Tensor Gelu(const Tensor& x,
                             GeluApproximation approximation = GeluApproximation::kNone);
/// Packed SwiGLU: x [.., 2F] = [gate | up] gives silu(gate) * up [.., F].
INFINI_TRAIN_API Tensor SwiGlu(const Tensor& x);

// Comparisons give bool tensors.
INFINI_TRAIN_API Tensor Eq(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor Ne(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor Lt(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor Le(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor Gt(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor Ge(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor LogicalAnd(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor LogicalOr(const Tensor& a, const Tensor& b);
INFINI_TRAIN_API Tensor LogicalNot(const Tensor& x);
/// condition (bool) ? a : b
INFINI_TRAIN_API Tensor Where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// mask (bool) ? value : x
INFINI_TRAIN_API Tensor MaskedFill(const Tensor& x, const Tensor& mask, Scalar value);

/// Zeroes elements with probability p and scales the others by 1 / (1 - p); x itself when not
/// `training` or p is 0. Throws Error unless 0 <= p < 1.
INFINI_TRAIN_API Tensor Dropout(const Tensor& x, double p, bool training = true,
                                Generator* generator = nullptr);

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return Add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return Sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return Mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return Div(a, b);
}
inline Tensor operator+(const Tensor& a, Scalar b) {
  return Add(a, b);
}
inline Tensor operator-(const Tensor& a, Scalar b) {
  return Sub(a, b);
}
inline Tensor operator*(const Tensor& a, Scalar b) {
  return Mul(a, b);
}
inline Tensor operator/(const Tensor& a, Scalar b) {
  return Div(a, b);
}
inline Tensor operator+(Scalar a, const Tensor& b) {
  return Add(b, a);
}
inline Tensor operator-(Scalar a, const Tensor& b) {
  return Sub(a, b);
}
inline Tensor operator*(Scalar a, const Tensor& b) {
  return Mul(b, a);
}
inline Tensor operator/(Scalar a, const Tensor& b) {
  return Div(a, b);
}
inline Tensor operator-(const Tensor& x) {
  return Neg(x);
}

// ---- In place. Refused: what autograd::CheckInPlace refuses, expanded tensors, and values with a
// history into memory that tensors without one share. ----

/// x = value
INFINI_TRAIN_API void FillInPlace(const Tensor& x, Scalar value);
/// x = source, converted and broadcast to x's shape; devices may differ.
INFINI_TRAIN_API void CopyInPlace(const Tensor& x, const Tensor& source);
/// x += other * factor; other broadcasts to x's shape.
INFINI_TRAIN_API void AddInPlace(const Tensor& x, const Tensor& other, Scalar factor = 1);
INFINI_TRAIN_API void MulInPlace(const Tensor& x, const Tensor& other);
INFINI_TRAIN_API void MulInPlace(const Tensor& x, Scalar factor);

// ---- Reductions. No dims means all of them. ----

/// Integers sum to int64.
INFINI_TRAIN_API Tensor Sum(const Tensor& x, const std::vector<int>& dims = {},
                            bool keepdim = false);
INFINI_TRAIN_API Tensor Mean(const Tensor& x, const std::vector<int>& dims = {},
                             bool keepdim = false);
/// Equal largest (smallest) elements share the gradient evenly. Throws Error over nothing.
INFINI_TRAIN_API Tensor Max(const Tensor& x, const std::vector<int>& dims = {},
                            bool keepdim = false);
INFINI_TRAIN_API Tensor Min(const Tensor& x, const std::vector<int>& dims = {},
                            bool keepdim = false);
/// Position of the first largest (smallest) element along dim, int64.
INFINI_TRAIN_API Tensor ArgMax(const Tensor& x, int dim, bool keepdim = false);
INFINI_TRAIN_API Tensor ArgMin(const Tensor& x, int dim, bool keepdim = false);
/// Running sum along dim; integers sum to int64.
INFINI_TRAIN_API Tensor CumSum(const Tensor& x, int dim);
INFINI_TRAIN_API Tensor Softmax(const Tensor& x, int dim);
INFINI_TRAIN_API Tensor LogSoftmax(const Tensor& x, int dim);

// ---- Indexing. Indices are int64 or int32. ----

/// out[.., i, ..] = x[.., index[.., i, ..], ..] along dim; index has x's rank, and no larger
/// extents in the other dimensions.
INFINI_TRAIN_API Tensor Gather(const Tensor& x, int dim, const Tensor& index);
/// x with x[.., index[.., i, ..], ..] = src[.., i, ..] along dim (the last write wins, and has the
/// gradient); src has index's shape.
INFINI_TRAIN_API Tensor Scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
/// The same with +=.
INFINI_TRAIN_API Tensor ScatterAdd(const Tensor& x, int dim, const Tensor& index,
                                   const Tensor& src);
/// The slices of x along dim named by a 1-D index.
INFINI_TRAIN_API Tensor IndexSelect(const Tensor& x, int dim, const Tensor& index);
/// x with slice i of src added to slice index[i] along dim.
INFINI_TRAIN_API Tensor IndexAdd(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
/// Sorted values and their positions along dim; stable.
INFINI_TRAIN_API std::pair<Tensor, Tensor> Sort(const Tensor& x, int dim = -1,
                                                bool descending = false);
/// The k largest (smallest) values along dim, sorted, and their positions.
INFINI_TRAIN_API std::pair<Tensor, Tensor> TopK(const Tensor& x, std::int64_t k, int dim = -1,
                                                bool largest = true);
/// Rows of weight [V, C] for ids [..]: [.., C], in autocast's type where autocast is on: what is
/// added up along a transformer starts here.
INFINI_TRAIN_API Tensor Embedding(const Tensor& weight, const Tensor& ids);

// ---- Matrix products (in autocast's type where autocast is on) ----

/// a [.., M, K] @ b [.., K, N]; 1-D operands and broadcasting of leading dimensions as in NumPy.
INFINI_TRAIN_API Tensor Matmul(const Tensor& a, const Tensor& b);
/// x [.., in] @ weight [out, in]ᵀ + bias [out] (may be undefined): [.., out].
INFINI_TRAIN_API Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// Linear by groups of rows, a layer of experts: the rows of x [R, in], in groups of counts (int64
/// [E]) rows that follow each other, by weight [E, out, in] of their group: [R, out]. Rows of no
/// group, behind the last one, give 0. counts is not read by the host.
INFINI_TRAIN_API Tensor GroupedLinear(const Tensor& x, const Tensor& weight, const Tensor& counts);
/// Linear(Gelu(Linear(x, fc_weight, fc_bias)), proj_weight, proj_bias) with the tanh approximation,
/// which happens, forwards and backwards, on the products' way to memory.
INFINI_TRAIN_API Tensor GeluMlp(const Tensor& x, const Tensor& fc_weight, const Tensor& fc_bias,
                                const Tensor& proj_weight, const Tensor& proj_bias);
/// Linear(SwiGlu(Linear(x, fc_weight, fc_bias)), proj_weight, proj_bias). Backward makes SwiGlu
/// anew on its way instead of keeping it, a fourth of what a block keeps.
INFINI_TRAIN_API Tensor SwiGluMlp(const Tensor& x, const Tensor& fc_weight, const Tensor& fc_bias,
                                  const Tensor& proj_weight, const Tensor& proj_bias);

// ---- Mixture of experts: N tokens, each sent to k of E experts. Nothing here waits for the device
// or depends on how many tokens an expert has. GroupedLinear is a layer of all experts. ----

/// The places of (token, choice) pairs among N k rows that are sorted by expert.
struct ExpertOrder {
  Tensor rows;    ///< int64 [N, k]; by token and choice within an expert
  Tensor counts;  ///< int64 [E], rows of each expert
};
/// Sorts the experts of tokens, int64 or int32 [N, k], each in [0, num_experts). Not
/// differentiable.
INFINI_TRAIN_API ExpertOrder SortByExpert(const Tensor& experts, std::int64_t num_experts);
/// The tokens x [N, C] once for each of their experts, sorted by expert: [N k, C].
INFINI_TRAIN_API Tensor ExpertPermute(const Tensor& x, const Tensor& rows);
/// Sums of what experts made of tokens: row t [N, C] is the sum over j of row rows[t, j] of y [N k,
/// C] times weights[t, j] [N, k], which is computed with in float32 or wider.
INFINI_TRAIN_API Tensor ExpertUnpermute(const Tensor& y, const Tensor& rows, const Tensor& weights);

// ---- Normalisation over the last dimension ----

/// (x - mean) / √(var + eps) * weight + bias, biased variance; weight and bias [C] may be
/// undefined.
INFINI_TRAIN_API Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                  double eps = 1e-5);
/// x / √(mean(x²) + eps) * weight; weight [C] may be undefined (Zhang and Sennrich 2019).
INFINI_TRAIN_API Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps = 1e-6);
/// {sum, LayerNorm(sum)} of sum = x + residual, in one pass over memory. Without a residual
/// (undefined) the sum is x, and backward alone saves a pass.
INFINI_TRAIN_API std::pair<Tensor, Tensor> AddLayerNorm(const Tensor& x, const Tensor& residual,
                                                        const Tensor& weight, const Tensor& bias,
                                                        double eps = 1e-5);
/// {sum, RmsNorm(sum)} of sum = x + residual, as AddLayerNorm.
INFINI_TRAIN_API std::pair<Tensor, Tensor> AddRmsNorm(const Tensor& x, const Tensor& residual,
                                                      const Tensor& weight, double eps = 1e-6);

// ---- Attention and positions ----

/// softmax(scale q kᵀ + mask) v with q [B, H, T, D], k and v [B, K, S, D], K dividing H (grouped
/// heads): [B, H, T, D], stored as [B, T, H, D] so that heads merge without a copy. Never holds the
/// [T, S] weights (Dao 2023). scale 0 in `params` means 1 / √D. A dropout_p above 0 draws from the
/// thread's default generator.
///
/// With `cumulative_lengths` c, int32 [N + 1], the T = S positions of a batch of 1 hold N samples
/// one after another, sample i from c[i] to c[i + 1], as in FlashAttention's and PyTorch's varlen
/// attention: a query sees the keys of its own sample alone. c[0] is 0, samples may be empty, and
/// queries from c[N] on give 0. The values stay on the device: there, others than these give a
/// wrong result, on the CPU an Error.
INFINI_TRAIN_API Tensor ScaledDotProductAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                  AttentionParams params,
                                                  const Tensor& cumulative_lengths = {});
/// The same on one projection: qkv [B, T, (H + 2 K) D] holds the query, key and value heads of each
/// position. Gives [B, T, H D].
INFINI_TRAIN_API Tensor PackedAttention(const Tensor& qkv, std::int64_t num_attention_heads,
                                        std::int64_t num_key_value_heads, AttentionParams params,
                                        const Tensor& cumulative_lengths = {});
/// What happens to the query and key heads of a projection before they meet: RmsNorm over each
/// head with query_norm and key_norm [D] (both or neither defined), then Rotary, not interleaved,
/// by the angles of cos and sin [T, D/2].
struct RotaryHeads {
  Tensor cos;
  Tensor sin;
  Tensor query_norm = {};
  Tensor key_norm = {};
  double norm_eps = 1e-6;
};
/// PackedAttention of such heads. Forwards and backwards the heads stay in projections.
INFINI_TRAIN_API Tensor PackedRotaryAttention(const Tensor& qkv, std::int64_t num_attention_heads,
                                              std::int64_t num_key_value_heads,
                                              const RotaryHeads& rotary, AttentionParams params,
                                              const Tensor& cumulative_lengths = {});
/// Rotary position embedding (Su et al. 2021) of x [B, H, T, D] by angles whose cos and sin are
/// [T, D/2], float32: pair j is elements (j, j + D/2), or (2j, 2j + 1) where interleaved.
INFINI_TRAIN_API Tensor Rotary(const Tensor& x, const Tensor& cos, const Tensor& sin,
                               bool interleaved = false);

// ---- Losses ----

enum class Reduction : std::uint8_t { kNone, kMean, kSum };

inline constexpr std::int64_t kDefaultIgnoreIndex = -100;

/// Cross-entropy of logits [.., V] against class ids [..], computed in float32 or wider. Targets
/// equal to ignore_index have loss and gradient 0 and do not count in the mean; a mean over none is
/// 0. Any other target outside [0, V) is an Error that names it. kNone gives [..].
INFINI_TRAIN_API Tensor CrossEntropy(const Tensor& logits, const Tensor& targets,
                                     Reduction reduction = Reduction::kMean,
                                     std::int64_t ignore_index = kDefaultIgnoreIndex);
/// scale * sum of CrossEntropy(Linear(hidden, weight), targets), for hidden [.., C] and weight [V,
/// C], without ever holding all logits: the gradients are computed chunk by chunk in forward. For a
/// mean pass scale = 1 / number of targets that count.
INFINI_TRAIN_API Tensor LinearCrossEntropy(const Tensor& hidden, const Tensor& weight,
                                           const Tensor& targets, double scale,
                                           std::int64_t ignore_index = kDefaultIgnoreIndex);

}  // namespace infini_train
