#include "backends/simt/kernels/index/row_sort.h"

namespace infini_train::simt {
namespace {

void Sort(const Context& context, Tensor& values, Tensor& indices, const Tensor& x,
          bool descending) {
  SortFirst(context, values, indices, x, descending);
}

void TopK(const Context& context, Tensor& values, Tensor& indices, const Tensor& x, bool largest) {
  SortFirst(context, values, indices, x, largest);
}

}  // namespace

SIMT_REGISTER_KERNEL(Sort, &Sort);
SIMT_REGISTER_KERNEL(TopK, &TopK);

}  // namespace infini_train::simt
