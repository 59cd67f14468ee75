#include <limits>

#include "backends/simt/kernels/loss/logits_gradient.h"

namespace infini_train::simt {
namespace {

/// lse = log of the sum of exponentials, loss = lse - logits[target]. The shift and the logarithm
/// of the sum stay apart until the end, so that the difference keeps its accuracy.
template <typename T, typename I, typename Team, int N>
SIMT_KERNEL void CrossEntropyKernel(ComputeType<T>* losses, ComputeType<T>* lse, const T* logits,
                                    const I* targets, std::int64_t rows, std::int64_t classes,
                                    std::int64_t ignore_index) {
  using C = ComputeType<T>;
  for (std::int64_t row = Team::First(); row < rows; row += Team::Count()) {
    const T* logits_row = logits + row * classes;
    const SoftmaxStatistics<C> statistics = RowStatistics<Team, N>(logits_row, classes);
    if (Team::Lane() != 0) continue;
    const C shift = statistics.Shift();
    const C log_sum = Log(statistics.sum);
    Store(lse + row, shift + log_sum);
    const std::int64_t target = Load(targets + row);
    C loss = std::numeric_limits<C>::quiet_NaN();
    if (target == ignore_index) {
      loss = 0;
    } else if (target >= 0 && target < classes) {
      loss = (shift - ToCompute(Load(logits_row + target))) + log_sum;
    }
    Store(losses + row, loss);
  }
}

template <typename T>
struct WriteLogitsGradient {
  T* grad_logits;
  const T* logits;
  LogitsGradient<T> gradient;

  template <int M>
  SIMT_DEVICE void Visit(std::int64_t i) {
    Store(grad_logits + i, gradient.At(i, Load<M>(logits + i)));
  }
};

/// One shard of a vocabulary: its own lse, and the target's logit where that is in the shard.
template <typename T, typename I, typename Team, int N>
SIMT_KERNEL void ShardCrossEntropyKernel(ComputeType<T>* target_logits, ComputeType<T>* lse,
                                         const T* logits, const I* targets, std::int64_t rows,
                                         std::int64_t classes, std::int64_t vocab_start,
                                         std::int64_t ignore_index) {
  using C = ComputeType<T>;
  for (std::int64_t row = Team::First(); row < rows; row += Team::Count()) {
    const T* logits_row = logits + row * classes;
    const SoftmaxStatistics<C> statistics = RowStatistics<Team, N>(logits_row, classes);
    if (Team::Lane() != 0) continue;
    Store(lse + row, statistics.Shift() + Log(statistics.sum));
    const std::int64_t target = Load(targets + row);
    const std::int64_t position = target - vocab_start;
    const bool is_here = target != ignore_index && position >= 0 && position < classes;
    Store(target_logits + row, is_here ? ToCompute(Load(logits_row + position)) : C(0));
  }
}

/// Where `is_whole`, a target outside the vocabulary gives a row of NaN; in a shard it belongs to
/// another one. grad_logits may be logits: each lane reads an element before it writes it.
template <typename T, typename I, typename Team, int N>
SIMT_KERNEL void CrossEntropyBackwardKernel(T* grad_logits, const ComputeType<T>* grad_losses,
                                            std::int64_t grad_losses_stride, const T* logits,
                                            const ComputeType<T>* lse, const I* targets,
                                            std::int64_t rows, std::int64_t classes,
                                            std::int64_t vocab_start, bool is_whole,
                                            std::int64_t ignore_index) {
  using C = ComputeType<T>;
  for (std::int64_t row = Team::First(); row < rows; row += Team::Count()) {
    const T* logits_row = logits + row * classes;
    T* grad_row = grad_logits + row * classes;
    const std::int64_t target = Load(targets + row);
    const std::int64_t position = target - vocab_start;
    const bool is_here = position >= 0 && position < classes;
    if (target == ignore_index || (is_whole && !is_here)) {
      const C value = target == ignore_index ? C(0) : std::numeric_limits<C>::quiet_NaN();
      FillRow<T> fill{grad_row, FromCompute<T>(value)};
      WalkRow<Team, N>(logits_row, classes, fill);
    } else {
      const LogitsGradient<T> gradient(Load(lse + row),
                                       Load(grad_losses + row * grad_losses_stride), position);
      WriteLogitsGradient<T> write{grad_row, logits_row, gradient};
      WalkRow<Team, N>(logits_row, classes, write);
    }
  }
}

void CrossEntropy(const Context& context, Tensor& losses, Tensor& lse, const Tensor& logits,
                  const Tensor& targets, std::int64_t ignore_index) {
  const std::int64_t rows = targets.numel();
  const std::int64_t classes = logits.size(-1);
  DispatchFloating("CrossEntropy", logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    DispatchIndex("CrossEntropy", targets.dtype(), [&](auto index_tag) {
      using I = typename decltype(index_tag)::type;
      DispatchRows<T>(rows, classes, {logits.raw_data()},
                      [&](auto team, auto width, const Geometry& geometry) {
                        Launch(context, geometry,
                               &CrossEntropyKernel<T, I, typename decltype(team)::type, width()>,
                               losses.data<C>(), lse.data<C>(), logits.data<T>(), targets.data<I>(),
                               rows, classes, ignore_index);
                      });
    });
  });
}

void VocabParallelCrossEntropy(const Context& context, Tensor& target_logits, Tensor& lse,
                               const Tensor& logits, const Tensor& targets,
                               std::int64_t vocab_start, std::int64_t ignore_index) {
  const std::int64_t rows = targets.numel();
  const std::int64_t classes = logits.size(-1);
  DispatchFloating("VocabParallelCrossEntropy", logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    DispatchIndex("VocabParallelCrossEntropy", targets.dtype(), [&](auto index_tag) {
      using I = typename decltype(index_tag)::type;
      DispatchRows<T>(
          rows, classes, {logits.raw_data()}, [&](auto team, auto width, const Geometry& geometry) {
            Launch(context, geometry,
                   &ShardCrossEntropyKernel<T, I, typename decltype(team)::type, width()>,
                   target_logits.data<C>(), lse.data<C>(), logits.data<T>(), targets.data<I>(),
                   rows, classes, vocab_start, ignore_index);
          });
    });
  });
}

