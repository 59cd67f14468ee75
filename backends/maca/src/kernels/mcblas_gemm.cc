// Matrix products by mcBLAS. What the library does not take is left to the portable kernel, what it
// has no epilogue for is composed from other ops.
#include "backends/simt/kernels/gemm/gemm.h"

#include <mcblas/mcblas.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>

#include "backends/simt/branches.h"
#include "backends/simt/kernels/elementwise/elementwise.h"
#include "backends/simt/kernels/gemm/gemm_layout.h"
#include "backends/simt/kernels/gemm/grouped_gemm.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/dtype.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/gemm_composition.h"
#include "infini_train/ops/kernel_library.h"
#include "infini_train/ops/matmul_precision.h"
#include "kernels/gelu_gradient.h"
#include "runtime/policy.h"

namespace infini_train::simt {
namespace {

void Check(mcblasStatus_t status, const char* call) {
  if (status != MCBLAS_STATUS_SUCCESS)
    throw Error(std::string("Gemm: ") + call + ": " + mcblasGetStatusString(status));
}

/// The calling thread's handle for a device and the branch that it works in: kernels of one handle
/// may use the same memory. Handles live as long as the process: the runtime may be gone before a
/// thread's objects are. They are made together, before any work is captured.
mcblasHandle_t HandleOf(Device device) {
  using Handles = std::array<mcblasHandle_t, kMaxBranches>;
  thread_local std::unordered_map<int, Handles> all;
  Handles& handles = all[device.index()];
  if (handles.back() == nullptr) {
    const DeviceGuard current(device);  // starts the runtime, which comes first
    for (mcblasHandle_t& handle : handles) {
      Check(mcblasCreate(&handle), "mcblasCreate");
      Check(mcblasSetPointerMode(handle, MCBLAS_POINTER_MODE_HOST), "mcblasSetPointerMode");
    }
  }
  return handles[CurrentBranch()];
}

/// The one place that decides on float64 sums for float32 and lower types.
bool SumsInFloat64(DataType dtype) {
  return MultipliesInFloat64(dtype) ||
         (dtype != DataType::kFloat64 && maca::GetPolicy().gemm_fp64_accumulation);
}

macaDataType TypeOf(DataType dtype) {
  if (dtype == DataType::kFloat64) return MACA_R_64F;
  if (dtype == DataType::kFloat16) return MACA_R_16F;
  return dtype == DataType::kBFloat16 ? MACA_R_16BF : MACA_R_32F;
}

mcblasComputeType_t ComputeTypeFor(DataType dtype) {
  if (dtype == DataType::kFloat64) return MCBLAS_COMPUTE_64F;
  if (dtype != DataType::kFloat32) return MCBLAS_COMPUTE_32F;
  switch (GetMatmulPrecision()) {
    case MatmulPrecision::kTf32:
      return MCBLAS_COMPUTE_32F_FAST_TF32;
    case MatmulPrecision::kBFloat16:
      return MCBLAS_COMPUTE_32F_FAST_16BF;
    default:
      return MCBLAS_COMPUTE_32F;
  }
}

/// The library counts in int.
bool Fits(const GemmLayout& layout) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  for (const GemmMatrix* matrix : {&layout.first, &layout.second, &layout.out}) {
    if (matrix->rows > kMost || matrix->columns > kMost || matrix->leading > kMost) return false;
  }
  return true;
}

void Multiply(const Context& context, const GemmLayout& layout, bool accumulate) {
  const detail::LaunchDevice device(context);
  const mcblasHandle_t handle = HandleOf(context.device);
  Check(mcblasSetStream(handle, context.stream), "mcblasSetStream");
  const GemmMatrix &a = layout.first, &b = layout.second, &c = layout.out;
  const auto operation = [](const GemmMatrix& matrix) {
    return matrix.transposed ? MCBLAS_OP_T : MCBLAS_OP_N;
  };
  const auto to_int = [](std::int64_t value) { return static_cast<int>(value); };
  const std::int64_t depth = a.transposed ? a.rows : a.columns;
  // Factors are of the type of the sums.
  const double alpha64 = 1, beta64 = accumulate ? 1 : 0;
  const float alpha32 = 1, beta32 = accumulate ? 1 : 0;
  const bool wide = a.dtype == DataType::kFloat64;
  const void* const alpha = wide ? static_cast<const void*>(&alpha64) : &alpha32;
  const void* const beta = wide ? static_cast<const void*>(&beta64) : &beta32;
  const mcblasComputeType_t compute = ComputeTypeFor(a.dtype);
  if (layout.batch == 1) {
    Check(mcblasGemmEx(handle, operation(a), operation(b), to_int(c.rows), to_int(c.columns),
                       to_int(depth), alpha, a.data, TypeOf(a.dtype), to_int(a.leading), b.data,
                       TypeOf(b.dtype), to_int(b.leading), beta, c.data, TypeOf(c.dtype),
                       to_int(c.leading), compute, MCBLAS_GEMM_DEFAULT),
          "mcblasGemmEx");
    return;
  }
  Check(mcblasGemmStridedBatchedEx(
            handle, operation(a), operation(b), to_int(c.rows), to_int(c.columns), to_int(depth),
            alpha, a.data, TypeOf(a.dtype), to_int(a.leading), a.batch_stride, b.data,
            TypeOf(b.dtype), to_int(b.leading), b.batch_stride, beta, c.data, TypeOf(c.dtype),
            to_int(c.leading), c.batch_stride, to_int(layout.batch), compute, MCBLAS_GEMM_DEFAULT),
        "mcblasGemmStridedBatchedEx");
}

/// `bias` [N] for each row of out [.., M, N].
Tensor SpreadBias(const Tensor& bias, const Tensor& out) {
  Dims strides = Dims::Filled(out.rank(), 0);
  strides.back() = bias.strides()[0];
  return bias.AsStrided(out.shape(), strides, bias.offset());
}

/// Whether the library adds to what is in out, of a half type, before it rounds a product. It is
/// known to where rows are vectors of 16 bytes and the product is large.
bool AddsBeforeRounding(const GemmLayout& layout, const Tensor& out) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 20, kVector = 16;
  bool aligned = true;
  for (const GemmMatrix* matrix : {&layout.first, &layout.second, &layout.out}) {
    const auto size = static_cast<std::int64_t>(SizeOf(matrix->dtype));
    aligned = aligned && matrix->leading * size % kVector == 0 &&
              matrix->batch_stride * size % kVector == 0 &&
              reinterpret_cast<std::uintptr_t>(matrix->data) % kVector == 0;
  }
  return aligned && out.numel() >= kLarge;
}

