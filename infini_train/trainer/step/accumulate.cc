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

/// What sums of losses are multiplied by to make a mean: on the host, where it is part of captured
/// work, and on the device.
struct MeanFactor {
  double on_host = 0.0;
  Tensor on_device;  ///< or undefined: 1
};

/// With a factor of the device the host's is such that losses, and gradients on their way, have
/// about the size that those of a mean have.
MeanFactor FactorOfMean(std::span<const DeviceBatch> batches, std::int64_t num_targets,
                        std::int64_t num_ranks, const Tensor& inverse_targets) {
  if (!inverse_targets.defined()) return {1.0 / static_cast<double>(num_targets), {}};
  std::int64_t positions = 0;
  for (const DeviceBatch& batch : batches)
    positions += num_ranks * batch.targets.numel();
  const auto count = static_cast<double>(positions);
  const NoGrad no_grad;
  return {1.0 / count, inverse_targets * Scalar(count)};
}

}  // namespace

Tensor AccumulateGradients(const models::Model& model, std::span<const DeviceBatch> batches,
                           std::optional<DataType> autocast_dtype,
                           parallel::DataParallel* data_parallel, Tensor* router_sums,
                           const Tensor& inverse_targets) {
  const bool notes_routers =
      router_sums != nullptr && model.config.transformer.num_local_experts > 0;
  std::int64_t num_targets = 0;
  std::int64_t num_passes = 0;
  const DeviceBatch* last = nullptr;
  // Where another rank has targets, this one takes part without; and all do where the number of
  // targets is no part of the work.
  const auto counts = [&](const DeviceBatch& batch) {
    return inverse_targets.defined() || batch.num_targets + batch.num_targets_of_others > 0;
  };
  for (const DeviceBatch& batch : batches) {
    if (!counts(batch)) continue;
    num_targets += batch.num_targets + batch.num_targets_of_others;
    ++num_passes;
    last = &batch;
  }
  if (num_targets == 0) return {};
  if (data_parallel != nullptr) data_parallel->BeginStep();
  const std::int64_t ranks = data_parallel != nullptr ? data_parallel->communicator().size() : 1;
  const MeanFactor factor = FactorOfMean(batches, num_targets, ranks, inverse_targets);
  Tensor total;
  for (const DeviceBatch& batch : batches) {
    if (!counts(batch)) continue;
    Tensor loss;
    nn::RouterStatistics routers;
    nn::ForwardContext context = batch.context();
    context.auxiliary_weight = 1.0 / static_cast<double>(ranks * num_passes);
    if (notes_routers) context.routers = &routers;
    {
      const Autocast autocast(autocast_dtype);
      loss = model.module->Loss(batch.inputs, batch.targets, factor.on_host, context,
                                factor.on_device);
    }
    if (data_parallel != nullptr && &batch == last) data_parallel->LastBackward();
    Backward(loss);
    const NoGrad no_grad;
    const Tensor sums =
        notes_routers ? WithRouters(loss, routers, context.auxiliary_weight) : loss.Detach();
    total = total.defined() ? total + sums : sums;
  }
  if (data_parallel != nullptr) {
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
