#include <cstddef>
#include <cstdint>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/optimizer/tensor_table.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

enum List { kParam, kGrad, kBuffer, kMaster, kLow, kLists };

template <typename P, typename G>
struct SgdUpdate {
  using Access = ParameterAccess<P, G, kMaster, kLists>;
  using Hyper = SgdParams;
  using C = typename Access::C;
  static constexpr int kGradientFactor = 1;

  SIMT_DEVICE SgdUpdate(const TensorTable<kLists>& tensors, const double* scalars,
                        const SgdParams& hyper)
      : table(tensors),
        momentum(static_cast<C>(hyper.momentum)),
        rest(hyper.first_step ? C(1) : static_cast<C>(1.0 - hyper.dampening)),
        decay(static_cast<C>(hyper.weight_decay)),
        lr(static_cast<C>(Load(scalars))),
        grad_factor(static_cast<C>(Load(scalars + kGradientFactor))),
        nesterov(hyper.nesterov),
        first_step(hyper.first_step) {}

  template <int kWidth>
  SIMT_DEVICE void Run(int k, std::int64_t i) const {
    Vec<C, kWidth> grad = Access::template Grad<kWidth>(table, k, i);
    Vec<C, kWidth> param = Access::template Param<kWidth>(table, k, i);
    for (int x = 0; x < kWidth; ++x)
      grad[x] = grad[x] * grad_factor + decay * param[x];
    if (table.data[k][kBuffer] != nullptr) {
      // On the first step the buffer, which may hold anything, becomes g.
      Vec<C, kWidth> buffer{};
      if (!first_step) buffer = Access::template Get<kWidth, C>(table, kBuffer, k, i);
      for (int x = 0; x < kWidth; ++x) {
        buffer[x] = (first_step ? C(0) : momentum * buffer[x]) + rest * grad[x];
        grad[x] = nesterov ? grad[x] + momentum * buffer[x] : buffer[x];
      }
      Access::Set(table, kBuffer, k, i, buffer);
    }
    for (int x = 0; x < kWidth; ++x)
      param[x] = param[x] - lr * grad[x];
    Access::SetParam(table, k, i, param);
  }

  const TensorTable<kLists>& table;
  C momentum, rest, decay, lr, grad_factor;
  bool nesterov, first_step;
};

void Sgd(const Context& context, MutableTensorList params, TensorList grads,
         MutableTensorList momentum_buffers, MutableTensorList masters, const Tensor& scalars,
         const SgdParams& hyper) {
  UpdateParameters<SgdUpdate>(
      context, params, grads, masters, scalars, hyper, [&](std::size_t k, void** data) {
        data[kBuffer] = momentum_buffers.empty() ? nullptr : momentum_buffers[k].raw_data();
      });
}

}  // namespace

SIMT_REGISTER_KERNEL(Sgd, &Sgd);

}  // namespace infini_train::simt
