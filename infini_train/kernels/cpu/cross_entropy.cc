#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

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

void CrossEntropy(const KernelContext&, Tensor& losses, Tensor& lse, const Tensor& logits,
                  const Tensor& targets, std::int64_t ignore_index) {
  const std::int64_t classes = logits.size(-1);
  CheckIndices("CrossEntropy", "target", targets, classes, ignore_index);
  DispatchFloating("CrossEntropy", logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    DispatchIndex("CrossEntropy", targets.dtype(), [&](auto index_tag) {
      using I = typename decltype(index_tag)::type;
      const T* logits_data = logits.data<T>();
      const I* targets_data = targets.data<I>();
      C* losses_data = losses.data<C>();
      C* lse_data = lse.data<C>();
      ParallelFor(0, targets.numel(), RowGrain(classes), [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const T* row = logits_data + i * classes;
          const LogSumExp reduced = ReduceRow(row, classes);
          lse_data[i] = static_cast<C>(reduced.shift + reduced.log_sum);
          const std::int64_t target = targets_data[i];
          losses_data[i] =
              target == ignore_index
                  ? C(0)
                  : static_cast<C>((reduced.shift - static_cast<double>(C(row[target]))) +
                                   reduced.log_sum);
        }
      });
    });
  });
}

void CrossEntropyBackward(const KernelContext&, Tensor& grad_logits, const Tensor& grad_losses,
                          const Tensor& logits, const Tensor& lse, const Tensor& targets,
                          std::int64_t ignore_index) {
  const std::int64_t classes = logits.size(-1);
  CheckIndices("CrossEntropyBackward", "target", targets, classes, ignore_index);
  DispatchFloating("CrossEntropyBackward", logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    DispatchIndex("CrossEntropyBackward", targets.dtype(), [&](auto index_tag) {
      using I = typename decltype(index_tag)::type;
      const T* logits_data = logits.data<T>();
      T* grad_logits_data = grad_logits.data<T>();
      const I* targets_data = targets.data<I>();
      const C* lse_data = lse.data<C>();
      const C* grad_losses_data = grad_losses.data<C>();
      const std::int64_t stride = grad_losses.strides()[0];
      ParallelFor(0, targets.numel(), RowGrain(classes), [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const T* row = logits_data + i * classes;
          T* grad_row = grad_logits_data + i * classes;
          const std::int64_t target = targets_data[i];
          if (target == ignore_index) {
            std::fill_n(grad_row, classes, T(0.0f));
            continue;
          }
          const C row_lse = lse_data[i];
          const C scale = grad_losses_data[i * stride];
          // Before the row is overwritten; expm1 since the target's probability may be close to 1.
          const C at_target = std::expm1(C(row[target]) - row_lse) * scale;
#pragma omp simd
          for (std::int64_t j = 0; j < classes; ++j)
            Store(grad_row[j], Exp(C(row[j]) - row_lse) * scale);
          Store(grad_row[target], at_target);
        }
      });
    });
  });
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
REGISTER_KERNEL(kCPU, MeanOverTargets, &MeanOverTargets);

}  // namespace infini_train::cpu
