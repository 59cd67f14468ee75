#include "infini_train/parallel/parallel_context.h"

#include <fmt/format.h>

#include <utility>

#include "infini_train/core/error.h"

namespace infini_train::parallel {

ParallelContext::ParallelContext(Device device) : device_(device) {}

ParallelContext::ParallelContext(std::unique_ptr<Communicator> world, int thread_rank,
                                 const ParallelDegrees& degrees)
    : rank_(world->rank()),
      world_size_(world->size()),
      thread_rank_(thread_rank),
      device_(world->device()),
      degrees_(degrees),
      world_(std::move(world)) {
  const auto [tensor, data, pipeline] = degrees_;
  if (tensor < 1 || data < 1 || pipeline < 1 || tensor * data * pipeline != world_size_) {
    throw Error(fmt::format(
        "expected degrees of parallelism whose product is the number of ranks, {}, got {} (tensor) "
        "* {} (data) * {} (pipeline)",
        world_size_, tensor, data, pipeline));
  }
  coordinates_ = {rank_ % tensor, rank_ / tensor % data, rank_ / tensor / data};
  if (data == world_size_) {
    data_parallel_ = world_.get();
  } else {
    split_ = world_->Split(coordinates_.tensor + tensor * coordinates_.pipeline, coordinates_.data);
    data_parallel_ = data > 1 ? split_.get() : nullptr;
  }
}

ParallelContext::~ParallelContext() = default;

void ParallelContext::ShareFromFirst(std::span<double> values) const {
  if (!world_ || values.empty()) return;
  const Tensor shared =
      Tensor::Empty({static_cast<std::int64_t>(values.size())}, DataType::kFloat64, device_);
  shared.CopyFromHost(values.data(), values.size_bytes());
  world_->Broadcast(shared, 0);
  shared.CopyToHost(values.data());
  world_->CheckErrors();
}

void ParallelContext::Stop(const std::string& reason) noexcept {
  if (world_) world_->Stop(reason);
  if (split_) split_->Stop(reason);
}

}  // namespace infini_train::parallel
