#include "kernels/cublaslt.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "kernels/gemm_choices.h"
#include "kernels/gemm_search.h"

namespace infini_train::cuda {
namespace {

constexpr std::uint64_t kMaxWorkspaceBytes = std::uint64_t{64} << 20;
constexpr int kMaxCandidates = 32;
/// Products below this are over before the choice of an algorithm matters.
constexpr double kMinSearchFlops = 1e8;

void Check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(std::string("Gemm: ") + call + ": " + cublasLtGetStatusString(status));
}

/// A problem in the library's words.
struct Description {
  cublasLtMatmulDescOpaque_t operation;
  std::array<cublasLtMatrixLayoutOpaque_t, 3> layouts;  // first, second, out

  explicit Description(const GemmProblem& problem) {
    const bool wide = problem.compute == CUBLAS_COMPUTE_64F;
    Check(cublasLtMatmulDescInit(&operation, problem.compute, wide ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescInit");
    Set(CUBLASLT_MATMUL_DESC_TRANSA, problem.first.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, problem.second.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, problem.epilogue);
    // The default otherwise, since not every version takes the type where there is no vector.
    if (problem.bias != nullptr) Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, problem.bias_type);
    if (problem.auxiliary != nullptr)
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem.out.leading);
    if (problem.fast_accumulation) Set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
    SetAddresses(problem);
    auto* layout = layouts.data();
    for (const Matrix* matrix : {&problem.first, &problem.second, &problem.out}) {
      Check(cublasLtMatrixLayoutInit(layout, matrix->type, matrix->rows, matrix->columns,
                                     matrix->leading),
            "cublasLtMatrixLayoutInit");
      const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
        Check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)),
              "cublasLtMatrixLayoutSetAttribute");
      };
      set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(problem.batch));
      set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix->batch_stride);
      ++layout;
    }
  }

  /// What differs between two calls of one key.
  void SetAddresses(const GemmProblem& problem) {
    if (problem.bias != nullptr) Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, problem.bias);
    if (problem.auxiliary != nullptr)
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, problem.auxiliary);
    if (problem.first_scale != nullptr)
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, problem.first_scale);
    if (problem.second_scale != nullptr)
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, problem.second_scale);
  }

  void Set(cublasLtMatmulDescAttributes_t attribute, auto value) {
    Check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }
};

struct Algorithm {
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace;
};

/// Stands for the alternative to a product in the file of choices.
constexpr Algorithm kAlternative = {};

bool AreSame(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) {
  return std::equal(std::begin(a.data), std::end(a.data), std::begin(b.data));
}

bool IsAlternative(const cublasLtMatmulAlgo_t& algorithm) {
  return AreSame(algorithm, kAlternative.algorithm);
}

/// How a thread runs the products of one key.
struct Plan {
  cublasLtHandle_t handle;
  Description description;
  std::optional<Algorithm> algorithm;  // none: the library has none that is worth it

  /// `out` is written; the former out is read from the problem's own.
  cublasStatus_t Run(const Algorithm& choice, const GemmProblem& problem, void* out,
                     void* workspace, cudaStream_t stream) {
    const auto run = [&](auto one, auto former) {
      auto& [first, second, result] = description.layouts;
      return cublasLtMatmul(handle, &description.operation, &one, problem.first.data, &first,
                            problem.second.data, &second, &former, problem.out.data, &result, out,
                            &result, &choice.algorithm, workspace, choice.workspace, stream);
    };
    return problem.compute == CUBLAS_COMPUTE_64F ? run(1.0, problem.accumulate ? 1.0 : 0.0)
                                                 : run(1.0f, problem.accumulate ? 1.0f : 0.0f);
  }
};

Tensor MakeBytes(std::size_t bytes, Device device) {
  if (bytes == 0) return {};
  return Tensor::Empty({static_cast<std::int64_t>(bytes)}, DataType::kUInt8, device);
}

void* DataOf(const Tensor& bytes) {
  return bytes.defined() ? bytes.raw_data() : nullptr;
}

/// The algorithms that the library proposes, the best by its reckoning first.
std::vector<Algorithm> Propose(Plan& plan, const GemmProblem& problem, int count) {
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
  auto& [first, second, out] = plan.description.layouts;
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(count));
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(plan.handle, &plan.description.operation, &first, &second,
                                     &out, &out, &preference, count, results.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  std::vector<Algorithm> proposals;
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS)
      proposals.push_back({result.algo, result.workspaceSize});
  }
  return proposals;
}

/// An algorithm of another process, if the library takes it here.
std::optional<Algorithm> Accept(Plan& plan, const cublasLtMatmulAlgo_t& algorithm) {
  auto& [first, second, out] = plan.description.layouts;
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      plan.handle, &plan.description.operation, &first, &second, &out, &out, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kMaxWorkspaceBytes)
    return std::nullopt;
  return Algorithm{algorithm, result.workspaceSize};
}

std::size_t SizeOf(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : (type == CUDA_R_32F ? 4 : 2);
}

