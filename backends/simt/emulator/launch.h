#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "backends/simt/emulator/language.h"

#include "backends/simt/context.h"
#include "backends/simt/geometry.h"

namespace infini_train::simt {

/// Of the device: how many blocks run without sharing one's resources.
inline std::int64_t MultiprocessorCount(const Context&) {
  return 2;
}

/// Dynamic shared memory that a block of the device may ask for where it has little other: with
/// warps of 64 lanes what the smallest device has, with 32 twice as much, so that kernels for
/// either kind of device run.
std::size_t MaxDynamicSharedBytes(const Context& context);

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
  static Pack Of() { return {}; }

  template <typename Kernel, typename... Unpacked>
  void Apply(Kernel kernel, const Unpacked&... unpacked) const {
    kernel(unpacked...);
  }
};
template <typename Head, typename... Tail>
struct Pack<Head, Tail...> {
  Head head;
  Pack<Tail...> tail;

  static Pack Of(Head head, Tail... tail) { return {head, Pack<Tail...>::Of(tail...)}; }

  template <typename Kernel, typename... Unpacked>
  void Apply(Kernel kernel, const Unpacked&... unpacked) const {
    tail.Apply(kernel, unpacked..., head);
  }
};

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

/// A launch of `kernel`, whose arguments are converted to its parameters.
template <typename... P, typename... A>
Packet<P...> MakePacket(OpId op, const Geometry& geometry, void (*kernel)(P...), A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "the kernel takes another number of arguments");
  static_assert((!std::is_reference_v<P> && ...), "kernels take their arguments by value");
  static_assert((std::is_trivially_copyable_v<P> && ...),
                "arguments of kernels are trivially copyable");
  static_assert((sizeof(P) + ... + 0) <= kMaxArgumentBytes,
                "the arguments of a kernel take at most 4096 bytes");
  return {{&Packet<P...>::RunLane, op, geometry},
          kernel,
          Pack<std::remove_const_t<P>...>::Of(
              static_cast<std::remove_const_t<P>>(std::forward<A>(arguments))...)};
}

/// Checks the geometry and puts the launch into the stream. `bytes` is the size of the packet.
void Enqueue(const Context& context, const Launched& packet, std::size_t bytes);

}  // namespace emulator

/// Runs `kernel` on a grid, in order of the context's stream. Arguments are converted to the
/// kernel's parameters and copied. Does nothing for an empty grid. Throws Error for a geometry that
/// the device does not take, and when an earlier launch has failed.
template <typename... P, typename... A>
void Launch(const Context& context, const Geometry& geometry, void (*kernel)(P...),
            A&&... arguments) {
  const auto packet =
      emulator::MakePacket(context.op, geometry, kernel, std::forward<A>(arguments)...);
  emulator::Enqueue(context, packet, sizeof(packet));
}

}  // namespace infini_train::simt
