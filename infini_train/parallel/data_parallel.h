#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/core/api.h"
#include "infini_train/core/tensor.h"
#include "infini_train/parallel/ccl.h"

namespace infini_train::parallel {

/// Adds the gradients of ranks that have the same parameters and other data, while backward still
/// runs (Li et al., "PyTorch Distributed: experiences on accelerating data parallel training",
/// 2020). Gradients are views of flat buckets, filled in reverse order of the parameters; when all
/// of a bucket are final in the last backward of a step, it is reduced on a stream of its own.
///
///     DataParallel sync(communicator, parameters);
///     sync.Broadcast(parameters);
///     for each step:
///       sync.BeginStep();
///       for each micro-batch: (the last after sync.LastBackward()) Backward(loss);
///       sync.EndStep();  // gradients are the sums over ranks, for the current stream
///
/// All ranks do the same steps. A parameter without a gradient after all backwards has none after
/// EndStep: all ranks must leave out the same. The first step learns how often each gradient
/// becomes final (RegisterFinalGradHook) and overlaps nothing. For use by one thread.
class INFINI_TRAIN_API DataParallel {
 public:
  static constexpr double kDefaultBucketMb = 25.0;

  /// `parameters` in order of their use in forward; those that require no gradient are ignored.
  /// `bucket_mb`: least size of a bucket in 2^20 bytes; larger than 0. `communicator` outlives
  /// this.
  DataParallel(Communicator& communicator, const NamedTensors& parameters,
               double bucket_mb = kDefaultBucketMb);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  Communicator& communicator() const { return communicator_; }

  /// Makes tensors (parameters, buffers) those of rank 0.
  void Broadcast(const NamedTensors& tensors);

  /// Sets all gradients to 0.
  void BeginStep();
  /// The next backward is the last of the step.
  void LastBackward();
  /// Starts what LastBackward left over and makes the current stream wait for all. Throws Error
  /// when the reduction failed, or a gradient became final more often than before.
  void EndStep();

  /// Bytes of each bucket, in the order in which they are reduced.
  std::vector<std::size_t> bucket_bytes() const;
  /// How many buckets were under way before the last step's EndStep.
  int overlapped_buckets() const { return overlapped_; }

 private:
  struct Parameter {
    std::string name;
    Tensor tensor;
    Tensor grad = {};  ///< view of the bucket
    std::size_t bucket = 0;
    int hook = 0;
    int finals = 0;           ///< in this backward
    int expected_finals = 0;  ///< in each backward; 0 when unknown
    bool reached = false;     ///< in this step
  };
  struct Bucket {
    Tensor memory;
    int open = 0;  ///< parameters that are not final
    int num_parameters = 0;
    bool started = false;
  };

  void OnFinalGrad(Parameter& parameter);
  /// Starts the buckets that are full, in their order.
  void StartFullBuckets();
  void Start(Bucket& bucket);

  Communicator& communicator_;
  std::vector<Parameter> parameters_;  ///< in order of buckets
  std::vector<Bucket> buckets_;
  StreamHandle stream_ = nullptr;
  EventHandle ready_ = nullptr;  ///< a bucket's gradients are final
  EventHandle done_ = nullptr;   ///< all are reduced
  std::size_t next_bucket_ = 0;
  bool is_last_backward_ = false;
  bool knows_finals_ = false;
  int overlapped_ = 0;
};

}  // namespace infini_train::parallel