void GradientOfLogits(const char* op, const Context& context, Tensor& grad_logits,
                      const Tensor& grad_losses, const Tensor& logits, const Tensor& lse,
                      const Tensor& targets, std::int64_t vocab_start, bool is_whole,
                      std::int64_t ignore_index) {
  const std::int64_t rows = targets.numel();
  const std::int64_t classes = logits.size(-1);
  DispatchFloating(op, logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    DispatchIndex(op, targets.dtype(), [&](auto index_tag) {
      using I = typename decltype(index_tag)::type;
      DispatchRows<T>(
          rows, classes, {logits.raw_data(), grad_logits.raw_data()},
          [&](auto team, auto width, const Geometry& geometry) {
            Launch(context, geometry,
                   &CrossEntropyBackwardKernel<T, I, typename decltype(team)::type, width()>,
                   grad_logits.data<T>(), grad_losses.data<C>(), grad_losses.strides()[0],
                   logits.data<T>(), lse.data<C>(), targets.data<I>(), rows, classes, vocab_start,
                   is_whole, ignore_index);
          });
    });
  });
}

void CrossEntropyBackward(const Context& context, Tensor& grad_logits, const Tensor& grad_losses,
                          const Tensor& logits, const Tensor& lse, const Tensor& targets,
                          std::int64_t ignore_index) {
  GradientOfLogits("CrossEntropyBackward", context, grad_logits, grad_losses, logits, lse, targets,
                   0, true, ignore_index);
}

void VocabParallelCrossEntropyBackward(const Context& context, Tensor& grad_logits,
                                       const Tensor& grad_losses, const Tensor& logits,
                                       const Tensor& lse, const Tensor& targets,
                                       std::int64_t vocab_start, std::int64_t ignore_index) {
  GradientOfLogits("VocabParallelCrossEntropyBackward", context, grad_logits, grad_losses, logits,
                   lse, targets, vocab_start, false, ignore_index);
}

}  // namespace

SIMT_REGISTER_KERNEL(CrossEntropy, &CrossEntropy);
SIMT_REGISTER_KERNEL(CrossEntropyBackward, &CrossEntropyBackward);
SIMT_REGISTER_KERNEL(VocabParallelCrossEntropy, &VocabParallelCrossEntropy);
SIMT_REGISTER_KERNEL(VocabParallelCrossEntropyBackward, &VocabParallelCrossEntropyBackward);

}  // namespace infini_train::simt
