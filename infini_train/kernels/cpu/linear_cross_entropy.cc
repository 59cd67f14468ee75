#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "infini_train/kernels/cpu/gemm/gemm.h"
#include "infini_train/kernels/cpu/indices.h"
#include "infini_train/kernels/cpu/math.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

// Rows of logits held at once, and logits. Fewer rows pass over the weight and its gradient more
// often; beyond the most there is nothing to gain.
constexpr std::int64_t kMaxRowsPerChunk = 1024;
constexpr std::int64_t kLogitsPerChunk = 14 * 1024 * 1024;

// A row's target, and where the row is among the inputs.
struct Token {
  std::int64_t row;
  std::int64_t target;
};

// The rows whose target is not ignored.
std::vector<Token> CountedTokens(const Tensor& targets, std::int64_t ignore_index) {
  std::vector<Token> tokens;
  tokens.reserve(static_cast<std::size_t>(targets.numel()));
  DispatchIndex("LinearCrossEntropy", targets.dtype(), [&](auto tag) {
    using I = typename decltype(tag)::type;
    const I* data = targets.data<I>();
    for (std::int64_t row = 0; row < targets.numel(); ++row) {
      if (data[row] != ignore_index) tokens.push_back({row, data[row]});
    }
  });
  return tokens;
}

template <typename T>
T RowMax(const T* row, std::int64_t count) {
  T max = row[0];
#pragma omp simd reduction(max : max)
  for (std::int64_t j = 0; j < count; ++j)
    max = row[j] > max ? row[j] : max;
  return max;
}

// Replaces a row by e^(row - max) where `store`; returns the sum of those.
template <typename T, bool store>
double ExpRow(T* row, std::int64_t count, T max) {
  constexpr std::int64_t kBlock = 1024;
  double total = 0;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, count);
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = begin; j < end; ++j) {
      const T value = Exp(row[j] - max);
      if constexpr (store) row[j] = value;
      sum += value;
    }
    total += static_cast<double>(sum);
  }
  return total;
}

// Writes factor * row as elements of type S to the start of the row's own memory.
template <typename T, typename S>
void ScaleRow(T* row, std::int64_t count, T factor) {
  if constexpr (std::is_same_v<T, S>) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      row[j] *= factor;
  } else {
    // Each block is read before the place where it is written, which lies before it, is written.
    constexpr std::int64_t kBlock = 64;
    auto* out = reinterpret_cast<std::byte*>(row);
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t size = std::min(kBlock, count - begin);
      T wide[kBlock];
      S narrow[kBlock];
      std::memcpy(wide, row + begin, static_cast<std::size_t>(size) * sizeof(T));
      for (std::int64_t j = 0; j < size; ++j)
        narrow[j] = static_cast<S>(wide[j] * factor);
      std::memcpy(out + begin * static_cast<std::int64_t>(sizeof(S)), narrow,
                  static_cast<std::size_t>(size) * sizeof(S));
    }
  }
}

template <typename S>
void FillZero(const Tensor& tensor) {
  S* data = tensor.data<S>();
  ParallelFor(0, tensor.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    std::fill(data + begin, data + end, S(0.0f));
  });
}

// Inputs of type S, logits and sums of type T.
template <typename S>
class Run {
 public:
  using T = ComputeType<S>;

  Run(Tensor& grad_hidden, Tensor& grad_weight, const Tensor& hidden, const Tensor& weight,
      std::vector<Token> tokens, double scale)
      : grad_hidden_(grad_hidden),
        grad_weight_(grad_weight),
        hidden_(hidden),
        weight_(weight),
        tokens_(std::move(tokens)),
        scale_(scale),
        vocab_size_(weight.size(0)),
        hidden_size_(weight.size(1)) {}

  double Loss() {
    const auto count = static_cast<std::int64_t>(tokens_.size());
    const std::int64_t most =
        std::clamp<std::int64_t>(kLogitsPerChunk / vocab_size_, 1, kMaxRowsPerChunk);
    const std::int64_t chunks = (count + most - 1) / most;
    if (grad_hidden_.defined() && count < hidden_.size(0)) FillZero<S>(grad_hidden_);
    if (chunks == 0) {
      ZeroGradWeight();
      return 0;
    }
    const std::int64_t rows = (count + chunks - 1) / chunks;
    logits_ = Tensor::Empty({rows, vocab_size_}, DataTypeOf<T>());
    // Sums over several chunks are rounded once, at the end.
    weight_sums_ = grad_weight_;
    if (grad_weight_.defined() && grad_weight_.dtype() != DataTypeOf<T>() && chunks > 1)
      weight_sums_ = Tensor::Empty(grad_weight_.shape(), DataTypeOf<T>());
    losses_.resize(static_cast<std::size_t>(rows));

    double total = 0;
    for (std::int64_t begin = 0; begin < count; begin += rows)
      total += ChunkLoss(begin, std::min(rows, count - begin));
    if (weight_sums_.defined() && !weight_sums_.IsSameAs(grad_weight_)) RoundGradWeight();
    return total;
  }

