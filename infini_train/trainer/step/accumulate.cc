#include "infini_train/trainer/step/accumulate.h"

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"

namespace infini_train::trainer {

Tensor AccumulateGradients(const models::Model& model, std::span<const DeviceBatch> batches,
                           std::optional<DataType> autocast_dtype) {
  std::int64_t num_targets = 0;
  for (const DeviceBatch& batch : batches)
    num_targets += batch.num_targets;
  Tensor total;
  for (const DeviceBatch& batch : batches) {
    if (batch.num_targets == 0) continue;
    Tensor loss;
    {
      const Autocast autocast(autocast_dtype);
      loss =
          model.module->Loss(batch.inputs, batch.targets, 1.0 / static_cast<double>(num_targets));
    }
    Backward(loss);
    const NoGrad no_grad;
    total = total.defined() ? total + loss.Detach() : loss.Detach();
  }
  model.module->UpdateFp8Scales();
  return total;
}

}  // namespace infini_train::trainer
