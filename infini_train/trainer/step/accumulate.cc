#include "infini_train/trainer/step/accumulate.h"

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/nn/router_statistics.h"

namespace infini_train::trainer {
namespace {

/// A pass's share of what a step adds up: loss, load-balancing loss and summary.
Tensor WithRouters(const Tensor& loss, nn::RouterStatistics& routers, double weight) {
  const Tensor balance = routers.LoadBalancingLoss().Detach() * Scalar(weight);
  return Concat({Reshape(loss.Detach(), {1}), Reshape(balance, {1}), Flatten(routers.Summary())},
                0);
}

}  // namespace

Tensor AccumulateGradients(const models::Model& model, std::span<const DeviceBatch> batches,
                           std::optional<DataType> autocast_dtype,
                           parallel::DataParallel* data_parallel, Tensor* router_sums) {
  const bool notes_routers =
      router_sums != nullptr && model.config.transformer.num_local_experts > 0;
  std::int64_t num_targets = 0;
  std::int64_t num_passes = 0;
  const DeviceBatch* last = nullptr;
  for (const DeviceBatch& batch : batches) {
    num_targets += batch.num_targets;
    if (batch.num_targets == 0) continue;
    ++num_passes;
    last = &batch;
  }
  const bool is_parallel = data_parallel != nullptr && last != nullptr;
  if (is_parallel) {
    num_targets *= data_parallel->communicator().size();
    num_passes *= data_parallel->communicator().size();
    data_parallel->BeginStep();
  }
  Tensor total;
  for (const DeviceBatch& batch : batches) {
    if (batch.num_targets == 0) continue;
    Tensor loss;
    nn::RouterStatistics routers;
    nn::ForwardContext context;
    context.auxiliary_weight = 1.0 / static_cast<double>(num_passes);
    if (notes_routers) context.routers = &routers;
    {
      const Autocast autocast(autocast_dtype);
      loss = model.module->Loss(batch.inputs, batch.targets, 1.0 / static_cast<double>(num_targets),
                                context);
    }
    if (is_parallel && &batch == last) data_parallel->LastBackward();
    Backward(loss);
    const NoGrad no_grad;
    const Tensor sums =
        notes_routers ? WithRouters(loss, routers, context.auxiliary_weight) : loss.Detach();
    total = total.defined() ? total + sums : sums;
  }
  if (is_parallel) {
    data_parallel->EndStep();
    parallel::Communicator& communicator = data_parallel->communicator();
    parallel::CclGroup group(communicator);
    communicator.AllReduce(total);
    for (const Tensor& magnitudes : model.module->Fp8Magnitudes())
      communicator.AllReduce(magnitudes, parallel::ReduceOp::kMax);
    group.End();
  }
  model.module->UpdateFp8Scales();
  if (!notes_routers || !total.defined()) return total;
  *router_sums = Slice(total, 0, 1);
  return Select(total, 0, 0);
}

}  // namespace infini_train::trainer
