#pragma once

#include <memory>
#include <span>
#include <string>

#include "infini_train/core/api.h"
#include "infini_train/core/device/device.h"
#include "infini_train/parallel/ccl.h"

namespace infini_train::parallel {

/// How many ranks share the work in each way. Consecutive ranks first differ in their tensor
/// coordinate, then in data, then in pipeline: rank = tensor + T * (data + D * pipeline). Sequence
/// and expert parallelism divide work among ranks that these three have placed.
struct ParallelDegrees {
  int tensor = 1;
  int data = 1;
  int pipeline = 1;

  bool operator==(const ParallelDegrees&) const = default;
};

/// Who this rank is and with whom it works. One object for each rank, handed to all that need it;
/// there are no globals.
class INFINI_TRAIN_API ParallelContext {
 public:
  /// The only rank.
  explicit ParallelContext(Device device);
  /// A rank of several. All ranks of `world` call it. Throws Error unless the product of the
  /// degrees is its size. `thread_rank`: place of the rank's thread in its process.
  ParallelContext(std::unique_ptr<Communicator> world, int thread_rank,
                  const ParallelDegrees& degrees);
  ~ParallelContext();
  ParallelContext(const ParallelContext&) = delete;
  ParallelContext& operator=(const ParallelContext&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  int thread_rank() const { return thread_rank_; }
  Device device() const { return device_; }
  bool is_first() const { return rank_ == 0; }

  const ParallelDegrees& degrees() const { return degrees_; }
  /// The place of this rank in each degree.
  const ParallelDegrees& coordinates() const { return coordinates_; }

  /// All ranks; null where there is one.
  Communicator* world() const { return world_.get(); }
  /// The ranks that have the same part of the model and other data; null where there is one.
  Communicator* data_parallel() const { return data_parallel_; }

  /// Gives all ranks the numbers of rank 0, on the host. All ranks call it, with as many.
  void ShareFromFirst(std::span<double> values) const;

  /// Stops all communicators: what this rank calls, and others as far as they are reached, ends
  /// with an Error that contains `reason`. From any thread.
  void Stop(const std::string& reason) noexcept;

 private:
  int rank_ = 0;
  int world_size_ = 1;
  int thread_rank_ = 0;
  Device device_;
  ParallelDegrees degrees_;
  ParallelDegrees coordinates_{0, 0, 0};
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> split_;  ///< where data_parallel_ is not the world
  Communicator* data_parallel_ = nullptr;
};

}  // namespace infini_train::parallel
