#include "backends/simt/kernels/elementwise/arithmetic.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

#define INFINI_TRAIN_BINARY(Name, types)                                                     \
  void Name##Kernel(const Context& context, Tensor& out, const Tensor& a, const Tensor& b) { \
    RunElementwise(context, #Name, types{}, Name##Op(), out, a, b);                          \
  }                                                                                          \
  SIMT_REGISTER_KERNEL(Name, &Name##Kernel)

INFINI_TRAIN_BINARY(Add, ArithmeticTypes);
INFINI_TRAIN_BINARY(Sub, ArithmeticTypes);
INFINI_TRAIN_BINARY(Mul, ArithmeticTypes);
INFINI_TRAIN_BINARY(Div, FloatingTypes);
INFINI_TRAIN_BINARY(Pow, FloatingTypes);
INFINI_TRAIN_BINARY(Maximum, ArithmeticTypes);
INFINI_TRAIN_BINARY(Minimum, ArithmeticTypes);
INFINI_TRAIN_BINARY(LogicalAnd, Types<bool>);
INFINI_TRAIN_BINARY(LogicalOr, Types<bool>);

}  // namespace
}  // namespace infini_train::simt
