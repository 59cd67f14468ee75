#include "infini_train/trainer/step/accumulate.h"

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"

namespace infini_train::trainer {

Tensor AccumulateGradients(const models::Model& model, std::span<const DeviceBatch> batches,
                           std::optional<DataType> autocast_dtype,
                           parallel::DataParallel* data_parallel) {
  std::int64_t num_targets = 0;
  const DeviceBatch* last = nullptr;
  for (const DeviceBatch& batch : batches) {
    num_targets += batch.num_targets;
    if (batch.num_targets > 0) last = &batch;
  }
  const bool is_parallel = data_parallel != nullptr && last != nullptr;
  if (is_parallel) {
    num_targets *= data_parallel->communicator().size();
    data_parallel->BeginStep();
  }
  Tensor total;
  for (const DeviceBatch& batch : batches) {
    if (batch.num_targets == 0) continue;
    Tensor loss;
    {
      const Autocast autocast(autocast_dtype);
      loss =
          model.module->Loss(batch.inputs, batch.targets, 1.0 / static_cast<double>(num_targets));
    }
    if (is_parallel && &batch == last) data_parallel->LastBackward();
    Backward(loss);
    const NoGrad no_grad;
    total = total.defined() ? total + loss.Detach() : loss.Detach();
  }
  if (is_parallel) {
    data_parallel->EndStep();
    data_parallel->communicator().AllReduce(total);
  }
  model.module->UpdateFp8Scales();
  return total;
}

}  // namespace infini_train::trainer
