#include <algorithm>
#include <cmath>

#include "infini_train/conformance/suites.h"

namespace infini_train::conformance {
namespace {

constexpr double kEpsilon = 1e-5;

/// mean and rstd of the rows of `x`, rounded to the type of statistics.
struct RowStatistics {
  std::vector<double> mean, rstd;
};
RowStatistics StatisticsOf(const Tensor& x, bool centred) {
  const std::vector<double> values = ToDoubles(x);
  const std::int64_t hidden = x.size(-1);
  RowStatistics result;
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    const double* begin = values.data() + row * hidden;
    double sum = 0;
    for (std::int64_t i = 0; i < hidden; ++i)
      sum += begin[i];
    const double mean = centred ? sum / static_cast<double>(hidden) : 0;
    double squares = 0;
    for (std::int64_t i = 0; i < hidden; ++i)
      squares += (begin[i] - mean) * (begin[i] - mean);
    result.mean.push_back(mean);
    result.rstd.push_back(1 / std::sqrt(squares / static_cast<double>(hidden) + kEpsilon));
  }
  return result;
}

/// A row of nearly equal values is spread out by a large rstd, and so is its rounding.
double MagnitudeOf(const RowStatistics& statistics) {
  return 3 * *std::max_element(statistics.rstd.begin(), statistics.rstd.end());
}

/// Of a norm over x + residual.
double MagnitudeOfSum(const Tensor& x, const Tensor& residual) {
  std::vector<double> sum = ToDoubles(x);
  const std::vector<double> other = ToDoubles(residual);
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] += other[i];
  return 2 * MagnitudeOf(StatisticsOf(MakeTensor({}, DataType::kFloat64, x.shape(), sum), true));
}

/// LayerNorm where centered, else RmsNorm; of x + residual where it adds.
template <bool kCentered, bool kAdds>
std::function<void()> NormCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape, -2, 3);
  const Tensor residual = kAdds ? trial.Input(shape, -2, 3) : Tensor();
  if (kAdds) {
    trial.SetMagnitude(MagnitudeOfSum(x, residual));
  } else if (kCentered) {
    trial.SetMagnitude(MagnitudeOf(StatisticsOf(x, true)));
  }
  const Tensor weight = trial.Input({shape[1]});
  const Tensor bias = kCentered ? trial.Input({shape[1]}) : Tensor();
  Tensor sum = kAdds ? trial.Output(shape) : Tensor();
  Tensor out = trial.Output(shape);
  Tensor mean = kCentered ? trial.StatOutput({shape[0]}) : Tensor();
  Tensor rstd = trial.StatOutput({shape[0]});
  return [=]() mutable {
    if constexpr (kCentered && kAdds) {
      Call<op::AddLayerNorm>(sum, out, mean, rstd, x, residual, weight, bias, kEpsilon);
    } else if constexpr (kCentered) {
      Call<op::LayerNorm>(out, mean, rstd, x, weight, bias, kEpsilon);
    } else if constexpr (kAdds) {
      Call<op::AddRmsNorm>(sum, out, rstd, x, residual, weight, kEpsilon);
    } else {
      Call<op::RmsNorm>(out, rstd, x, weight, kEpsilon);
    }
  };
}

template <bool kCentered, bool kAdds>
std::function<void()> NormBackwardCall(Trial& trial, const Dims& shape) {
  const Tensor grad_y = trial.Input(shape);
  const Tensor grad_sum = kAdds ? trial.Input(shape) : Tensor();
  const Tensor x = trial.Input(shape, -2, 3);
  const Tensor weight = trial.Input({shape[1]});
  const RowStatistics statistics = StatisticsOf(x, kCentered);
  trial.SetMagnitude(MagnitudeOf(statistics));
  const Tensor mean = kCentered ? trial.StatValues({shape[0]}, statistics.mean) : Tensor();
  const Tensor rstd = trial.StatValues({shape[0]}, statistics.rstd);
  Tensor grad_x = trial.Output(shape);
  Tensor grad_weight = trial.Output({shape[1]});
  Tensor grad_bias = kCentered ? trial.Output({shape[1]}) : Tensor();
  Tensor grad_x_sums = kCentered && kAdds ? trial.Output({shape[1]}) : Tensor();
  return [=]() mutable {
    if constexpr (kCentered && kAdds) {
      Call<op::AddLayerNormBackward>(grad_x, grad_weight, grad_bias, grad_x_sums, grad_y, grad_sum,
                                     x, weight, mean, rstd);
    } else if constexpr (kCentered) {
      Call<op::LayerNormBackward>(grad_x, grad_weight, grad_bias, grad_y, x, weight, mean, rstd);
    } else if constexpr (kAdds) {
      Call<op::AddRmsNormBackward>(grad_x, grad_weight, grad_y, grad_sum, x, weight, rstd);
    } else {
      Call<op::RmsNormBackward>(grad_x, grad_weight, grad_y, x, weight, rstd);
    }
  };
}

