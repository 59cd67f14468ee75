#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/split_float.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/row.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

/// A list of tensors cut into chunks of at most kSize elements of one tensor: the same pieces for
/// any number of threads, and one parallel loop for tensors of all sizes.
class Chunks {
 public:
  static constexpr std::int64_t kSize = kElementGrain;

  explicit Chunks(TensorList tensors) : tensors_(tensors) {
    first_.reserve(tensors.size() + 1);
    first_.push_back(0);
    for (const Tensor& tensor : tensors)
      first_.push_back(first_.back() + (tensor.numel() + kSize - 1) / kSize);
  }

  std::int64_t count() const { return first_.back(); }

  /// Calls `body(tensor, begin, end, chunk)` for each chunk: elements [begin, end) of a tensor,
  /// both by number.
  template <typename Body>
  void ForEach(const Body& body) const {
    ParallelFor(0, count(), 1, [&](std::int64_t begin, std::int64_t end) {
      auto tensor = static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), begin) -
                                             first_.begin() - 1);
      for (std::int64_t chunk = begin; chunk < end; ++chunk) {
        while (chunk >= first_[tensor + 1])
          ++tensor;
        const std::int64_t start = (chunk - first_[tensor]) * kSize;
        body(tensor, start, std::min(start + kSize, tensors_[tensor].numel()), chunk);
      }
    });
  }

 private:
  TensorList tensors_;
  std::vector<std::int64_t> first_;  ///< chunk of each tensor, and the number of chunks
};

void GlobalNorm(const KernelContext&, Tensor& norm, TensorList xs) {
  const Chunks chunks(xs);
  std::vector<double> sums(static_cast<std::size_t>(chunks.count()));
  chunks.ForEach([&](std::size_t k, std::int64_t begin, std::int64_t end, std::int64_t chunk) {
    DispatchFloating("GlobalNorm", xs[k].dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* x = xs[k].data<T>();
      const auto [sum] = Sums<double>(begin, end, [=](std::int64_t i) {
        const double value = static_cast<double>(ComputeType<T>(x[i]));
        return value * value;
      });
      sums[static_cast<std::size_t>(chunk)] = sum;
    });
  });
  double total = 0;
  for (const double sum : sums)
    total += sum;
  *norm.data<float>() = static_cast<float>(std::sqrt(total));
}

void ScaleAll(const KernelContext&, MutableTensorList xs, const Tensor& factor) {
  const float value = *factor.data<float>();
  if (value == 1.0f) return;
  const Chunks chunks(xs);
  chunks.ForEach([&](std::size_t k, std::int64_t begin, std::int64_t end, std::int64_t) {
    DispatchFloating("ScaleAll", xs[k].dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = ComputeType<T>;
      T* x = xs[k].data<T>();
      const C scale = value;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i)
        Store(x[i], C(x[i]) * scale);
    });
  });
}

void CheckList(std::string_view op, std::string_view name, TensorList params, TensorList list,
               bool may_lack) {
  if (may_lack && list.empty()) return;
  if (list.size() != params.size()) {
    throw Error(fmt::format("{}: expected {} for each of {} parameters, got {}", op, name,
                            params.size(), list.size()));
  }
  for (std::size_t k = 0; k < params.size(); ++k) {
    if ((may_lack && !list[k].defined()) || list[k].numel() == params[k].numel()) continue;
    throw Error(fmt::format("{}: {} of parameter {} has shape {}, the parameter {}", op, name, k,
                            list[k].shape().ToString(), params[k].shape().ToString()));
  }
}

/// A parameter's memory during an update: P is its type, G that of its gradient. Where it has a
/// master of type M, that is updated and then rounded to the parameter: a whole one or, of uint16,
/// what the parameter lacks of it.
template <typename P, typename G, typename M>
struct Parameter {
  using Compute = ComputeType<P>;

  P* param;
  const G* grad;
  M* master;

  Compute Grad(std::int64_t i) const { return static_cast<Compute>(grad[i]); }
  Compute Get(std::int64_t i) const {
    if constexpr (std::is_same_v<M, std::uint16_t>) {
      return SplitFloat(param[i], master[i]).Join();
    } else if constexpr (!std::is_void_v<M>) {
      return master[i];
    } else {
      return Compute(param[i]);
    }
  }
  void Set(std::int64_t i, Compute value) const {
    if constexpr (std::is_same_v<M, std::uint16_t>) {
      const SplitFloat split(value);
      param[i].bits = split.high.bits;
      master[i] = split.low;
    } else {
      if constexpr (!std::is_void_v<M>) master[i] = value;
      Store(param[i], value);
    }
  }
};

