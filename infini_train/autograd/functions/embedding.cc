#include <fmt/format.h>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/node.h"
#include "infini_train/autograd/parameter_casts.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {

Tensor Embedding(const Tensor& weight, const Tensor& ids) {
  detail::CheckFloating("Embedding", weight);
  detail::CheckIndex("Embedding", ids);
  if (weight.rank() != 2) {
    throw Error(fmt::format("Embedding: expected weight [vocabulary, hidden], got {}",
                            weight.shape().ToString()));
  }
  const DataType dtype = detail::MatmulDataType("Embedding", weight, weight);
  // A row of the converted table is the row converted.
  const Tensor copy = ParameterCasts::Find(weight, dtype);
  const Tensor table = copy.defined() ? copy : raw::Contiguous(weight);
  const Tensor rows = raw::Contiguous(ids);
  Dims shape = ids.shape();
  shape.push_back(weight.size(1));
  Tensor out = Tensor::Empty(shape, table.dtype(), weight.device());
  Call<op::Embedding>(out, table, rows);
  out = raw::To(std::move(out), dtype);
  if (autograd::ShouldRecord({&weight})) {
    autograd::Record("Embedding", {&out}, {&weight},
                     [rows = autograd::SavedTensor(rows), table_shape = weight.shape(),
                      dtype = weight.dtype()](autograd::BackwardContext& context) {
                       // Narrower rows are added as they are.
                       Tensor grad_out = raw::Contiguous(context.TakeGradOutput());
                       if (!detail::GemmWrites(grad_out.dtype(), dtype))
                         grad_out = raw::To(std::move(grad_out), dtype);
                       Tensor target = context.AccumulationTarget(0);
                       const bool accumulate = target.defined();
                       if (!accumulate) target = raw::Zeros(table_shape, dtype, grad_out.device());
                       Call<op::EmbeddingBackward>(target, grad_out, rows.Unpack());
                       if (!accumulate) context.SetGrad(0, std::move(target));
                     });
  }
  return out;
}

}  // namespace infini_train
