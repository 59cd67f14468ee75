#include "backends/simt/kernels/gemm/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "infini_train/core/dtype.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train::simt {
namespace {

constexpr std::uint64_t kMaxWorkspaceBytes = std::uint64_t{32} << 20;
constexpr std::int64_t kMaxBatch = 65535;

void Check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(std::string("Gemm: ") + call + ": " + cublasLtGetStatusString(status));
}

/// The largest power of two, up to 256, that divides an address.
std::uint32_t AlignmentOf(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(address & -address, 256));
}

/// A matrix as cuBLASLt stores it: columns that are `leading` elements apart. `transposed`: a
/// product takes it the other way round.
struct Matrix {
  void* data = nullptr;
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, leading = 0, batch_stride = 0;
  bool transposed = false;
};

/// out = first second + bias of each column, `batch` times.
struct Problem {
  Matrix first, second, out;
  std::int64_t batch = 1;
  const void* bias = nullptr;
};

cudaDataType_t TypeOf(DataType dtype) {
  if (dtype == DataType::kFloat64) return CUDA_R_64F;
  if (dtype == DataType::kFloat16) return CUDA_R_16F;
  return dtype == DataType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// The last two dims of a tensor, of `rows` rows, where one of their strides is 1.
std::optional<Matrix> Find(const Tensor& tensor, std::int64_t rows, std::int64_t batch_stride) {
  const std::int64_t columns = tensor.size(-1);
  const std::int64_t row_stride = tensor.strides()[tensor.rank() - 2];
  const std::int64_t column_stride = tensor.strides()[tensor.rank() - 1];
  const auto type = TypeOf(tensor.dtype());
  void* const data = tensor.raw_data();
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1))
    return Matrix{data, type, columns, rows, std::max(row_stride, columns), batch_stride, true};
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1))
    return Matrix{data, type, rows, columns, std::max(column_stride, rows), batch_stride, false};
  return std::nullopt;
}

/// The product that cuBLASLt is to do; none where it cannot.
std::optional<Problem> Describe(const Tensor& out, const Tensor& a, const Tensor& b,
                                const Tensor& bias) {
  using Strides = std::array<std::int64_t, 3>;
  const int rank = out.rank();
  const auto strides_of = [&](int i) {
    return Strides{a.strides()[i], b.strides()[i], out.strides()[i]};
  };
  const Strides row = strides_of(rank - 2);
  std::int64_t m = out.size(-2);
  Problem problem;
  Strides batch = {};
  for (int i = rank - 3; i >= 0; --i) {
    const Strides step = strides_of(i);
    const std::int64_t extent = out.shape()[i], count = problem.batch;
    if (extent == 1) continue;
    if (count == 1 && step == Strides{m * row[0], 0, m * row[2]}) {
      m *= extent;  // Products with one b that follow each other are one product of more rows.
      continue;
    }
    if (count == 1) batch = step;
    if (step != Strides{count * batch[0], count * batch[1], count * batch[2]} && count > 1)
      return std::nullopt;
    problem.batch *= extent;
  }
  auto left = Find(a, m, batch[0]), right = Find(b, b.size(-2), batch[1]);
  const auto result = Find(out, m, batch[2]);
  if (a.size(-1) == 0 || problem.batch > kMaxBatch || !left || !right || !result)
    return std::nullopt;
  if (result->transposed) {
    // Rows of out are columns of its transpose, b^T a^T.
    std::swap(left, right);
    left->transposed = !left->transposed;
    right->transposed = !right->transposed;
  }
  if (bias.defined()) {
    problem.bias = bias.raw_data();
    if (!result->transposed || bias.strides()[0] != 1 || bias.dtype() != out.dtype() ||
        AlignmentOf(problem.bias) < 16) {
      return std::nullopt;
    }
  }
  std::tie(problem.first, problem.second, problem.out) = std::tie(*left, *right, *result);
  return problem;
}

/// A problem in the library's words.
struct Description {
  cublasLtMatmulDescOpaque_t operation;
  std::array<cublasLtMatrixLayoutOpaque_t, 3> layouts;  // first, second, out

  explicit Description(const Problem& problem) {
    const bool wide = problem.first.type == CUDA_R_64F;
    Check(cublasLtMatmulDescInit(&operation, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 wide ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescInit");
    Set(CUBLASLT_MATMUL_DESC_TRANSA, problem.first.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, problem.second.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (problem.bias != nullptr) {
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, problem.bias);
    }
    auto* layout = layouts.data();
    for (const Matrix& matrix : {problem.first, problem.second, problem.out}) {
      Check(cublasLtMatrixLayoutInit(layout, matrix.type, matrix.rows, matrix.columns,
                                     matrix.leading),
            "cublasLtMatrixLayoutInit");
      const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
        Check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)),
              "cublasLtMatrixLayoutSetAttribute");
      };
      set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(problem.batch));
      set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
      ++layout;
    }
  }

  void Set(cublasLtMatmulDescAttributes_t attribute, auto value) {
    Check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }
};

