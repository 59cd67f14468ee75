#include "infini_train/kernels/cpu/gemm/onednn.h"

#include <omp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "infini_train/kernels/cpu/gemm/scratch.h"

namespace infini_train::cpu {
namespace {

using dnnl::memory;

// What a primitive is made for.
struct Key {
  GemmProblem problem;
  bool bias;
  int threads;

  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    const GemmProblem& p = key.problem;
    std::uint64_t hash = 0;
    for (const std::int64_t value :
         {p.m, p.n, p.k, p.a.row, p.a.column, p.b.row, p.b.column, p.c.row,
          static_cast<std::int64_t>(p.input) << 16 | static_cast<std::int64_t>(p.output) << 8 |
              p.accumulate << 1 | key.bias,
          static_cast<std::int64_t>(key.threads)}) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash);
  }
};

memory::data_type ToOneDnn(DataType dtype) {
  switch (dtype) {
    case DataType::kBFloat16:
      return memory::data_type::bf16;
    case DataType::kFloat16:
      return memory::data_type::f16;
    default:
      return memory::data_type::f32;
  }
}

// Never destroyed: primitives in thread_local caches refer to it until the last thread has ended.
dnnl::engine& Engine() {
  static dnnl::engine& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// oneDNN 3 takes an operation's description apart where 2 had a class for it.
dnnl::matmul::primitive_desc Describe(const memory::desc& a, const memory::desc& b,
                                      const memory::desc& bias, const memory::desc& c,
                                      const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return bias.is_zero() ? dnnl::matmul::primitive_desc(Engine(), a, b, c, attributes)
                        : dnnl::matmul::primitive_desc(Engine(), a, b, bias, c, attributes);
#else
  const dnnl::matmul::desc description =
      bias.is_zero() ? dnnl::matmul::desc(a, b, c) : dnnl::matmul::desc(a, b, bias, c);
  return dnnl::matmul::primitive_desc(description, attributes, Engine());
#endif
}

// A primitive and the sizes of its arguments; shared by all threads.
struct Plan {
  explicit Plan(const Key& key) {
    const GemmProblem& p = key.problem;
    const memory::data_type input = ToOneDnn(p.input);
    a = memory::desc({p.m, p.k}, input, {p.a.row, p.a.column});
    b = memory::desc({p.k, p.n}, input, {p.b.row, p.b.column});
    c = memory::desc({p.m, p.n}, ToOneDnn(p.output), {p.c.row, p.c.column});
    if (key.bias) bias = memory::desc({1, p.n}, input, {p.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
      dnnl::post_ops operations;
      operations.append_sum(1.0f);
      attributes.set_post_ops(operations);
    }
    try {
      const auto description = Describe(a, b, bias, c, attributes);
      if (std::string_view(description.impl_info_str()).starts_with("ref")) return;
      scratchpad = description.scratchpad_desc();
      primitive = dnnl::matmul(description);
      usable = true;
    } catch (const dnnl::error&) {
      // Not one that oneDNN has on this machine.
    }
  }

  memory::desc a, b, bias, c, scratchpad;
  dnnl::matmul primitive;
  bool usable = false;
};

std::shared_ptr<const Plan> FindPlan(const Key& key) {
  constexpr std::size_t kMaxPlans = 1024;
  static std::mutex mutex;
  static auto& plans = *new std::unordered_map<Key, std::shared_ptr<const Plan>, KeyHash>();
  {
    const std::lock_guard lock(mutex);
    if (const auto found = plans.find(key); found != plans.end()) return found->second;
  }
  auto plan = std::make_shared<const Plan>(key);
  const std::lock_guard lock(mutex);
  if (plans.size() >= kMaxPlans) plans.clear();
  return plans.try_emplace(key, std::move(plan)).first->second;
}

// A thread's own arguments of a plan, so that running it allocates nothing.
class Call {
 public:
  explicit Call(const Key& key) : key_(key), plan_(FindPlan(key)) {
    if (!plan_->usable) return;
    Add(DNNL_ARG_DST, plan_->c);
    Add(DNNL_ARG_SRC, plan_->a);
    Add(DNNL_ARG_WEIGHTS, plan_->b);
    Add(DNNL_ARG_SCRATCHPAD, plan_->scratchpad);
    if (key.bias) Add(DNNL_ARG_BIAS, plan_->bias);
  }

  const Key& key() const { return key_; }

  bool Run(void* c, const void* a, const void* b, const void* bias) {
    if (!plan_->usable) return false;
    static thread_local Scratch scratch;
    static thread_local dnnl::stream stream(Engine());
    void* const addresses[] = {c, const_cast<void*>(a), const_cast<void*>(b),
                               scratch.Get<std::byte>(plan_->scratchpad.get_size()),
                               const_cast<void*>(bias)};
    for (int i = 0; i < count_; ++i)
      memories_[i].set_data_handle(addresses[i]);
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(plan_->primitive.get(), stream.get(), count_, arguments_.data()),
        "could not run a matrix product");
    return true;
  }

 private:
  void Add(int name, const memory::desc& description) {
    memories_[count_] = memory(description, Engine(), nullptr);
    arguments_[count_] = {name, memories_[count_].get()};
    ++count_;
  }

  Key key_;
  std::shared_ptr<const Plan> plan_;
  std::array<memory, 5> memories_;
  std::array<dnnl_exec_arg_t, 5> arguments_{};
  int count_ = 0;
};

bool DetectFastBFloat16() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_bf16:
      // Intel's cores before AMX, and with it hidden, run this instruction at half the rate of
      // float's multiply-add.
      return !__builtin_cpu_is("intel");
    case dnnl::cpu_isa::avx512_core_amx:
      return true;
#if DNNL_VERSION_MAJOR >= 3
    case dnnl::cpu_isa::avx512_core_amx_fp16:
      return true;
#endif
    default:
      return false;
  }
}

}  // namespace

bool IsOneDnnFaster(DataType input) {
  static const bool fast_bfloat16 = DetectFastBFloat16();
  return input == DataType::kBFloat16 && fast_bfloat16;
}

bool TryOneDnnGemm(const GemmProblem& problem, void* c, const void* a, const void* b,
                   const void* bias) {
  constexpr std::size_t kSlots = 64;
  static thread_local std::array<std::unique_ptr<Call>, kSlots> calls;
  const Key key{problem, bias != nullptr, omp_in_parallel() ? 1 : omp_get_max_threads()};
  std::unique_ptr<Call>& slot = calls[KeyHash{}(key) % kSlots];
  if (slot == nullptr || !(slot->key() == key)) slot = std::make_unique<Call>(key);
  return slot->Run(c, a, b, bias);
}

}  // namespace infini_train::cpu
