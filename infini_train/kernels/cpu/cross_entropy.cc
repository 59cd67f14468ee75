#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "infini_train/kernels/cpu/indices.h"
#include "infini_train/kernels/cpu/math.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/row.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// ln(sum of e^x) = shift + log_sum, apart so that differences to x keep their accuracy.
struct LogSumExp {
  double shift;
  double log_sum;
};

/// In one pass over memory: each block is read for its maximum and, from the cache, for its sum.
template <typename T>
LogSumExp ReduceRow(const T* row, std::int64_t size) {
  using C = ComputeType<T>;
  const auto value = [=](std::int64_t i) { return C(row[i]); };
  C largest = -std::numeric_limits<C>::infinity();
  C shift = 0;
  double sum = 0;
  for (std::int64_t begin = 0; begin < size; begin += kReduceBlock) {
    const std::int64_t end = std::min(begin + kReduceBlock, size);
    const C block_largest = Largest<C>(begin, end, value);
    if (block_largest > largest) {
      sum *= std::exp(static_cast<double>(largest) - static_cast<double>(block_largest));
      largest = block_largest;
      shift = largest;
    }
    const auto [block_sum] =
        Sums<C>(begin, end, [=](std::int64_t i) { return Exp(C(row[i]) - shift); });
    sum += block_sum;
  }
  return {static_cast<double>(shift), std::log(sum)};
}

/// Goes over the rows of logits in parallel. `make_body(TypeTag<T>)` gives the function of one row,
/// `(i, const T* row, target)`.
template <typename MakeBody>
void ForEachRow(std::string_view op, const Tensor& logits, const Tensor& targets,
                const MakeBody& make_body) {
  const std::int64_t classes = logits.size(-1);
  DispatchFloating(op, logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    DispatchIndex(op, targets.dtype(), [&](auto index_tag) {
      using I = typename decltype(index_tag)::type;
      const T* logits_data = logits.data<T>();
      const I* targets_data = targets.data<I>();
      const auto body = make_body(tag);
      ParallelFor(0, targets.numel(), RowGrain(classes), [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          body(i, logits_data + i * classes, static_cast<std::int64_t>(targets_data[i]));
      });
    });
  });
}

void CrossEntropy(const KernelContext&, Tensor& losses, Tensor& lse, const Tensor& logits,
                  const Tensor& targets, std::int64_t ignore_index) {
  const std::int64_t classes = logits.size(-1);
  CheckIndices("CrossEntropy", "target", targets, classes, ignore_index);
  ForEachRow("CrossEntropy", logits, targets, [&]<typename T>(TypeTag<T>) {
    using C = ComputeType<T>;
    C* losses_data = losses.data<C>();
    C* lse_data = lse.data<C>();
    return [=](std::int64_t i, const T* row, std::int64_t target) {
      const LogSumExp reduced = ReduceRow(row, classes);
      lse_data[i] = static_cast<C>(reduced.shift + reduced.log_sum);
      losses_data[i] = target == ignore_index
                           ? C(0)
                           : static_cast<C>((reduced.shift - static_cast<double>(C(row[target]))) +
                                            reduced.log_sum);
    };
  });
}

void VocabParallelCrossEntropy(const KernelContext&, Tensor& target_logits, Tensor& lse,
                               const Tensor& logits, const Tensor& targets,
                               std::int64_t vocab_start, std::int64_t ignore_index) {
  const std::int64_t classes = logits.size(-1);
  ForEachRow("VocabParallelCrossEntropy", logits, targets, [&]<typename T>(TypeTag<T>) {
    using C = ComputeType<T>;
    C* target_logits_data = target_logits.data<C>();
    C* lse_data = lse.data<C>();
    return [=](std::int64_t i, const T* row, std::int64_t target) {
      const LogSumExp reduced = ReduceRow(row, classes);
      lse_data[i] = static_cast<C>(reduced.shift + reduced.log_sum);
      const bool is_here =
          target != ignore_index && target >= vocab_start && target - vocab_start < classes;
      target_logits_data[i] = is_here ? C(row[target - vocab_start]) : C(0);
    };
  });
}