// Shapes are [batch, heads, positions, head size].
template <bool kInterleaved, bool kInverse>
std::function<void()> RotaryCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape);
  const Tensor cos = trial.StatInput({shape[2], shape[3] / 2});
  const Tensor sin = trial.StatInput({shape[2], shape[3] / 2});
  Tensor out = trial.Output(shape);
  return [=]() mutable { Call<op::Rotary>(out, x, cos, sin, kInterleaved, kInverse); };
}

/// Of normalised heads, whose largest rstd spreads rounding as MagnitudeOf says.
RowStatistics HeadStatistics(const Tensor& x) {
  const Dims rows = {x.numel() / x.size(-1), x.size(-1)};
  return StatisticsOf(MakeTensor({}, DataType::kFloat64, rows, ToDoubles(x)), false);
}

std::function<void()> NormRotaryCall(Trial& trial, const Dims& shape) {
  const Tensor x = trial.Input(shape);
  trial.SetMagnitude(MagnitudeOf(HeadStatistics(x)));
  const Tensor weight = trial.Input({shape[3]});
  const Tensor cos = trial.StatInput({shape[2], shape[3] / 2});
  const Tensor sin = trial.StatInput({shape[2], shape[3] / 2});
  Tensor out = trial.Output(shape);
  Tensor rstd = trial.StatOutput({shape[0], shape[1], shape[2]});
  return [=]() mutable { Call<op::NormRotary>(out, rstd, x, weight, cos, sin, kEpsilon); };
}

std::function<void()> NormRotaryBackwardCall(Trial& trial, const Dims& shape) {
  const Tensor grad_y = trial.Input(shape);
  const Tensor x = trial.Input(shape);
  const RowStatistics statistics = HeadStatistics(x);
  trial.SetMagnitude(2 * MagnitudeOf(statistics));
  const Tensor weight = trial.Input({shape[3]});
  const Tensor rstd = trial.StatValues({shape[0], shape[1], shape[2]}, statistics.rstd);
  const Tensor cos = trial.StatInput({shape[2], shape[3] / 2});
  const Tensor sin = trial.StatInput({shape[2], shape[3] / 2});
  Tensor grad_x = trial.Output(shape);
  Tensor grad_weight = trial.Output({shape[3]});
  return [=]() mutable {
    Call<op::NormRotaryBackward>(grad_x, grad_weight, grad_y, x, weight, rstd, cos, sin);
  };
}

/// A row's sums, and over all positions and heads.
double HeadOperations(const Dims& shape) {
  return 20 + static_cast<double>(Numel(shape) / shape[3] + shape[3]);
}

// Shapes are [batch, heads, key/value heads, queries, keys, head size].
template <bool kCausal>
AttentionParams ParamsOf(const Dims& shape) {
  return {.scale = 1 / std::sqrt(static_cast<double>(shape[5])), .causal = kCausal};
}

/// An empty sample, several of different lengths, and positions that belong to none.
Tensor CumulativeLengths(Trial& trial, std::int64_t positions) {
  std::vector<double> values = {0, 0, 1 / 8.0, 1 / 8.0, 3 / 4.0, 7 / 8.0};
  for (double& value : values)
    value = std::floor(value * static_cast<double>(positions));
  return trial.FixedValues({static_cast<std::int64_t>(values.size())}, DataType::kInt32, values);
}

template <bool kCausal, bool kPacked>
std::function<void()> AttentionCall(Trial& trial, const Dims& shape) {
  const Tensor q = trial.Input({shape[0], shape[1], shape[3], shape[5]});
  const Tensor k = trial.Input({shape[0], shape[2], shape[4], shape[5]});
  const Tensor v = trial.Input({shape[0], shape[2], shape[4], shape[5]});
  Tensor out = trial.Output({shape[0], shape[1], shape[3], shape[5]});
  Tensor lse = trial.StatOutput({shape[0], shape[1], shape[3]});
  const Tensor lengths = kPacked ? CumulativeLengths(trial, shape[3]) : Tensor();
  return [=, params = ParamsOf<kCausal>(shape)]() mutable {
    Call<op::Attention>(out, lse, q, k, v, lengths, params);
  };
}