/// The fastest proposal for a large product. Writes what the call itself will write again, but not
/// to an out that it adds to.
std::optional<Algorithm> Search(Plan& plan, const GemmProblem& problem, Device device,
                                cudaStream_t stream, const std::function<void()>& alternative) {
  const std::vector<Algorithm> proposals = Propose(plan, problem, kMaxCandidates);
  if (proposals.empty()) return std::nullopt;
  std::size_t workspace_bytes = 0;
  for (const Algorithm& proposal : proposals)
    workspace_bytes = std::max(workspace_bytes, proposal.workspace);
  const Matrix& out = problem.out;
  const auto elements =
      static_cast<std::size_t>((problem.batch - 1) * out.batch_stride + out.columns * out.leading);
  Tensor workspace, scratch;
  try {
    workspace = MakeBytes(workspace_bytes, device);
    if (problem.accumulate) scratch = MakeBytes(elements * SizeOf(out.type), device);
  } catch (const Error&) {
    return proposals[0];  // No memory to try them in.
  }
  void* const written = problem.accumulate ? scratch.raw_data() : out.data;
  const auto enqueue = [&](std::size_t i) {
    if (i < proposals.size()) {
      return plan.Run(proposals[i], problem, written, DataOf(workspace), stream) ==
             CUBLAS_STATUS_SUCCESS;
    }
    try {
      alternative();
      return true;
    } catch (const Error&) {
      return false;  // No memory to try it in.
    }
  };
  const auto fastest = FindFastest(stream, proposals.size() + (alternative ? 1 : 0), enqueue);
  if (!fastest) return std::nullopt;
  return *fastest < proposals.size() ? proposals[*fastest] : kAlternative;
}

/// What all threads share of a device.
class Library {
 public:
  explicit Library(Device device)
      : device_(device), name_(GetDeviceGuardImpl(device.type()).Properties(device.index()).name) {
    Check(cublasLtCreate(&handle_), "cublasLtCreate");
  }

  Plan MakePlan(const GemmProblem& problem, const GemmProblem::Key& key, cudaStream_t stream,
                const std::function<void()>& alternative) {
    Plan plan{handle_, Description(problem), std::nullopt};
    const std::lock_guard lock(mutex_);
    if (const auto known = algorithms_.find(key); known != algorithms_.end()) {
      plan.algorithm = known->second;
    } else {
      plan.algorithm = Choose(plan, problem, key, stream, alternative);
      algorithms_.emplace(key, plan.algorithm);
    }
    return plan;
  }

  /// Remembers that the library has none after all.
  void Reject(const GemmProblem::Key& key) {
    const std::lock_guard lock(mutex_);
    algorithms_[key].reset();
  }

 private:
  std::optional<Algorithm> Choose(Plan& plan, const GemmProblem& problem,
                                  const GemmProblem::Key& key, cudaStream_t stream,
                                  const std::function<void()>& alternative) const {
    GemmChoices& choices = GemmChoices::Get();
    if (const auto known = choices.Find(name_, key)) {
      if (IsAlternative(*known) && alternative) return std::nullopt;
      if (const auto accepted = Accept(plan, *known)) return accepted;
      choices.Drop(name_, key);
    }
    const bool worth_it = problem.Flops() >= kMinSearchFlops &&
                          (choices.has_file() || !IsDeterministic()) &&
                          !GetDeviceGuardImpl(device_.type()).IsCapturing(stream);
    if (worth_it) {
      const auto found = Search(plan, problem, device_, stream, alternative);
      if (!found) return std::nullopt;
      const cublasLtMatmulAlgo_t kept = choices.Keep(name_, key, found->algorithm);
      if (IsAlternative(kept)) return std::nullopt;
      return AreSame(kept, found->algorithm) ? found : Accept(plan, kept);
    }
    const std::vector<Algorithm> proposals = Propose(plan, problem, 1);
    return proposals.empty() ? std::nullopt : std::optional(proposals[0]);
  }

  Device device_;
  std::string name_;
  cublasLtHandle_t handle_ = nullptr;
  std::recursive_mutex mutex_;  // An alternative that is tried may consist of products, too.
  std::unordered_map<GemmProblem::Key, std::optional<Algorithm>, GemmKeyHash> algorithms_;
};

Library& LibraryOf(Device device) {
  static std::mutex mutex;
  static std::array<Library*, kMaxDevicesPerType> libraries = {};
  const std::lock_guard lock(mutex);
  Library*& library = libraries[static_cast<std::size_t>(device.index())];
  if (library == nullptr) library = new Library(device);  // Ends with the process.
  return *library;
}

}  // namespace

bool Multiply(Device device, cudaStream_t stream, const GemmProblem& problem,
              const std::function<void()>& alternative) {
  // A thread has plans of its own, so that it can set their addresses without asking others.
  using Plans = std::unordered_map<GemmProblem::Key, Plan, GemmKeyHash>;
  static thread_local std::array<Plans, kMaxDevicesPerType> plans_of_devices;
  Plans& plans = plans_of_devices[static_cast<std::size_t>(device.index())];
  const GemmProblem::Key key = problem.MakeKey();
  auto place = plans.find(key);
  if (place == plans.end()) {
    constexpr std::size_t kMaxPlans = 4096;
    if (plans.size() >= kMaxPlans) plans.clear();
    const Plan made = LibraryOf(device).MakePlan(problem, key, stream, alternative);
    place = plans.emplace(key, made).first;
  }
  Plan& plan = place->second;
  if (!plan.algorithm) return false;
  plan.description.SetAddresses(problem);
  const Tensor workspace = MakeBytes(plan.algorithm->workspace, device);
  const cublasStatus_t status =
      plan.Run(*plan.algorithm, problem, problem.out.data, DataOf(workspace), stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    plan.algorithm.reset();
    LibraryOf(device).Reject(key);
    return false;
  }
  Check(status, "cublasLtMatmul");
  return true;
}

std::string CublasLtVersion() {
  const std::size_t version = cublasLtGetVersion();
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

}  // namespace infini_train::cuda