struct SumOfTerms {
  template <typename... C>
  SIMT_DEVICE float operator()(C... terms) const {
    return (terms + ...);
  }
};

/// out = product, in float32, plus bias or the former out or both.
template <typename T>
void AddToProduct(const Context& context, Tensor& out, const Tensor& product, const Tensor& bias,
                  bool accumulate) {
  const SumOfTerms sum;
  if (!bias.defined()) {
    LaunchElementwise<T, float, T>(context, sum, out, product, out);
  } else if (!accumulate) {
    LaunchElementwise<T, float, T>(context, sum, out, product, SpreadBias(bias, out));
  } else {
    LaunchElementwise<T, float, T, T>(context, sum, out, product, SpreadBias(bias, out), out);
  }
}

void Gemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
          bool accumulate) {
  if (out.numel() == 0) return;
  if (SumsInFloat64(a.dtype())) {
    GemmInFloat64(out, a, b, bias, accumulate);
    return;
  }
  const std::optional<GemmLayout> layout = DescribeGemmLayout(out, a, b);
  if (!layout || !Fits(*layout)) {
    PortableGemm(context, out, a, b, bias, accumulate);
    return;
  }
  const bool adds = bias.defined() || accumulate;
  const bool adds_both = bias.defined() && accumulate;
  if (adds && SizeOf(out.dtype()) == 2 && (adds_both || !AddsBeforeRounding(*layout, out))) {
    Tensor product = Tensor::Empty(out.shape(), DataType::kFloat32, context.device);
    Gemm(context, product, a, b, Tensor(), false);
    DispatchTypes(Types<Float16, BFloat16>{}, "Gemm", out.dtype(), [&](auto tag) {
      AddToProduct<typename decltype(tag)::type>(context, out, product, bias, accumulate);
    });
    return;
  }
  if (adds_both) {
    // A bias is what the product is added to, so that there is no other such.
    PortableGemm(context, out, a, b, bias, accumulate);
    return;
  }
  if (bias.defined()) Call<op::Copy>(out, SpreadBias(bias, out));
  Multiply(context, *layout, adds);
}

void GemmGelu(const Context&, Tensor& out, Tensor& pre, const Tensor& a, const Tensor& b,
              const Tensor& bias) {
  ComposeGemmGelu(out, pre, a, b, bias);
}

void GemmGeluBackward(const Context& context, Tensor& out, Tensor& column_sums, const Tensor& a,
                      const Tensor& b, const Tensor& pre) {
  Gemm(context, out, a, b, Tensor(), false);
  MultiplyByGeluSlope(context, out, pre, column_sums);
}

void GemmRowSums(const Context&, Tensor& out, Tensor& row_sums, const Tensor& a, const Tensor& b,
                 bool accumulate) {
  ComposeGemmRowSums(out, row_sums, a, b, accumulate);
}

// Groups of rows are multiplied by the portable kernel.

void GroupedGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                 const Tensor& counts, bool accumulate) {
  if (SumsInFloat64(a.dtype())) {
    GroupedGemmInFloat64(out, a, b, counts, accumulate);
  } else {
    PortableGroupedGemm(context, out, a, b, counts, accumulate);
  }
}

void KGroupedGemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b,
                  const Tensor& counts, bool accumulate) {
  if (SumsInFloat64(a.dtype())) {
    KGroupedGemmInFloat64(out, a, b, counts, accumulate);
  } else {
    PortableKGroupedGemm(context, out, a, b, counts, accumulate);
  }
}

std::string McblasVersion() {
  int version = 0;
  Check(mcblasGetVersion(HandleOf(Device(DeviceType::kPrivateUse1, 0)), &version),
        "mcblasGetVersion");
  return "mcBLAS " + std::to_string(version);
}

}  // namespace

SIMT_REGISTER_KERNEL(Gemm, &Gemm);
SIMT_REGISTER_KERNEL(GemmGelu, &GemmGelu);
SIMT_REGISTER_KERNEL(GemmGeluBackward, &GemmGeluBackward);
SIMT_REGISTER_KERNEL(GemmRowSums, &GemmRowSums);
SIMT_REGISTER_KERNEL(GroupedGemm, &GroupedGemm);
SIMT_REGISTER_KERNEL(KGroupedGemm, &KGroupedGemm);

REGISTER_KERNEL_LIBRARY(kPrivateUse1, Gemm, &McblasVersion);
REGISTER_KERNEL_LIBRARY(kPrivateUse1, GemmGelu, &McblasVersion);
REGISTER_KERNEL_LIBRARY(kPrivateUse1, GemmGeluBackward, &McblasVersion);
REGISTER_KERNEL_LIBRARY(kPrivateUse1, GemmRowSums, &McblasVersion);

}  // namespace infini_train::simt