template <bool kCausal, bool kPacked>
std::function<void()> AttentionBackwardCall(Trial& trial, const Dims& shape) {
  const Tensor q = trial.Input({shape[0], shape[1], shape[3], shape[5]});
  const Tensor k = trial.Input({shape[0], shape[2], shape[4], shape[5]});
  const Tensor v = trial.Input({shape[0], shape[2], shape[4], shape[5]});
  const Tensor grad_out = trial.Input(q.shape());
  const Tensor lengths = kPacked ? CumulativeLengths(trial, shape[3]) : Tensor();
  const AttentionParams params = ParamsOf<kCausal>(shape);
  // The forward result is an input: computed on the CPU in float64, then rounded.
  Tensor exact_out = Tensor::Empty(q.shape(), DataType::kFloat64);
  Tensor exact_lse = Tensor::Empty({shape[0], shape[1], shape[3]}, DataType::kFloat64);
  const auto exact = [](const Tensor& tensor, DataType dtype = DataType::kFloat64) {
    return MakeTensor({}, dtype, tensor.shape(), ToDoubles(tensor));
  };
  const Tensor exact_lengths = kPacked ? exact(lengths, DataType::kInt32) : Tensor();
  Call<op::Attention>(exact_out, exact_lse, exact(q), exact(k), exact(v), exact_lengths, params);
  const Tensor out = trial.DataValues(q.shape(), ToDoubles(exact_out));
  const Tensor lse = trial.StatValues(exact_lse.shape(), ToDoubles(exact_lse));
  Tensor grad_q = trial.Output(q.shape());
  Tensor grad_k = trial.Output(k.shape());
  Tensor grad_v = trial.Output(v.shape());
  return [=]() mutable {
    Call<op::AttentionBackward>(grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, lengths,
                                params);
  };
}

double AttentionOperations(const Dims& shape) {
  return 20 + static_cast<double>(shape[3] + shape[4] + shape[5]);
}
/// Of the causal half.
double AttentionFlops(const Dims& shape) {
  return 2.0 * static_cast<double>(shape[0] * shape[1] * shape[3] * shape[4] * shape[5]);
}
double AttentionBackwardFlops(const Dims& shape) {
  return 2.5 * AttentionFlops(shape);
}

constexpr std::int64_t kIgnoreIndex = -100;

/// Targets with the second one ignored. Shapes are [tokens, vocabulary].
Tensor Targets(Trial& trial, std::int64_t tokens, std::int64_t vocab_size) {
  std::vector<double> values = RandomValues(tokens, 0, static_cast<double>(vocab_size), 77);
  for (double& value : values)
    value = std::floor(value);
  if (tokens > 1) values[1] = kIgnoreIndex;
  return trial.FixedValues({tokens}, DataType::kInt64, values);
}

std::function<void()> CrossEntropyCall(Trial& trial, const Dims& shape) {
  const Tensor logits = trial.Input(shape, -4, 4);
  const Tensor targets = Targets(trial, shape[0], shape[1]);
  Tensor losses = trial.StatOutput({shape[0]});
  Tensor lse = trial.StatOutput({shape[0]});
  return [=]() mutable { Call<op::CrossEntropy>(losses, lse, logits, targets, kIgnoreIndex); };
}

std::function<void()> CrossEntropyBackwardCall(Trial& trial, const Dims& shape) {
  const Tensor logits = trial.Input(shape, -4, 4);
  const Tensor targets = Targets(trial, shape[0], shape[1]);
  const std::vector<double> values = ToDoubles(logits);
  std::vector<double> sums;
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < shape[1]; ++i)
      sum += std::exp(values[static_cast<std::size_t>(row * shape[1] + i)]);
    sums.push_back(std::log(sum));
  }
  const Tensor lse = trial.StatValues({shape[0]}, sums);
  const Tensor grad_losses = trial.StatInput({shape[0]});
  Tensor grad_logits = trial.Output(shape);
  return [=]() mutable {
    Call<op::CrossEntropyBackward>(grad_logits, grad_losses, logits, lse, targets, kIgnoreIndex);
  };
}