using Choice = std::optional<cublasLtMatmulHeuristicResult_t>;

/// The library's algorithm for a problem, if it has one.
Choice Ask(cublasLtHandle_t handle, Description& description, const Problem& problem) {
  cublasLtMatmulPreferenceOpaque_t preference;
  Check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    Check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspaceBytes);
  // Parts of a sum are added in the type computed in, and always in the same order.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(problem.first.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(problem.second.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(problem.out.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(problem.out.data));
  auto& [first, second, out] = description.layouts;
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  cublasLtMatmulAlgoGetHeuristic(handle, &description.operation, &first, &second, &out, &out,
                                 &preference, 1, &result, &found);
  return found > 0 ? Choice(result) : std::nullopt;
}

/// The library's handle for the current device, and the remembered algorithm for a problem.
std::pair<cublasLtHandle_t, Choice> Choose(int device, Description& description,
                                           const Problem& problem) {
  using Key = std::array<std::int64_t, 24>;
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  static std::map<Key, Choice> choices;
  Key key = {device, problem.batch, problem.bias != nullptr};
  auto* part = &key[3];
  for (const Matrix& matrix : {problem.first, problem.second, problem.out}) {
    for (const std::int64_t value : {std::int64_t{matrix.type}, matrix.rows, matrix.columns,
                                     matrix.leading, matrix.batch_stride})
      *part++ = value;
    *part++ = AlignmentOf(matrix.data) * 2 + matrix.transposed;
  }
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) Check(cublasLtCreate(&handle), "cublasLtCreate");
  const auto [place, is_new] = choices.try_emplace(key);
  if (is_new) place->second = Ask(handle, description, problem);
  return {handle, place->second};
}

/// Whether cuBLASLt took the product.
bool Multiply(const Context& context, const Problem& problem, bool accumulate) {
  const detail::LaunchDevice device(context);
  Description description(problem);
  const auto [handle, choice] = Choose(context.device.index(), description, problem);
  if (!choice) return false;
  const auto workspace = Tensor::Empty({static_cast<std::int64_t>(choice->workspaceSize)},
                                       DataType::kUInt8, context.device);
  const auto run = [&](auto one, auto former) {
    auto& [first, second, out] = description.layouts;
    Check(cublasLtMatmul(handle, &description.operation, &one, problem.first.data, &first,
                         problem.second.data, &second, &former, problem.out.data, &out,
                         problem.out.data, &out, &choice->algo, workspace.raw_data(),
                         choice->workspaceSize, context.stream),
          "cublasLtMatmul");
  };
  if (problem.first.type == CUDA_R_64F) {
    run(1.0, accumulate ? 1.0 : 0.0);
  } else {
    run(1.0f, accumulate ? 1.0f : 0.0f);
  }
  return true;
}

void Gemm(const Context& context, Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
          bool accumulate) {
  if (out.numel() == 0) return;
  if (MultipliesInFloat64(a.dtype())) {
    GemmInFloat64(out, a, b, bias, accumulate);
    return;
  }
  const std::optional<Problem> problem = Describe(out, a, b, bias);
  // cuBLASLt rounds to a half type between the bias and the former out.
  const bool rounds_twice = accumulate && bias.defined() && SizeOf(out.dtype()) == 2;
  if (!problem || rounds_twice || !Multiply(context, *problem, accumulate))
    PortableGemm(context, out, a, b, bias, accumulate);
}

void GemmGelu(const Context&, Tensor& out, Tensor& pre, const Tensor& a, const Tensor& b,
              const Tensor& bias) {
  ComposeGemmGelu(out, pre, a, b, bias);
}

void GemmGeluBackward(const Context&, Tensor& out, const Tensor& a, const Tensor& b,
                      const Tensor& pre) {
  ComposeGemmGeluBackward(out, a, b, pre);
}

void GemmRowSums(const Context&, Tensor& out, Tensor& row_sums, const Tensor& a, const Tensor& b,
                 bool accumulate) {
  ComposeGemmRowSums(out, row_sums, a, b, accumulate);
}

}  // namespace

SIMT_REGISTER_KERNEL(Gemm, &Gemm);
SIMT_REGISTER_KERNEL(GemmGelu, &GemmGelu);
SIMT_REGISTER_KERNEL(GemmGeluBackward, &GemmGeluBackward);
SIMT_REGISTER_KERNEL(GemmRowSums, &GemmRowSums);

}  // namespace infini_train::simt
