#include <cstdint>

#include "backends/simt/kernels/elementwise/convert.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

struct SelectOp {
  template <typename T>
  SIMT_DEVICE T operator()(std::uint8_t condition, T a, T b) const {
    return condition != 0 ? a : b;
  }
};

template <typename T>
struct MaskOp {
  T value;
  SIMT_DEVICE T operator()(T x, std::uint8_t mask) const { return mask != 0 ? value : x; }
};

void Where(const Context& context, Tensor& out, const Tensor& condition, const Tensor& a,
           const Tensor& b) {
  CheckDataType("Where", condition, DataType::kBool);
  CheckDataType("Where", a, out.dtype());
  CheckDataType("Where", b, out.dtype());
  DispatchSize(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LaunchElementwise<T, std::uint8_t, T, T>(context, SelectOp(), out, condition, a, b);
  });
}

void MaskedFill(const Context& context, Tensor& out, const Tensor& x, const Tensor& mask,
                Scalar value) {
  CheckDataType("MaskedFill", mask, DataType::kBool);
  CheckDataType("MaskedFill", x, out.dtype());
  DispatchSize(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LaunchElementwise<T, T, std::uint8_t>(context, MaskOp<T>{BitsOf<T>(value, out.dtype())}, out, x,
                                          mask);
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(Where, &Where);
SIMT_REGISTER_KERNEL(MaskedFill, &MaskedFill);

}  // namespace infini_train::simt
