#include "backends/simt/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <utility>

#if defined(__has_feature)
#define SIMT_HAS_FEATURE(feature) __has_feature(feature)
#else
#define SIMT_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || SIMT_HAS_FEATURE(address_sanitizer)
#define SIMT_ADDRESS_SANITIZER 1
#include <sanitizer/common_interface_defs.h>
#else
#define SIMT_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__) || SIMT_HAS_FEATURE(thread_sanitizer)
#define SIMT_THREAD_SANITIZER 1
#include <sanitizer/tsan_interface.h>
#else
#define SIMT_THREAD_SANITIZER 0
#endif

namespace infini_train::simt::emulator {
namespace {

#if SIMT_ADDRESS_SANITIZER || SIMT_THREAD_SANITIZER || !defined(__OPTIMIZE__)
constexpr std::size_t kStackBytes = std::size_t{512} << 10;
#else
constexpr std::size_t kStackBytes = std::size_t{128} << 10;
#endif
constexpr std::size_t kStacksPerSlab = 32;
/// Stacks start at different places of their pages: the same frame of all lanes would otherwise
/// compete for the same few lines of the cache.
constexpr std::size_t kColours = 32;
constexpr std::size_t kColourBytes = 192;

}  // namespace

/// Stacks with a guard page below each, never given back while the set lives.
class FiberSet::Stacks {
 public:
  Stacks() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {}
  ~Stacks() {
    for (void* slab : slabs_)
      munmap(slab, SlabBytes());
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  boost::context::stack_context Take() {
    if (used_ == slabs_.size() * kStacksPerSlab) AddSlab();
    const std::size_t index = used_++;
    auto* bottom = static_cast<std::byte*>(slabs_.back()) +
                   (index % kStacksPerSlab) * (kStackBytes + page_) + page_;
    boost::context::stack_context stack;
    stack.size = kStackBytes - (index % kColours) * kColourBytes;
    stack.sp = bottom + stack.size;
    return stack;
  }

 private:
  std::size_t SlabBytes() const { return kStacksPerSlab * (kStackBytes + page_); }

  void AddSlab() {
    void* slab = mmap(nullptr, SlabBytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) throw std::bad_alloc();
    slabs_.push_back(slab);
    for (std::size_t i = 0; i < kStacksPerSlab; ++i)
      mprotect(static_cast<std::byte*>(slab) + i * (kStackBytes + page_), page_, PROT_NONE);
  }

  const std::size_t page_;
  std::vector<void*> slabs_;
  std::size_t used_ = 0;
};

namespace {

/// Hands a stack that exists to a context.
struct ReadyStack {
  boost::context::stack_context stack;
  boost::context::stack_context allocate() const { return stack; }
  void deallocate(boost::context::stack_context&) const noexcept {}
};

}  // namespace

FiberSet::FiberSet(Body body, void* argument)
    : body_(body), argument_(argument), stacks_(std::make_unique<Stacks>()) {
#if SIMT_THREAD_SANITIZER
  thread_.thread_sanitizer = __tsan_get_current_fiber();
#endif
}

FiberSet::~FiberSet() {
  stopping_ = true;
  for (const std::unique_ptr<Fiber>& fiber : fibers_) {
    SwitchTo(*fiber);
#if SIMT_THREAD_SANITIZER
    __tsan_destroy_fiber(fiber->thread_sanitizer);
#endif
  }
}

Fiber& FiberSet::TakeIdle() {
  if (idle_ == nullptr) return Create();
  Fiber* fiber = idle_;
  idle_ = fiber->next_idle;
  return *fiber;
}

Fiber& FiberSet::Create() {
  const ReadyStack ready{stacks_->Take()};
  Fiber* fiber = fibers_.emplace_back(std::make_unique<Fiber>()).get();
  fiber->stack_size = ready.stack.size;
  fiber->stack_bottom = static_cast<const std::byte*>(ready.stack.sp) - ready.stack.size;
#if SIMT_THREAD_SANITIZER
  fiber->thread_sanitizer = __tsan_create_fiber(0);
#endif
  fiber->context = boost::context::fiber(std::allocator_arg, ready,
                                         [this, fiber](boost::context::fiber&& came_from) {
                                           Arrive(std::move(came_from));
                                           while (!stopping_) {
                                             Fiber& next = body_(argument_);
                                             fiber->next_idle = idle_;
                                             idle_ = fiber;
                                             SwitchTo(next);
                                           }
                                           Leave(thread_);
                                           return std::move(thread_.context);
                                         });
  return *fiber;
}

void FiberSet::Leave(Fiber& target) {
  previous_ = current_;
  current_ = &target;
#if SIMT_ADDRESS_SANITIZER
  // Also a fiber that ends keeps its fake stack: its last frames return through it.
  __sanitizer_start_switch_fiber(&previous_->fake_stack, target.stack_bottom, target.stack_size);
#endif
#if SIMT_THREAD_SANITIZER
  __tsan_switch_to_fiber(target.thread_sanitizer, 0);
#endif
}

void FiberSet::Arrive(boost::context::fiber&& came_from) {
  previous_->context = std::move(came_from);
#if SIMT_ADDRESS_SANITIZER
  // The bounds of the thread's own stack are learnt when it is left for the first time.
  __sanitizer_finish_switch_fiber(current_->fake_stack, &previous_->stack_bottom,
                                  &previous_->stack_size);
#endif
}

void FiberSet::SwitchTo(Fiber& target) {
  Leave(target);
  Arrive(std::move(target.context).resume());
}

}  // namespace infini_train::simt::emulator
