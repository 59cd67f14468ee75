#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "backends/simt/emulator/language.h"

#include "backends/simt/context.h"
#include "backends/simt/geometry.h"

namespace infini_train::simt {

namespace emulator {

/// What every launch has in front of its arguments.
struct Launched {
  /// Runs the kernel for the current lane, with the arguments behind `launched`.
  void (*run_lane)(const Launched* launched);
  OpId op;
  Geometry geometry;
};

/// Arguments of a kernel one after another, trivially copyable unlike a tuple.
template <typename... P>
struct Pack {
  template <typename Kernel, typename... Unpacked>
  void Apply(Kernel kernel, const Unpacked&... unpacked) const {
    kernel(unpacked...);
  }
};
template <typename Head, typename... Tail>
struct Pack<Head, Tail...> {
  Head head;
  Pack<Tail...> tail;

  template <typename Kernel, typename... Unpacked>
  void Apply(Kernel kernel, const Unpacked&... unpacked) const {
    tail.Apply(kernel, unpacked..., head);
  }
};

inline Pack<> MakePack() {
  return {};
}
template <typename Head, typename... Tail>
Pack<Head, Tail...> MakePack(Head head, Tail... tail) {
  return {head, MakePack(tail...)};
}

template <typename... P>
struct Packet : Launched {
  void (*kernel)(P...);
  Pack<std::remove_const_t<P>...> arguments;

  static void RunLane(const Launched* launched) {
    const auto* packet = static_cast<const Packet*>(launched);
    packet->arguments.Apply(packet->kernel);
  }
};

/// Called before and after every launch's blocks by the thread that runs them, for a provider that
/// watches its memory. With hooks, a launch that no graph captures is over when the call returns.
struct LaunchHooks {
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};
/// Not while kernels run.
void SetLaunchHooks(const LaunchHooks& hooks);

/// Checks the geometry and puts the launch into the stream. `bytes` is the size of the packet.
void Enqueue(const Context& context, const Launched& packet, std::size_t bytes);

}  // namespace emulator

/// Runs `kernel` on a grid, in order of the context's stream. Arguments are converted to the
/// kernel's parameters and copied. Does nothing for an empty grid. Throws Error for a geometry that
/// the device does not take, and when an earlier launch has failed.
template <typename... P, typename... A>
void Launch(const Context& context, const Geometry& geometry, void (*kernel)(P...),
            A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "the kernel takes another number of arguments");
  static_assert((std::is_trivially_copyable_v<P> && ...),
                "arguments of kernels are trivially copyable");
  static_assert((!std::is_reference_v<P> && ...), "kernels take their arguments by value");
  emulator::Packet<P...> packet{
      {&emulator::Packet<P...>::RunLane, context.op, geometry},
      kernel,
      emulator::MakePack<std::remove_const_t<P>...>(
          static_cast<std::remove_const_t<P>>(std::forward<A>(arguments))...)};
  static_assert(sizeof(packet.arguments) <= kMaxArgumentBytes,
                "the arguments of a kernel take at most 4096 bytes");
  emulator::Enqueue(context, packet, sizeof(packet));
}

}  // namespace infini_train::simt
