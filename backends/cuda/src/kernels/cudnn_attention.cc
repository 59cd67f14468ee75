// The only file that includes cuDNN's graph interface, which takes long to compile.
#include "kernels/cudnn_attention.h"

#include <cudnn.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"

namespace infini_train::cuda {
namespace {

using cudnn_frontend::graph::Graph;
using cudnn_frontend::graph::Tensor_attributes;

constexpr std::int64_t kElementBytes = 2;
/// cuDNN moves vectors of so many bytes and does not look at addresses and strides.
constexpr std::int64_t kVectorBytes = 16;
constexpr std::int64_t kVector = kVectorBytes / kElementBytes;
constexpr std::int64_t kMaxHeadSize = 256;

/// What a [B, H, T, D] tensor is in a problem; the forward pass has the first four.
enum Role : std::uint8_t { kQ, kK, kV, kOut, kGradOut, kGradQ, kGradK, kGradV, kRoles };
constexpr Role kForwardRoles[] = {kQ, kK, kV, kOut};
constexpr Role kBackwardRoles[] = {kQ, kK, kV, kOut, kGradOut, kGradQ, kGradK, kGradV};

constexpr bool IsOfKeys(Role role) {
  return role == kK || role == kV || role == kGradK || role == kGradV;
}

/// Names of tensors in a graph.
constexpr std::int64_t UidOf(Role role) {
  return role + 1;
}
constexpr std::int64_t kLseUid = kRoles + 1;

struct Operand {
  std::byte* data = nullptr;
  std::array<std::int64_t, 3> strides = {};  // elements; the last stride is 1
};

struct Problem {
  bool backward = false, deterministic = false, causal = false;
  DataType dtype = DataType::kBFloat16;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, head_size = 0;
  std::int64_t window = 0;
  float scale = 1;
  std::array<Operand, kRoles> operands = {};
  std::byte* lse = nullptr;  // contiguous

  std::vector<std::int64_t> Shape(Role role) const {
    return {batch, IsOfKeys(role) ? kv_heads : heads, IsOfKeys(role) ? keys : queries, head_size};
  }
  std::vector<std::int64_t> Strides(Role role) const {
    const auto& strides = operands[role].strides;
    return {strides[0], strides[1], strides[2], 1};
  }

  /// How many parts it falls into that share nothing but keys: those of the batch or, where that
  /// is one, of the key/value heads.
  std::int64_t Parts() const { return batch > 1 ? batch : kv_heads; }

