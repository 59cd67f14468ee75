#include "infini_train/trainer/train_step.h"

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/trainer/setup.h"

namespace infini_train::trainer {

Tensor AccumulateGradients(const models::Model& model, const std::vector<TokenBatch>& batches,
                           std::optional<DataType> autocast_dtype) {
  std::int64_t num_targets = 0;
  for (const TokenBatch& batch : batches)
    num_targets += batch.num_targets;
  const Device device = model.module->head_weight().device();
  Tensor total;
  for (const TokenBatch& batch : batches) {
    if (batch.num_targets == 0) continue;
    const auto [inputs, targets] = ToDevice(batch, device);
    Tensor loss;
    {
      const Autocast autocast(autocast_dtype);
      loss = model.module->Loss(inputs, targets, 1.0 / static_cast<double>(num_targets));
    }
    Backward(loss);
    const NoGrad no_grad;
    total = total.defined() ? total + loss.Detach() : loss.Detach();
  }
  return total;
}

}  // namespace infini_train::trainer
