#include <cstddef>
#include <cstdint>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/optimizer/tensor_table.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

enum List { kParam, kGrad, kFirst, kSecond, kMaster, kLow, kLists };

template <typename P, typename G>
struct AdamWUpdate {
  using Access = ParameterAccess<P, G, kMaster, kLists>;
  using Hyper = AdamWParams;
  using C = typename Access::C;
  static constexpr int kGradientFactor = 3;

  SIMT_DEVICE AdamWUpdate(const TensorTable<kLists>& tensors, const double* scalars,
                          const AdamWParams& hyper)
      : table(tensors),
        beta1(static_cast<C>(hyper.beta1)),
        beta2(static_cast<C>(hyper.beta2)),
        rest1(static_cast<C>(1.0 - hyper.beta1)),
        rest2(static_cast<C>(1.0 - hyper.beta2)),
        eps(static_cast<C>(hyper.eps)) {
    const double lr = Load(scalars);
    keep = static_cast<C>(1.0 - lr * hyper.weight_decay);
    step = static_cast<C>(lr / Load(scalars + 1));
    root_factor = static_cast<C>(1.0 / Sqrt(Load(scalars + 2)));
    grad_factor = static_cast<C>(Load(scalars + kGradientFactor));
  }

  template <int kWidth>
  SIMT_DEVICE void Run(int k, std::int64_t i) const {
    const Vec<C, kWidth> grad = Access::template Grad<kWidth>(table, k, i);
    Vec<C, kWidth> param = Access::template Param<kWidth>(table, k, i);
    Vec<C, kWidth> first = Access::template Get<kWidth, C>(table, kFirst, k, i);
    Vec<C, kWidth> second = Access::template Get<kWidth, C>(table, kSecond, k, i);
    for (int x = 0; x < kWidth; ++x) {
      const C g = grad[x] * grad_factor;
      first[x] = beta1 * first[x] + rest1 * g;
      second[x] = beta2 * second[x] + rest2 * g * g;
      param[x] = param[x] * keep - step * first[x] / (Sqrt(second[x]) * root_factor + eps);
    }
    Access::Set(table, kFirst, k, i, first);
    Access::Set(table, kSecond, k, i, second);
    Access::SetParam(table, k, i, param);
  }

  const TensorTable<kLists>& table;
  C beta1, beta2, rest1, rest2, eps;
  C keep, step, root_factor, grad_factor;
};

void AdamW(const Context& context, MutableTensorList params, TensorList grads,
           MutableTensorList exp_avgs, MutableTensorList exp_avg_sqs, MutableTensorList masters,
           const Tensor& scalars, const AdamWParams& hyper) {
  UpdateParameters<AdamWUpdate>(context, params, grads, masters, scalars, hyper,
                                [&](std::size_t k, void** data) {
                                  data[kFirst] = exp_avgs[k].raw_data();
                                  data[kSecond] = exp_avg_sqs[k].raw_data();
                                });
}

}  // namespace

SIMT_REGISTER_KERNEL(AdamW, &AdamW);

}  // namespace infini_train::simt
