#pragma once

#include <functional>

#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/node.h"
#include "infini_train/autograd/selective_recompute.h"
#include "infini_train/core/tensor.h"

/// What linear functions, products of an input and a weight, keep for backward.
namespace infini_train::detail {

/// The input, kept or made again from what others keep (SelectiveRecompute).
class ProductInput {
 public:
  ProductInput() = default;
  /// `rows` are x in the type of the product.
  ProductInput(const Tensor& x, const Tensor& rows)
      : again_(x.dtype() == rows.dtype() ? autograd::RecomputeOf(x) : nullptr) {
    if (!again_) kept_ = autograd::SavedTensor(rows);
  }

  /// The rows; undefined where there is no input.
  Tensor Unpack() const { return again_ ? raw::AsMatrix(again_()) : kept_.Unpack(); }

 private:
  autograd::SavedTensor kept_;
  std::function<Tensor()> again_;
};

/// The weight, kept in the type of the product or, by SelectiveRecompute, as it is.
class ProductWeight {
 public:
  ProductWeight() = default;
  /// `product` is the weight in that type. `keep`: whether backward needs it.
  ProductWeight(const Tensor& weight, const Tensor& product, bool keep) : dtype_(product.dtype()) {
    if (keep) kept_ = autograd::SavedTensor(SelectiveRecompute::Enabled() ? weight : product);
  }

  Tensor Unpack() const { return raw::GemmOperand(raw::To(kept_.Unpack(), dtype_)); }

 private:
  autograd::SavedTensor kept_;
  DataType dtype_ = DataType::kFloat32;
};

}  // namespace infini_train::detail
