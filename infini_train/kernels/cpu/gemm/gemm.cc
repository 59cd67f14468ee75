#include "infini_train/kernels/cpu/gemm/gemm.h"

#include <array>
#include <cstdint>
#include <type_traits>

#include "infini_train/kernels/cpu/gemm/blocked.h"
#include "infini_train/kernels/cpu/gemm/onednn.h"
#include "infini_train/kernels/cpu/gemm/skinny.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/gemm_composition.h"

namespace infini_train::cpu {
namespace {

// Multiply-adds up to which plain loops beat any preparation.
constexpr std::int64_t kTinyWork = 256;

template <typename T, typename S, typename O>
void RunTiny(const GemmProblem& problem, O* c, const S* a, const S* b, const S* bias) {
  for (std::int64_t i = 0; i < problem.m; ++i) {
    for (std::int64_t j = 0; j < problem.n; ++j) {
      T sum{};
      for (std::int64_t k = 0; k < problem.k; ++k) {
        sum += static_cast<T>(a[i * problem.a.row + k * problem.a.column]) *
               static_cast<T>(b[k * problem.b.row + j * problem.b.column]);
      }
      O& out = c[i * problem.c.row + j * problem.c.column];
      if (bias != nullptr) sum += static_cast<T>(bias[j]);
      if (problem.accumulate) sum += static_cast<T>(out);
      out = static_cast<O>(sum);
    }
  }
}

void RunTinyGemm(const GemmProblem& problem, void* c, const void* a, const void* b,
                 const void* bias) {
  DispatchFloating("Gemm", problem.input, [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = ComputeType<S>;
    const S* typed_a = static_cast<const S*>(a);
    const S* typed_b = static_cast<const S*>(b);
    const S* typed_bias = static_cast<const S*>(bias);
    if (problem.output == problem.input) {
      RunTiny<T>(problem, static_cast<S*>(c), typed_a, typed_b, typed_bias);
    } else if constexpr (!std::is_same_v<S, double>) {
      RunTiny<T>(problem, static_cast<float*>(c), typed_a, typed_b, typed_bias);
    }
  });
}

// A product of few columns is the transpose of one of few rows.
GemmProblem Transpose(const GemmProblem& problem) {
  GemmProblem result = problem;
  result.m = problem.n;
  result.n = problem.m;
  result.a = Transposed(problem.b);
  result.b = Transposed(problem.a);
  result.c = Transposed(problem.c);
  return result;
}

}  // namespace

void RunGemm(const GemmProblem& problem, void* c, const void* a, const void* b, const void* bias) {
  const std::int64_t m = problem.m;
  const std::int64_t n = problem.n;
  const std::int64_t k = problem.k;
  if (m == 0 || n == 0) return;
  if (k == 0 || m * n <= kTinyWork / k) {
    RunTinyGemm(problem, c, a, b, bias);
  } else if (m <= kSkinnyRows) {
    RunSkinnyGemm(problem, c, a, b, bias);
  } else if (n <= kSkinnyRows && bias == nullptr) {
    RunSkinnyGemm(Transpose(problem), c, b, a, nullptr);
  } else if (!IsOneDnnFaster(problem.input) || problem.c.column != 1 ||
             !TryOneDnnGemm(problem, c, a, b, bias)) {
    RunBlockedGemm(problem, c, a, b, bias);
  }
}

namespace {

// Layout of the last two dims. A dim of extent 1 may have any stride.
MatrixLayout LayoutOf(const Tensor& tensor) {
  const int rank = tensor.rank();
  MatrixLayout layout{tensor.strides()[rank - 2], tensor.strides()[rank - 1]};
  if (tensor.shape()[rank - 1] == 1) {
    if (layout.row != 1) layout.column = 1;
  } else if (tensor.shape()[rank - 2] == 1 && layout.column != 1) {
    layout.row = 1;
  }
  return layout;
}

}  // namespace

GemmProblem DescribeGemm(std::string_view op, const Tensor& out, const Tensor& a, const Tensor& b,
                         bool accumulate) {
  GemmProblem problem;
  problem.m = out.size(-2);
  problem.n = out.size(-1);
  problem.k = a.size(-1);
  problem.a = LayoutOf(a);
  problem.b = LayoutOf(b);
  problem.c = LayoutOf(out);
  problem.input = a.dtype();
  problem.output = out.dtype();
  problem.accumulate = accumulate;
  if (problem.output != problem.input &&
      (problem.output != DataType::kFloat32 || problem.input == DataType::kFloat64)) {
    ::infini_train::detail::ThrowUnsupportedDataType(op, problem.output,
                                                     "its inputs' type or float32 as out");
  }
  return problem;
}

namespace {

// A dimension of a batch of products, with the operands' strides in elements.
struct BatchDim {
  std::int64_t extent, a, b, c;
};

void Gemm(const KernelContext&, Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
          bool accumulate) {
  const int rank = out.rank();
  GemmProblem problem = DescribeGemm("Gemm", out, a, b, accumulate);
  const void* bias_data = bias.defined() ? bias.raw_data() : nullptr;
  if (MultipliesInFloat64(a.dtype())) {
    GemmInFloat64(out, a, b, bias, accumulate);
    return;
  }

  std::array<BatchDim, kMaxRank> dims;
  int batch_rank = 0;
  std::int64_t count = 1;
  for (int i = 0; i < rank - 2; ++i) {
    const std::int64_t extent = out.shape()[i];
    count *= extent;
    if (extent != 1) {
      dims[batch_rank++] = {extent, a.strides()[i], b.strides()[i], out.strides()[i]};
    }
  }
  // Products with one b that follow each other in a and out are one product of more rows.
  while (batch_rank > 0 && dims[batch_rank - 1].b == 0 &&
         dims[batch_rank - 1].a == problem.m * problem.a.row &&
         dims[batch_rank - 1].c == problem.m * problem.c.row) {
    problem.m *= dims[batch_rank - 1].extent;
    count = dims[batch_rank - 1].extent == 0 ? 0 : count / dims[batch_rank - 1].extent;
    --batch_rank;
  }
  if (count == 0) return;
  if (count == 1) {
    RunGemm(problem, out.raw_data(), a.raw_data(), b.raw_data(), bias_data);
    return;
  }

  const auto run = [&](std::int64_t index) {
    std::int64_t offset_a = 0, offset_b = 0, offset_c = 0;
    for (int i = batch_rank - 1; i >= 0; --i) {
      const std::int64_t position = index % dims[i].extent;
      index /= dims[i].extent;
      offset_a += position * dims[i].a;
      offset_b += position * dims[i].b;
      offset_c += position * dims[i].c;
    }
    RunGemm(problem, AddressAt(out, offset_c), AddressAt(a, offset_a), AddressAt(b, offset_b),
            bias_data);
  };
  constexpr std::int64_t kSerialWork = 32 * 1024;
  const std::int64_t work = problem.m * problem.n * problem.k;
  if (count >= NumThreads()) {
    ParallelFor(0, count, kSerialWork / (work + 1), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        run(i);
    });
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      run(i);
  }
}

}  // namespace

REGISTER_KERNEL(kCPU, Gemm, &Gemm);

}  // namespace infini_train::cpu