 private:
  double ChunkLoss(std::int64_t begin, std::int64_t rows) {
    const Token* tokens = tokens_.data() + begin;
    // Rows between which others are ignored are brought together first.
    const bool gathered = tokens[rows - 1].row - tokens[0].row != rows - 1;
    const S* hidden = hidden_.data<S>() + tokens[0].row * hidden_size_;
    if (gathered) {
      if (!gathered_.defined()) {
        gathered_ = Tensor::Empty({logits_.size(0), hidden_size_}, hidden_.dtype());
        if (grad_hidden_.defined()) gathered_grad_ = Tensor::EmptyLike(gathered_);
      }
      hidden = gathered_.data<S>();
      for (std::int64_t i = 0; i < rows; ++i)
        std::copy_n(hidden_.data<S>() + tokens[i].row * hidden_size_, hidden_size_,
                    gathered_.data<S>() + i * hidden_size_);
    }

    GemmProblem forward;
    forward.m = rows;
    forward.n = vocab_size_;
    forward.k = hidden_size_;
    forward.a = RowMajor(hidden_size_);
    forward.b = ColumnMajor(hidden_size_);
    forward.c = RowMajor(vocab_size_);
    forward.input = DataTypeOf<S>();
    forward.output = DataTypeOf<T>();
    RunGemm(forward, logits_.raw_data(), hidden, weight_.raw_data());
    SoftmaxRows(tokens, rows);

    // The gradient lies at the start of each row of logits.
    const std::int64_t stride =
        vocab_size_ * static_cast<std::int64_t>(sizeof(T)) / static_cast<std::int64_t>(sizeof(S));
    if (grad_hidden_.defined()) {
      S* grad = gathered ? gathered_grad_.data<S>()
                         : grad_hidden_.data<S>() + tokens[0].row * hidden_size_;
      GemmProblem backward;
      backward.m = rows;
      backward.n = hidden_size_;
      backward.k = vocab_size_;
      backward.a = RowMajor(stride);
      backward.b = RowMajor(hidden_size_);
      backward.c = RowMajor(hidden_size_);
      backward.input = backward.output = DataTypeOf<S>();
      RunGemm(backward, grad, logits_.raw_data(), weight_.raw_data());
      for (std::int64_t i = 0; gathered && i < rows; ++i)
        std::copy_n(grad + i * hidden_size_, hidden_size_,
                    grad_hidden_.data<S>() + tokens[i].row * hidden_size_);
    }
    if (weight_sums_.defined()) {
      GemmProblem backward;
      backward.m = vocab_size_;
      backward.n = hidden_size_;
      backward.k = rows;
      backward.a = ColumnMajor(stride);
      backward.b = RowMajor(hidden_size_);
      backward.c = RowMajor(hidden_size_);
      backward.input = DataTypeOf<S>();
      backward.output = weight_sums_.dtype();
      backward.accumulate = begin > 0;
      RunGemm(backward, weight_sums_.raw_data(), logits_.raw_data(), hidden);
    }
    double sum = 0;
    for (std::int64_t i = 0; i < rows; ++i)
      sum += losses_[static_cast<std::size_t>(i)];
    return sum;
  }

  // Losses of a chunk, and its logits replaced by their gradient.
  void SoftmaxRows(const Token* tokens, std::int64_t rows) {
    const bool backward = grad_hidden_.defined() || grad_weight_.defined();
    ParallelFor(0, rows, RowGrain(vocab_size_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        T* row = logits_.data<T>() + i * vocab_size_;
        const std::int64_t target = tokens[i].target;
        const T max = RowMax(row, vocab_size_);
        const auto logit = static_cast<double>(row[target] - max);
        const double sum = backward ? ExpRow<T, true>(row, vocab_size_, max)
                                    : ExpRow<T, false>(row, vocab_size_, max);
        const double loss = Log(sum) - logit;
        losses_[static_cast<std::size_t>(i)] = loss;
        if (!backward) continue;
        ScaleRow<T, S>(row, vocab_size_, static_cast<T>(scale_ / sum));
        const S rounded = static_cast<S>(static_cast<T>(std::expm1(-loss) * scale_));
        std::memcpy(
            reinterpret_cast<std::byte*>(row) + target * static_cast<std::int64_t>(sizeof(S)),
            &rounded, sizeof(S));
      }
    });
  }

  void ZeroGradWeight() const {
    if (!grad_weight_.defined()) return;
    DispatchFloating("LinearCrossEntropy", grad_weight_.dtype(),
                     [&](auto tag) { FillZero<typename decltype(tag)::type>(grad_weight_); });
  }

  void RoundGradWeight() const {
    const T* sums = weight_sums_.data<T>();
    S* out = grad_weight_.data<S>();
    ParallelFor(0, grad_weight_.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        out[i] = static_cast<S>(sums[i]);
    });
  }

  const Tensor& grad_hidden_;
  const Tensor& grad_weight_;
  const Tensor& hidden_;
  const Tensor& weight_;
  const std::vector<Token> tokens_;
  const double scale_;
  const std::int64_t vocab_size_;
  const std::int64_t hidden_size_;
  Tensor logits_;
  Tensor weight_sums_;
  Tensor gathered_;
  Tensor gathered_grad_;
  std::vector<double> losses_;
};

void LinearCrossEntropy(const KernelContext&, Tensor& loss, Tensor& grad_hidden,
                        Tensor& grad_weight, const Tensor& hidden, const Tensor& weight,
                        const Tensor& targets, std::int64_t ignore_index, double scale) {
  CheckIndices("LinearCrossEntropy", "target", targets, weight.size(0), ignore_index);
  std::vector<Token> tokens = CountedTokens(targets, ignore_index);
  DispatchFloating("LinearCrossEntropy", hidden.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = ComputeType<S>;
    const double sum =
        Run<S>(grad_hidden, grad_weight, hidden, weight, std::move(tokens), scale).Loss();
    *loss.data<T>() = static_cast<T>(sum * scale);
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, LinearCrossEntropy, &LinearCrossEntropy);

}  // namespace infini_train::cpu
