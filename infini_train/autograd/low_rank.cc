#include "infini_train/autograd/low_rank.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/functions/linear.h"
#include "infini_train/autograd/node.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train {
namespace {

using autograd::BackwardContext;
using autograd::Record;
using autograd::RecordKind;
using autograd::SavedTensor;
using detail::ProductInput;

void CheckTerm(const LowRankTerm& term, std::int64_t in_features, std::int64_t out_features) {
  const bool fits = term.a.rank() == 2 && term.b.rank() == 2 && term.a.size(1) == in_features &&
                    term.a.size(0) == term.b.size(1) && term.row >= 0 &&
                    term.row + term.b.size(0) <= out_features;
  if (fits) return;
  throw Error(fmt::format(
      "AddLowRank: expected a [rank, {}] and b [features, rank] within {} features, "
      "got {}, and {} from feature {}",
      in_features, out_features, term.a.shape().ToString(), term.b.shape().ToString(), term.row));
}

Tensor Product(const Tensor& a, const Tensor& b, DataType out_dtype) {
  Tensor out = Tensor::Empty({a.size(0), b.size(1)}, out_dtype, a.device());
  Call<op::Gemm>(out, a, b, Tensor(), false);
  return out;
}

Tensor Scaled(const Tensor& x, double scale) {
  if (scale == 1.0) return x;
  Tensor out = Tensor::Empty(x.shape(), x.dtype(), x.device());
  Call<op::MulScalar>(out, raw::Contiguous(x), Scalar(scale));
  return out;
}

/// scale * a of all terms, one below the other: x meets them in one product.
Tensor StackScaled(std::span<const LowRankTerm> terms, double scale, DataType dtype) {
  if (terms.size() == 1) return raw::GemmOperand(raw::To(Scaled(terms[0].a, scale), dtype));
  std::int64_t ranks = 0;
  for (const LowRankTerm& term : terms)
    ranks += term.a.size(0);
  const Tensor stacked = Tensor::Empty({ranks, terms[0].a.size(1)}, dtype, terms[0].a.device());
  std::int64_t first = 0;
  for (const LowRankTerm& term : terms) {
    Tensor part = raw::Narrow(stacked, 0, first, term.a.size(0));
    Call<op::Copy>(part, Scaled(term.a, scale));
    first += term.a.size(0);
  }
  return stacked;
}

/// What a term leaves for backward.
struct SavedTerm {
  SavedTensor b;  ///< in the type of the product
  std::int64_t row = 0;
  std::int64_t features = 0;
  std::int64_t rank = 0;
  DataType a_dtype;
  DataType b_dtype;
};

}  // namespace

