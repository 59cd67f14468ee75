#include <cstdint>
#include <string_view>

#include "backends/simt/kernels/elementwise/arithmetic.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

template <typename Op>
void Compare(const Context& context, std::string_view name, const Tensor& out, const Tensor& a,
             const Tensor& b) {
  DispatchTypes(AllTypes{}, name, a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType(name, b, a.dtype());
    CheckDataType(name, out, DataType::kBool);
    LaunchElementwise<std::uint8_t, T, T>(context, Op(), out, a, b);
  });
}

#define INFINI_TRAIN_COMPARISON(Name, Op, first, second)                                     \
  void Name##Kernel(const Context& context, Tensor& out, const Tensor& a, const Tensor& b) { \
    Compare<Op>(context, #Name, out, first, second);                                         \
  }                                                                                          \
  SIMT_REGISTER_KERNEL(Name, &Name##Kernel)

INFINI_TRAIN_COMPARISON(Eq, EqOp, a, b);
INFINI_TRAIN_COMPARISON(Ne, NeOp, a, b);
INFINI_TRAIN_COMPARISON(Lt, LtOp, a, b);
INFINI_TRAIN_COMPARISON(Le, LeOp, a, b);
INFINI_TRAIN_COMPARISON(Gt, LtOp, b, a);
INFINI_TRAIN_COMPARISON(Ge, LeOp, b, a);

}  // namespace
}  // namespace infini_train::simt