/// Calls `body(Parameter, tensor, begin, end)` for chunks of all parameters, in parallel.
template <typename Body>
void ForEachParameter(std::string_view op, MutableTensorList params, TensorList grads,
                      MutableTensorList masters, const Body& body) {
  CheckList(op, "a gradient", params, grads, false);
  CheckList(op, "a master", params, masters, true);
  Chunks(params).ForEach([&](std::size_t k, std::int64_t begin, std::int64_t end, std::int64_t) {
    DispatchFloating(op, params[k].dtype(), [&](auto param_tag) {
      using P = typename decltype(param_tag)::type;
      using C = ComputeType<P>;
      const auto with_grad = [&](auto grad_tag) {
        using G = typename decltype(grad_tag)::type;
        P* param = params[k].data<P>();
        const G* grad = grads[k].data<G>();
        const bool has_master = !masters.empty() && masters[k].defined();
        if constexpr (std::is_same_v<P, BFloat16>) {
          if (has_master && masters[k].dtype() == DataType::kUInt16) {
            body(Parameter<P, G, std::uint16_t>{param, grad, masters[k].data<std::uint16_t>()}, k,
                 begin, end);
            return;
          }
        }
        if constexpr (!std::is_same_v<P, C>) {
          if (has_master) {
            body(Parameter<P, G, C>{param, grad, masters[k].data<C>()}, k, begin, end);
            return;
          }
        }
        body(Parameter<P, G, void>{param, grad, nullptr}, k, begin, end);
      };
      if (grads[k].dtype() == DataTypeOf<P>()) {
        with_grad(TypeTag<P>{});
      } else {
        with_grad(TypeTag<float>{});
      }
    });
  });
}

void AdamW(const KernelContext&, MutableTensorList params, TensorList grads,
           MutableTensorList exp_avgs, MutableTensorList exp_avg_sqs, MutableTensorList masters,
           const Tensor& scalars, const AdamWParams& hyper) {
  CheckList("AdamW", "a first moment", params, exp_avgs, false);
  CheckList("AdamW", "a second moment", params, exp_avg_sqs, false);
  const double* values = scalars.data<double>();
  const double lr = values[0];
  const double step_size = lr / values[1];
  const double inverse_sqrt_correction = 1.0 / std::sqrt(values[2]);
  const double grad_factor = values[3];
  if (!std::isfinite(grad_factor)) return;
  ForEachParameter(
      "AdamW", params, grads, masters,
      [&](const auto parameter, std::size_t k, std::int64_t begin, std::int64_t end) {
        using C = typename decltype(parameter)::Compute;
        C* exp_avg = exp_avgs[k].data<C>();
        C* exp_avg_sq = exp_avg_sqs[k].data<C>();
        const auto beta1 = static_cast<C>(hyper.beta1);
        const auto beta2 = static_cast<C>(hyper.beta2);
        const auto rest1 = static_cast<C>(1.0 - hyper.beta1);
        const auto rest2 = static_cast<C>(1.0 - hyper.beta2);
        const auto keep = static_cast<C>(1.0 - lr * hyper.weight_decay);
        const auto step = static_cast<C>(step_size);
        const auto root_factor = static_cast<C>(inverse_sqrt_correction);
        const auto eps = static_cast<C>(hyper.eps);
        const auto factor = static_cast<C>(grad_factor);
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
          const C g = parameter.Grad(i) * factor;
          const C m = beta1 * exp_avg[i] + rest1 * g;
          const C v = beta2 * exp_avg_sq[i] + rest2 * g * g;
          exp_avg[i] = m;
          exp_avg_sq[i] = v;
          parameter.Set(i, parameter.Get(i) * keep - step * m / (std::sqrt(v) * root_factor + eps));
        }
      });
}

void Sgd(const KernelContext&, MutableTensorList params, TensorList grads,
         MutableTensorList momentum_buffers, MutableTensorList masters, const Tensor& scalars,
         const SgdParams& hyper) {
  const bool has_momentum = !momentum_buffers.empty();
  CheckList("Sgd", "a momentum buffer", params, momentum_buffers, !has_momentum);
  const double* values = scalars.data<double>();
  const double lr = values[0];
  const double grad_factor = values[1];
  if (!std::isfinite(grad_factor)) return;
  // On the first step the buffer, which may hold anything, becomes g.
  const bool first = hyper.first_step;
  ForEachParameter("Sgd", params, grads, masters,
                   [&](const auto parameter, std::size_t k, std::int64_t begin, std::int64_t end) {
                     using C = typename decltype(parameter)::Compute;
                     const auto step = static_cast<C>(lr);
                     const auto factor = static_cast<C>(grad_factor);
                     const auto decay = static_cast<C>(hyper.weight_decay);
                     const auto momentum = static_cast<C>(hyper.momentum);
                     const auto rest = first ? C(1) : static_cast<C>(1.0 - hyper.dampening);
                     if (!has_momentum) {
#pragma omp simd
                       for (std::int64_t i = begin; i < end; ++i) {
                         const C p = parameter.Get(i);
                         parameter.Set(i, p - step * (parameter.Grad(i) * factor + decay * p));
                       }
                       return;
                     }
                     C* buffer = momentum_buffers[k].data<C>();
                     const bool nesterov = hyper.nesterov;
#pragma omp simd
                     for (std::int64_t i = begin; i < end; ++i) {
                       const C p = parameter.Get(i);
                       const C g = parameter.Grad(i) * factor + decay * p;
                       const C b = (first ? C(0) : momentum * buffer[i]) + rest * g;
                       buffer[i] = b;
                       parameter.Set(i, p - step * (nesterov ? g + momentum * b : b));
                     }
                   });
}

}  // namespace

REGISTER_KERNEL(kCPU, GlobalNorm, &GlobalNorm);
REGISTER_KERNEL(kCPU, ScaleAll, &ScaleAll);
REGISTER_KERNEL(kCPU, AdamW, &AdamW);
REGISTER_KERNEL(kCPU, Sgd, &Sgd);

}  // namespace infini_train::cpu