/// The middle third of a vocabulary. Shapes are [tokens, vocabulary of the shard].
std::function<void()> VocabParallelCall(Trial& trial, const Dims& shape) {
  const Tensor logits = trial.Input(shape, -4, 4);
  const Tensor targets = Targets(trial, shape[0], 3 * shape[1]);
  Tensor target_logits = trial.StatOutput({shape[0]});
  Tensor lse = trial.StatOutput({shape[0]});
  return [=, start = shape[1]]() mutable {
    Call<op::VocabParallelCrossEntropy>(target_logits, lse, logits, targets, start, kIgnoreIndex);
  };
}

std::function<void()> VocabParallelBackwardCall(Trial& trial, const Dims& shape) {
  const Tensor logits = trial.Input(shape, -4, 4);
  const Tensor targets = Targets(trial, shape[0], 3 * shape[1]);
  // As if each other shard had logits of 0.
  const double lse_of_all = std::log(12.0 * static_cast<double>(shape[1]));
  const Tensor lse = trial.StatValues(
      {shape[0]}, std::vector<double>(static_cast<std::size_t>(shape[0]), lse_of_all));
  const Tensor grad_losses = trial.StatInput({shape[0]});
  Tensor grad_logits = trial.Output(shape);
  return [=, start = shape[1]]() mutable {
    Call<op::VocabParallelCrossEntropyBackward>(grad_logits, grad_losses, logits, lse, targets,
                                                start, kIgnoreIndex);
  };
}

std::function<void()> MeanOverTargetsCall(Trial& trial, const Dims& shape) {
  const Tensor losses = trial.StatInput({shape[0]}, 0, 10);
  const Tensor targets = Targets(trial, shape[0], 100);
  Tensor loss = trial.StatOutput({});
  Tensor inverse_count = trial.StatOutput({});
  return [=]() mutable {
    Call<op::MeanOverTargets>(loss, inverse_count, losses, targets, kIgnoreIndex);
  };
}

// Shapes are [tokens, vocabulary, hidden size].
std::function<void()> LinearCrossEntropyCall(Trial& trial, const Dims& shape) {
  const Tensor hidden = trial.Input({shape[0], shape[2]});
  const Tensor weight = trial.Input({shape[1], shape[2]});
  const Tensor targets = Targets(trial, shape[0], shape[1]);
  Tensor loss = trial.StatOutput({});
  Tensor grad_hidden = trial.Output({shape[0], shape[2]});
  Tensor grad_weight = trial.StatOutput({shape[1], shape[2]});
  const double scale = 1 / static_cast<double>(shape[0]);
  return [=]() mutable {
    Call<op::LinearCrossEntropy>(loss, grad_hidden, grad_weight, hidden, weight, targets,
                                 kIgnoreIndex, scale);
  };
}
double LinearCrossEntropyOperations(const Dims& shape) {
  return 20 + static_cast<double>(shape[0] + shape[1] + shape[2]);
}
double LinearCrossEntropyFlops(const Dims& shape) {
  return 6.0 * static_cast<double>(Numel(shape));
}

double RowsAndColumns(const Dims& shape) {
  return 20 + static_cast<double>(shape[0] + shape[1]);
}

}  // namespace

