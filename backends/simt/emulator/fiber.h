#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <boost/context/fiber.hpp>

namespace infini_train::simt::emulator {

/// A stack that lanes run on, and where it was left. The thread's own stack is one too.
struct Fiber {
  boost::context::fiber context;  ///< empty while the fiber runs
  Fiber* next_idle = nullptr;
  const void* stack_bottom = nullptr;  ///< lowest address, for the address sanitizer
  std::size_t stack_size = 0;
  void* fake_stack = nullptr;        ///< of the address sanitizer
  void* thread_sanitizer = nullptr;  ///< the fiber as the thread sanitizer knows it
};

/// The fibers of one thread. They never leave it.
class FiberSet {
 public:
  /// What a fiber does when it is taken: returns the fiber that goes on, and this one is idle.
  using Body = Fiber& (*)(void* argument);

  FiberSet(Body body, void* argument);
  /// All fibers must be idle.
  ~FiberSet();
  FiberSet(const FiberSet&) = delete;
  FiberSet& operator=(const FiberSet&) = delete;

  /// The stack of the thread.
  Fiber& thread() { return thread_; }
  Fiber& current() { return *current_; }

  /// An idle fiber, which starts its body with the next switch to it.
  Fiber& TakeIdle();

  /// Leaves the current fiber for `target`, until someone switches back.
  void SwitchTo(Fiber& target);

 private:
  class Stacks;

  Fiber& Create();
  void Leave(Fiber& target);
  void Arrive(boost::context::fiber&& came_from);

  const Body body_;
  void* const argument_;
  bool stopping_ = false;
  Fiber thread_;
  Fiber* current_ = &thread_;
  Fiber* previous_ = nullptr;
  Fiber* idle_ = nullptr;
  std::unique_ptr<Stacks> stacks_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

}  // namespace infini_train::simt::emulator