Tensor AddLowRank(const Tensor& y, const Tensor& x, std::span<const LowRankTerm> terms,
                  double scale) {
  if (x.rank() < 1 || y.rank() < 1 || x.numel() / x.size(-1) != y.numel() / y.size(-1)) {
    throw Error(fmt::format("AddLowRank: expected y [.., out] and x [.., in], got {} and {}",
                            y.shape().ToString(), x.shape().ToString()));
  }
  for (const LowRankTerm& term : terms)
    CheckTerm(term, x.size(-1), y.size(-1));
  autograd::CheckInPlace("AddLowRank", y);
  if (terms.empty()) return y;
  const DataType dtype = y.dtype();
  const Tensor rows = raw::GemmOperand(raw::AsMatrix(raw::To(x, dtype)));
  const Tensor sum = raw::AsMatrix(y);
  if (!sum.SharesStorageWith(y)) {
    throw Error(
        fmt::format("AddLowRank: expected a contiguous y, got strides {}", y.strides().ToString()));
  }
  const Tensor a = StackScaled(terms, scale, dtype);
  const Tensor hidden = Product(rows, raw::Transpose(a, 0, 1), dtype);

  std::vector<SavedTerm> saved;
  std::vector<Tensor> inputs = {y, x};
  bool trains = false;
  for (const LowRankTerm& term : terms) {
    inputs.insert(inputs.end(), {term.a, term.b});
    trains |= term.a.requires_grad() || term.b.requires_grad();
  }
  const bool record = autograd::ShouldRecord(TensorList(inputs));
  std::int64_t first = 0;
  for (const LowRankTerm& term : terms) {
    const std::int64_t rank = term.a.size(0);
    const std::int64_t features = term.b.size(0);
    const Tensor b = raw::GemmOperand(detail::ProductParameter(term.b, dtype));
    Tensor part = raw::Narrow(sum, 1, term.row, features);
    Call<op::Gemm>(part, raw::Narrow(hidden, 1, first, rank), raw::Transpose(b, 0, 1), Tensor(),
                   true);
    if (record) {
      saved.push_back({SavedTensor(b), term.row, features, rank, term.a.dtype(), term.b.dtype()});
    }
    first += rank;
  }
  if (!record) return y;

  const bool uses_column_sums = autograd::UsesColumnSums(y);
  auto backward = [input = trains ? ProductInput(x, rows) : ProductInput(),
                   hidden = trains ? SavedTensor(hidden) : SavedTensor(), a = SavedTensor(a),
                   saved = std::move(saved), scale, x_shape = x.shape(),
                   x_dtype = x.dtype()](BackwardContext& context) {
    const Tensor grad_y = context.TakeGradOutput();
    const Tensor grad = raw::AsMatrix(raw::Contiguous(grad_y));
    const DataType dtype = grad.dtype();
    const Tensor stacked = a.Unpack();
    const Tensor hidden_values = hidden.Unpack();
    Tensor grad_hidden = Tensor::Empty({grad.size(0), stacked.size(0)}, dtype, grad.device());
    std::int64_t first = 0;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const SavedTerm& term = saved[i];
      const Tensor grad_part = raw::Narrow(grad, 1, term.row, term.features);
      Tensor grad_hidden_part = raw::Narrow(grad_hidden, 1, first, term.rank);
      Call<op::Gemm>(grad_hidden_part, grad_part, term.b.Unpack(), Tensor(), false);
      if (const int index = 3 + 2 * static_cast<int>(i); context.NeedsGrad(index)) {
        // hidden has the scale already.
        context.SetGrad(index, raw::To(Product(raw::Transpose(grad_part, 0, 1),
                                               raw::Narrow(hidden_values, 1, first, term.rank),
                                               detail::GemmResultType(dtype, term.b_dtype)),
                                       term.b_dtype));
      }
      first += term.rank;
    }
    first = 0;
    Tensor rows;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const SavedTerm& term = saved[i];
      if (const int index = 2 + 2 * static_cast<int>(i); context.NeedsGrad(index)) {
        const Tensor grad_hidden_part = raw::Narrow(grad_hidden, 1, first, term.rank);
        if (!rows.defined()) rows = raw::GemmOperand(input.Unpack());
        context.SetGrad(index, raw::To(Scaled(Product(raw::Transpose(grad_hidden_part, 0, 1), rows,
                                                      detail::GemmResultType(dtype, term.a_dtype)),
                                              scale),
                                       term.a_dtype));
      }
      first += term.rank;
    }
    rows = {};
    if (context.NeedsGrad(1)) {
      const Tensor grad_x = Product(grad_hidden, stacked, dtype);
      context.SetGrad(1, raw::To(raw::Reshape(grad_x, x_shape), x_dtype));
    }
    if (context.NeedsGrad(0)) context.SetGrad(0, grad_y, context.grad_output_column_sums());
  };
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs)
    pointers.push_back(&input);
  const Tensor* output = pointers[0];
  auto& node = Record("AddLowRank", std::span(&output, 1), std::span<const Tensor* const>(pointers),
                      std::move(backward), RecordKind::kInPlace);
  node.set_uses_column_sums(uses_column_sums);
  return y;
}

}  // namespace infini_train