/// A target outside the shard's [vocab_start, vocab_start + V) has no logit here.
void GradientOfLogits(std::string_view op, Tensor& grad_logits, const Tensor& grad_losses,
                      const Tensor& logits, const Tensor& lse, const Tensor& targets,
                      std::int64_t vocab_start, std::int64_t ignore_index) {
  const std::int64_t classes = logits.size(-1);
  ForEachRow(op, logits, targets, [&]<typename T>(TypeTag<T>) {
    using C = ComputeType<T>;
    T* grad_logits_data = grad_logits.data<T>();
    const C* lse_data = lse.data<C>();
    const C* grad_losses_data = grad_losses.data<C>();
    const std::int64_t stride = grad_losses.strides()[0];
    return [=](std::int64_t i, const T* row, std::int64_t target) {
      T* grad_row = grad_logits_data + i * classes;
      if (target == ignore_index) {
        std::fill_n(grad_row, classes, T(0.0f));
        return;
      }
      const C row_lse = lse_data[i];
      const C scale = grad_losses_data[i * stride];
      const bool is_here = target >= vocab_start && target - vocab_start < classes;
      // Before the row is overwritten; expm1 since the target's probability may be close to 1.
      const C at_target =
          is_here ? std::expm1(C(row[target - vocab_start]) - row_lse) * scale : C(0);
#pragma omp simd
      for (std::int64_t j = 0; j < classes; ++j)
        Store(grad_row[j], Exp(C(row[j]) - row_lse) * scale);
      if (is_here) Store(grad_row[target - vocab_start], at_target);
    };
  });
}

void CrossEntropyBackward(const KernelContext&, Tensor& grad_logits, const Tensor& grad_losses,
                          const Tensor& logits, const Tensor& lse, const Tensor& targets,
                          std::int64_t ignore_index) {
  CheckIndices("CrossEntropyBackward", "target", targets, logits.size(-1), ignore_index);
  GradientOfLogits("CrossEntropyBackward", grad_logits, grad_losses, logits, lse, targets, 0,
                   ignore_index);
}

void VocabParallelCrossEntropyBackward(const KernelContext&, Tensor& grad_logits,
                                       const Tensor& grad_losses, const Tensor& logits,
                                       const Tensor& lse, const Tensor& targets,
                                       std::int64_t vocab_start, std::int64_t ignore_index) {
  GradientOfLogits("VocabParallelCrossEntropyBackward", grad_logits, grad_losses, logits, lse,
                   targets, vocab_start, ignore_index);
}

template <typename C>
void MeanOver(Tensor& loss, Tensor& inverse_count, const Tensor& losses, const Tensor& targets,
              std::int64_t ignore_index) {
  DispatchIndex("MeanOverTargets", targets.dtype(), [&](auto tag) {
    using I = typename decltype(tag)::type;
    const C* losses_data = losses.data<C>();
    const I* targets_data = targets.data<I>();
    const auto [sum, count] = Sums<double>(
        0, targets.numel(), [=](std::int64_t i) { return static_cast<double>(losses_data[i]); },
        [=](std::int64_t i) { return targets_data[i] == ignore_index ? 0.0 : 1.0; });
    const double divisor = std::max(1.0, count);
    *inverse_count.data<C>() = static_cast<C>(1.0 / divisor);
    *loss.data<C>() = static_cast<C>(sum / divisor);
  });
}

void MeanOverTargets(const KernelContext&, Tensor& loss, Tensor& inverse_count,
                     const Tensor& losses, const Tensor& targets, std::int64_t ignore_index) {
  const auto run = losses.dtype() == DataType::kFloat64 ? &MeanOver<double> : &MeanOver<float>;
  run(loss, inverse_count, losses, targets, ignore_index);
}

}  // namespace

REGISTER_KERNEL(kCPU, CrossEntropy, &CrossEntropy);
REGISTER_KERNEL(kCPU, CrossEntropyBackward, &CrossEntropyBackward);
REGISTER_KERNEL(kCPU, VocabParallelCrossEntropy, &VocabParallelCrossEntropy);
REGISTER_KERNEL(kCPU, VocabParallelCrossEntropyBackward, &VocabParallelCrossEntropyBackward);
REGISTER_KERNEL(kCPU, MeanOverTargets, &MeanOverTargets);

}  // namespace infini_train::cpu