  Problem Part(std::int64_t first, std::int64_t count) const {
    Problem part = *this;
    const int dim = batch > 1 ? 0 : 1;
    const std::int64_t group = heads / kv_heads;
    for (const Role role : kBackwardRoles) {
      const std::int64_t step = dim == 1 && !IsOfKeys(role) ? group : 1;
      Operand& operand = part.operands[role];
      if (operand.data != nullptr)
        operand.data += first * step * operand.strides[dim] * kElementBytes;
    }
    const std::int64_t first_head = first * (dim == 0 ? heads : group);
    part.lse += first_head * queries * static_cast<std::int64_t>(sizeof(float));
    (dim == 0 ? part.batch : part.kv_heads) = count;
    if (dim == 1) part.heads = count * group;
    return part;
  }
};

/// All that a plan depends on.
using Key = std::array<std::int64_t, 12 + 3 * kRoles>;

Key KeyOf(const Problem& p) {
  Key key = {p.backward, p.deterministic, p.causal,   static_cast<std::int64_t>(p.dtype),
             p.batch,    p.heads,         p.kv_heads, p.queries,
             p.keys,     p.head_size,     p.window,   std::bit_cast<std::int32_t>(p.scale)};
  auto* part = &key[12];
  for (const Operand& operand : p.operands)
    part = std::copy(operand.strides.begin(), operand.strides.end(), part);
  return key;
}

bool Place(Operand& operand, const Tensor& tensor) {
  operand.data = static_cast<std::byte*>(tensor.raw_data());
  bool whole_vectors = reinterpret_cast<std::uintptr_t>(operand.data) % kVectorBytes == 0;
  for (int i = 0; i < 3; ++i) {
    operand.strides[i] = tensor.strides()[i];
    whole_vectors = whole_vectors && operand.strides[i] > 0 && operand.strides[i] % kVector == 0;
  }
  return whole_vectors && tensor.strides()[3] == 1;
}

/// A problem that cuDNN may take; none where it does not or computes something else. `tensors` are
/// in the order of their roles.
std::optional<Problem> Describe(std::initializer_list<const Tensor*> tensors, const Tensor& lse,
                                const AttentionParams& params) {
  const Tensor& q = *tensors.begin()[kQ];
  const Tensor& k = *tensors.begin()[kK];
  Problem p;
  p.backward = tensors.size() == kRoles;
  p.deterministic = p.backward && IsDeterministic();
  p.causal = params.causal;
  p.dtype = q.dtype();
  p.batch = q.size(0);
  p.heads = q.size(1);
  p.kv_heads = k.size(1);
  p.queries = q.size(2);
  p.keys = k.size(2);
  p.head_size = q.size(3);
  p.window = params.sliding_window < p.keys ? params.sliding_window : 0;
  p.scale = static_cast<float>(params.scale);
  p.lse = static_cast<std::byte*>(lse.raw_data());
  const bool half = p.dtype == DataType::kBFloat16 || p.dtype == DataType::kFloat16;
  const bool every_query_has_a_key = p.keys > 0 && (!p.causal || p.queries <= p.keys);
  // cuDNN looks for the largest score before it scales, and its windows follow the diagonal.
  if (!half || q.numel() == 0 || !every_query_has_a_key || p.head_size > kMaxHeadSize ||
      p.head_size % kVector != 0 || params.dropout_p > 0 || !(p.scale > 0) ||
      (p.window > 0 && !p.causal) || lse.dtype() != DataType::kFloat32 || !lse.IsContiguous()) {
    return std::nullopt;
  }
  int role = 0;
  for (const Tensor* tensor : tensors) {
    if (!Place(p.operands[role++], *tensor)) return std::nullopt;
  }
  return p;
}

/// Both bounds of cuDNN's band include the diagonal, as a sliding window does.
template <typename Attributes>
void SetParams(Attributes& attributes, const Problem& p) {
  using cudnn_frontend::DiagonalAlignment_t;
  attributes.set_attn_scale(p.scale);
  if (!p.causal) return;
  attributes
      .set_diagonal_alignment(p.queries == p.keys ? DiagonalAlignment_t::TOP_LEFT
                                                  : DiagonalAlignment_t::BOTTOM_RIGHT)
      .set_diagonal_band_right_bound(0);
  if (p.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(p.window));
}

std::shared_ptr<Graph> MakeGraph(const Problem& p) {
  using cudnn_frontend::DataType_t;
  auto graph = std::make_shared<Graph>();
  graph->set_io_data_type(p.dtype == DataType::kFloat16 ? DataType_t::HALF : DataType_t::BFLOAT16)
      .set_intermediate_data_type(DataType_t::FLOAT)
      .set_compute_data_type(DataType_t::FLOAT);
  const auto describe = [&](Tensor_attributes& x, Role role) -> Tensor_attributes& {
    return x.set_uid(UidOf(role)).set_dim(p.Shape(role)).set_stride(p.Strides(role));
  };
  const auto describe_lse = [&](Tensor_attributes& x) -> Tensor_attributes& {
    return x.set_uid(kLseUid)
        .set_dim({p.batch, p.heads, p.queries, 1})
        .set_stride({p.heads * p.queries, p.queries, 1, 1})
        .set_data_type(DataType_t::FLOAT);
  };
  const auto input = [&](Role role) {
    Tensor_attributes x;
    return graph->tensor(describe(x, role));
  };
  const auto q = input(kQ), k = input(kK), v = input(kV);
  if (p.backward) {
    Tensor_attributes lse;
    cudnn_frontend::graph::SDPA_backward_attributes attributes;
    SetParams(attributes, p);
    attributes.set_name("AttentionBackward").set_deterministic_algorithm(p.deterministic);
    const auto grads = graph->sdpa_backward(q, k, v, input(kOut), input(kGradOut),
                                            graph->tensor(describe_lse(lse)), attributes);
    describe(*grads[0], kGradQ).set_output(true);
    describe(*grads[1], kGradK).set_output(true);
    describe(*grads[2], kGradV).set_output(true);
  } else {
    cudnn_frontend::graph::SDPA_attributes attributes;
    SetParams(attributes, p);
    attributes.set_name("Attention").set_generate_stats(true);
    const auto results = graph->sdpa(q, k, v, attributes);
    describe(*results[0], kOut).set_output(true);
    describe_lse(*results[1]).set_output(true);
  }
  return graph;
}

/// How cuDNN works on a problem: by a graph, in two parts, or, by default, not at all.
struct Plan {
  std::shared_ptr<Graph> graph;
  std::int64_t workspace_bytes = 0;
  bool in_parts = false;
};

/// What is shared by all calls on a device, one at a time.
struct Library {
  std::mutex mutex;
  bool started = false;
  cudnnHandle_t handle = nullptr;  // null when cuDNN cannot be used
  std::int64_t max_workspace_bytes = 0;
  std::map<Key, Plan> plans;
};

Library& LibraryOf(int device) {
  // Never destroyed: at the end of the process the driver may be gone before.
  static auto& libraries = *new std::array<Library, kMaxDevicesPerType>;
  return libraries[static_cast<std::size_t>(device)];
}

/// Says, once for each of the two ops, that a slower kernel does the work.
void ReportRefusal(const Problem& p, const std::string& reason) {
  static std::array<std::atomic_flag, 2> said = {};
  if (said[p.backward].test_and_set()) return;
  const std::string line =
      std::string("infini_train: ") + (p.backward ? "AttentionBackward" : "Attention") +
      " of queries [" + std::to_string(p.batch) + ", " + std::to_string(p.heads) + ", " +
      std::to_string(p.queries) + ", " + std::to_string(p.head_size) + "] on " +
      std::to_string(p.keys) + " keys of " + std::to_string(p.kv_heads) +
      " heads is left to the slower shared kernel by " + CudnnVersion() + ": " + reason + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Plan MakePlan(const Library& library, const Problem& p) {
  Plan plan;
  try {
    auto graph = MakeGraph(p);
    auto status = graph->build(library.handle, {cudnn_frontend::HeurMode_t::A});
    if (status.is_good()) status = graph->get_workspace_size(plan.workspace_bytes);
    if (status.is_bad()) {
      ReportRefusal(p, status.get_message());
      return {};
    }
    plan.in_parts = plan.workspace_bytes > library.max_workspace_bytes && p.Parts() > 1;
    if (!plan.in_parts) plan.graph = std::move(graph);
  } catch (const std::exception& exception) {
    ReportRefusal(p, exception.what());
    return {};
  }
  return plan;
}

bool Run(const KernelContext& context, Library& library, const Problem& p) {
  const auto [place, is_new] = library.plans.try_emplace(KeyOf(p));
  Plan& plan = place->second;
  if (is_new) plan = MakePlan(library, p);
  if (plan.in_parts) {
    const std::int64_t half = p.Parts() / 2;
    return Run(context, library, p.Part(0, half)) &&
           Run(context, library, p.Part(half, p.Parts() - half));
  }
  if (plan.graph == nullptr) return false;
  std::unordered_map<std::int64_t, void*> pointers = {{kLseUid, p.lse}};
  for (const Role role : kBackwardRoles) {
    if (p.operands[role].data != nullptr) pointers.emplace(UidOf(role), p.operands[role].data);
  }
  const auto workspace = Tensor::Empty({plan.workspace_bytes}, DataType::kUInt8, context.device);
  auto status = plan.graph->execute(library.handle, pointers, workspace.raw_data());
  if (status.is_bad()) {
    throw Error(std::string(p.backward ? "AttentionBackward" : "Attention") + ": " +
                CudnnVersion() + ": " + status.get_message());
  }
  return true;
}

bool Run(const KernelContext& context, const std::optional<Problem>& problem) {
  if (!problem) return false;
  Library& library = LibraryOf(context.device.index());
  const std::lock_guard lock(library.mutex);
  if (!library.started) {
    library.started = true;
    const std::size_t memory =
        GetDeviceGuardImpl(context.device.type()).Properties(context.device.index()).total_memory;
    library.max_workspace_bytes = static_cast<std::int64_t>(memory / 64);
    const cudnnStatus_t status = cudnnCreate(&library.handle);
    if (status != CUDNN_STATUS_SUCCESS) {
      library.handle = nullptr;
      ReportRefusal(*problem, cudnnGetErrorString(status));
    }
  }
  if (library.handle == nullptr) return false;
  const cudnnStatus_t status =
      cudnnSetStream(library.handle, static_cast<cudaStream_t>(context.stream));
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error(std::string("cudnnSetStream: ") + cudnnGetErrorString(status));
  return Run(context, library, *problem);
}

}  // namespace

bool CudnnAttention(const KernelContext& context, Tensor& out, Tensor& lse, const Tensor& q,
                    const Tensor& k, const Tensor& v, const AttentionParams& params) {
  return Run(context, Describe({&q, &k, &v, &out}, lse, params));
}

bool CudnnAttentionBackward(const KernelContext& context, Tensor& grad_q, Tensor& grad_k,
                            Tensor& grad_v, const Tensor& grad_out, const Tensor& out,
                            const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                            const AttentionParams& params) {
  return Run(context,
             Describe({&q, &k, &v, &out, &grad_out, &grad_q, &grad_k, &grad_v}, lse, params));
}

std::string CudnnVersion() {
  const std::size_t version = cudnnGetVersion();
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

}  // namespace infini_train::cuda
