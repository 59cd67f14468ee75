#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/node.h"
#include "infini_train/core/error.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::RecordKind;
using autograd::ShouldRecord;
using detail::GradTarget;

std::vector<const Tensor*> Pointers(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> pointers;
  pointers.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    pointers.push_back(&tensor);
  return pointers;
}

/// Joins `parts` along dim; part i is what xs[i] contributes, with the dimension, and its gradient
/// has xs[i]'s shape.
Tensor Join(std::string_view name, const std::vector<Tensor>& xs, const std::vector<Tensor>& parts,
            int dim) {
  DataType dtype = parts.front().dtype();
  Dims shape = parts.front().shape();
  shape[dim] = 0;
  for (const Tensor& part : parts) {
    dtype = PromoteTypes(dtype, part.dtype());
    shape[dim] += part.shape()[dim];
  }
  Tensor out = Tensor::Empty(shape, dtype, parts.front().device());
  std::vector<std::int64_t> extents;
  std::int64_t start = 0;
  for (const Tensor& part : parts) {
    const std::int64_t extent = part.shape()[dim];
    Tensor target = raw::Narrow(out, dim, start, extent);
    Call<op::Copy>(target, part);
    extents.push_back(extent);
    start += extent;
  }
  if (IsFloatingPoint(dtype) && ShouldRecord(TensorList(xs))) {
    std::vector<GradTarget> targets(xs.begin(), xs.end());
    const Tensor* const outputs[] = {&out};
    Record(name, outputs, Pointers(xs),
           [targets = std::move(targets), extents = std::move(extents),
            dim](BackwardContext& context) {
             const Tensor grad_out = context.TakeGradOutput();
             std::int64_t start = 0;
             for (std::size_t i = 0; i < targets.size(); ++i) {
               const int input = static_cast<int>(i);
               if (context.NeedsGrad(input)) {
                 const Tensor grad = raw::Narrow(grad_out, dim, start, extents[i]);
                 context.SetGrad(input,
                                 raw::To(raw::Reshape(grad, targets[i].shape), targets[i].dtype));
               }
               start += extents[i];
             }
           });
  }
  return out;
}

void CheckSomeTensors(std::string_view name, const std::vector<Tensor>& xs) {
  if (xs.empty()) throw Error(fmt::format("{}: expected at least one tensor", name));
}

}  // namespace

std::vector<Tensor> Split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim) {
  const int position = NormalizeDim(dim, x.rank());
  std::int64_t total = 0;
  bool valid = true;
  for (const std::int64_t size : sizes) {
    valid &= size >= 0 && !__builtin_add_overflow(total, size, &total);
  }
  if (!valid || total != x.shape()[position]) {
    throw Error(fmt::format("Split: pieces of [{}] do not add up to dimension {} of {}",
                            fmt::join(sizes, ", "), dim, x.shape().ToString()));
  }
  std::vector<Tensor> pieces;
  pieces.reserve(sizes.size());
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(raw::Narrow(x, position, size == 0 ? 0 : start, size));
    start += size;
  }
  if (ShouldRecord({&x}) && !pieces.empty()) {
    const Tensor* const inputs[] = {&x};
    Record(
        "Split", Pointers(pieces), inputs,
        [target = GradTarget(x), device = x.device(), sizes, position](BackwardContext& context) {
          Tensor grad_x = Tensor::Empty(target.shape, target.dtype, device);
          std::int64_t start = 0;
          for (std::size_t i = 0; i < sizes.size(); ++i) {
            Tensor part = raw::Narrow(grad_x, position, sizes[i] == 0 ? 0 : start, sizes[i]);
            const Tensor grad = context.TakeGradOutput(static_cast<int>(i));
            if (grad.defined()) {
              Call<op::Copy>(part, grad);
            } else {
              Call<op::Fill>(part, Scalar(0));
            }
            start += sizes[i];
          }
          context.SetGrad(0, std::move(grad_x));
        },
        RecordKind::kView);
  }
  return pieces;
}

Tensor Concat(const std::vector<Tensor>& xs, int dim) {
  CheckSomeTensors("Concat", xs);
  const int position = NormalizeDim(dim, xs.front().rank());
  for (const Tensor& x : xs) {
    Dims shape = x.shape();
    if (shape.size() == xs.front().rank()) shape[position] = xs.front().shape()[position];
    if (!(shape == xs.front().shape())) {
      throw Error(fmt::format("Concat: {} does not fit {} along dimension {}", x.shape().ToString(),
                              xs.front().shape().ToString(), dim));
    }
  }
  return Join("Concat", xs, xs, position);
}

Tensor Stack(const std::vector<Tensor>& xs, int dim) {
  CheckSomeTensors("Stack", xs);
  const int position = NormalizeDim(dim, xs.front().rank() + 1);
  Dims shape = xs.front().shape();
  shape.insert(position, 1);
  std::vector<Tensor> parts;
  parts.reserve(xs.size());
  for (const Tensor& x : xs) {
    if (!(x.shape() == xs.front().shape())) {
      throw Error(fmt::format("Stack: expected equal shapes, got {} and {}",
                              xs.front().shape().ToString(), x.shape().ToString()));
    }
    parts.push_back(raw::Reshape(x, shape));
  }
  return Join("Stack", xs, parts, position);
}

}  // namespace infini_train