void AppendSequenceSuites(std::vector<OpSuite>& suites) {
  std::vector<Dims> rows;
  for (const std::int64_t length : kRowLengths)
    rows.push_back({length > 10000 ? 2 : 5, length});
  const std::vector<Dims> tall = {{70000, 2}};
  const Dims benchmark = {64, 768};
  const auto row_op = [&](OpId op, TrialBody body, ShapeFunction operations) {
    suites.push_back({op, kFloatingTypes, kRowMajor, rows, body, operations, benchmark});
    // More rows than some grids have blocks.
    suites.push_back({op, kFloat32Only, kContiguousOnly, tall, body, operations});
  };
  row_op(OpId::kLayerNorm, &NormCall<true, false>, LastExtent);
  row_op(OpId::kLayerNormBackward, &NormBackwardCall<true, false>, RowsAndColumns);
  row_op(OpId::kRmsNorm, &NormCall<false, false>, LastExtent);
  row_op(OpId::kRmsNormBackward, &NormBackwardCall<false, false>, RowsAndColumns);
  const auto fused_norm = [&](OpId op, TrialBody body, ShapeFunction operations) {
    suites.push_back({.op = op,
                      .dtypes = kFloatingTypes,
                      .layouts = kRowMajor,
                      .shapes = rows,
                      .body = body,
                      .operations = operations,
                      .benchmark_shape = benchmark,
                      .rounds_intermediates = true});
  };
  fused_norm(OpId::kAddLayerNorm, &NormCall<true, true>, LastExtent);
  fused_norm(OpId::kAddLayerNormBackward, &NormBackwardCall<true, true>, RowsAndColumns);
  fused_norm(OpId::kAddRmsNorm, &NormCall<false, true>, LastExtent);
  fused_norm(OpId::kAddRmsNormBackward, &NormBackwardCall<false, true>, RowsAndColumns);

  const std::vector<Dims> rotations = {{1, 1, 1, 2}, {2, 3, 5, 64}, {1, 2, 33, 6}};
  suites.push_back({OpId::kRotary,
                    kFloatingTypes,
                    kRowMajor,
                    rotations,
                    &RotaryCall<false, false>,
                    Five,
                    {1, 8, 128, 64}});
  suites.push_back(
      {OpId::kRotary, kFloatingTypes, kContiguousOnly, rotations, &RotaryCall<true, true>, Five});
  const std::vector<Dims> normalized = {{1, 1, 1, 2}, {2, 3, 5, 64}, {1, 2, 33, 6}, {1, 1, 2, 300}};
  suites.push_back({OpId::kNormRotary,
                    kFloatingTypes,
                    kRowMajor,
                    normalized,
                    &NormRotaryCall,
                    HeadOperations,
                    {1, 8, 128, 128}});
  suites.push_back({OpId::kNormRotaryBackward,
                    kFloatingTypes,
                    kRowMajor,
                    normalized,
                    &NormRotaryBackwardCall,
                    HeadOperations,
                    {1, 8, 128, 128}});

  const std::vector<Dims> attentions = {{1, 1, 1, 1, 1, 1},    {2, 4, 2, 33, 33, 16},
                                        {1, 3, 1, 65, 65, 64}, {1, 2, 2, 1, 40, 80},
                                        {1, 1, 1, 5, 70, 7},   {1, 1, 1, 20, 20, 256}};
  const Dims attention_benchmark = {1, 4, 4, 128, 128, 64};
  const auto attention = [&](OpId op, TrialBody causal, TrialBody full, ShapeFunction flops) {
    suites.push_back({op, kFloatingTypes, kRowMajor, attentions, causal, AttentionOperations,
                      attention_benchmark, flops, false, true});
    suites.push_back({op,
                      kFloatingTypes,
                      kContiguousOnly,
                      attentions,
                      full,
                      AttentionOperations,
                      {},
                      nullptr,
                      false,
                      true});
  };
  attention(OpId::kAttention, &AttentionCall<true, false>, &AttentionCall<false, false>,
            AttentionFlops);
  attention(OpId::kAttentionBackward, &AttentionBackwardCall<true, false>,
            &AttentionBackwardCall<false, false>, AttentionBackwardFlops);
  const auto packed_attention = [&](OpId op, TrialBody body) {
    suites.push_back(
        {.op = op,
         .dtypes = kFloatingTypes,
         .layouts = kContiguousOnly,
         .shapes = {{1, 1, 1, 3, 3, 8}, {1, 4, 2, 33, 33, 16}, {1, 2, 1, 150, 150, 64}},
         .body = body,
         .operations = AttentionOperations,
         .rounds_intermediates = true});
  };
  packed_attention(OpId::kAttention, &AttentionCall<true, true>);
  packed_attention(OpId::kAttention, &AttentionCall<false, true>);
  packed_attention(OpId::kAttentionBackward, &AttentionBackwardCall<true, true>);
  packed_attention(OpId::kAttentionBackward, &AttentionBackwardCall<false, true>);

  row_op(OpId::kCrossEntropy, &CrossEntropyCall, LastExtent);
  row_op(OpId::kCrossEntropyBackward, &CrossEntropyBackwardCall, LastExtent);
  row_op(OpId::kVocabParallelCrossEntropy, &VocabParallelCall, LastExtent);
  row_op(OpId::kVocabParallelCrossEntropyBackward, &VocabParallelBackwardCall, LastExtent);
  suites.push_back({OpId::kMeanOverTargets,
                    kFloatingTypes,
                    kContiguousOnly,
                    {{1}, {33}, {5000}},
                    &MeanOverTargetsCall,
                    Five,
                    {4096}});
  suites.push_back({OpId::kLinearCrossEntropy,
                    kFloatingTypes,
                    kContiguousOnly,
                    {{1, 5, 3}, {33, 65, 16}, {70, 1000, 32}},
                    &LinearCrossEntropyCall,
                    LinearCrossEntropyOperations,
                    {64, 1000, 64},
                    LinearCrossEntropyFlops,
                    false,
                    true});
}

}  // namespace infini_train::conformance
