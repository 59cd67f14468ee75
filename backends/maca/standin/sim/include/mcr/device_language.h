#pragma once

// MACA's device language for the emulator. `__shared__` arrays and launches are rewritten by mxcc.

#include "mcr/host_api.h"

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

#ifdef __MACA__

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// The running lane, as the emulator describes it.
struct __mcLane {
  int thread;
  int block_size;
  bool check_races;
  long block[3];
  long grid[3];
};
extern "C" {
const __mcLane* __mcCurrentLane() noexcept __attribute__((const));
void __mcSyncBlock();
void __mcSyncGroup(int width);
void __mcShuffle(int width, int source, const void* input, void* output, std::size_t bytes);
unsigned long long __mcBallot(int width, bool predicate);
[[noreturn]] void __mcFault(const char* what);
void* __mcStaticShared(const char* tag, const char* name, std::size_t bytes);
void* __mcDynamicShared();
void __mcLaunch(void (*run)(const void* packet), const void* packet, std::size_t bytes,
                const unsigned int* grid, const unsigned int* block, std::size_t shared,
                mcStream_t stream);
}

template <typename T>
using __mcElement = T;

struct __mcIndex {
  unsigned int x, y, z;
};
inline __mcIndex __mcIndexOf(const long* v) {
  return {static_cast<unsigned>(v[0]), static_cast<unsigned>(v[1]), static_cast<unsigned>(v[2])};
}
#define threadIdx (__mcIndex{static_cast<unsigned>(__mcCurrentLane()->thread), 0, 0})
#define blockDim (__mcIndex{static_cast<unsigned>(__mcCurrentLane()->block_size), 1, 1})
#define blockIdx (__mcIndexOf(__mcCurrentLane()->block))
#define gridDim (__mcIndexOf(__mcCurrentLane()->grid))
constexpr int warpSize = 64;

inline int __lane_id() {
  return __mcCurrentLane()->thread & (warpSize - 1);
}

// Barriers and warp functions. A mask names all lanes of a group of a power of two, the calling one
// among them: what a mask without lanes that take part does is not known.

inline int __mcGroupOf(unsigned long long mask, int width) {
  for (int size = width; size <= warpSize; size *= 2) {
    const unsigned long long all = ~0ull >> (warpSize - size);
    if (mask == all << (__lane_id() & ~(size - 1))) return size;
  }
  __mcFault("the mask of a warp function is not that of a group with the calling lane");
}

inline void __syncthreads() {
  __mcSyncBlock();
}
inline void __syncwarp(unsigned long long mask = ~0ull) {
  __mcSyncGroup(__mcGroupOf(mask, 1));
}
inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline unsigned long long __ballot_sync(unsigned long long mask, int predicate) {
  const int size = __mcGroupOf(mask, 1);
  return __mcBallot(size, predicate != 0) << (__lane_id() & ~(size - 1));
}

template <typename T>
inline T __mcShuffleFrom(unsigned long long mask, T value, int lane, int width) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  const int size = __mcGroupOf(mask, width);
  T result = value;
  __mcShuffle(size, lane & (size - 1), &value, &result, sizeof(T));
  return result;
}
template <typename T>
inline T __shfl_sync(unsigned long long mask, T value, int lane, int width = warpSize) {
  return __mcShuffleFrom(mask, value, (__lane_id() & ~(width - 1)) | (lane & (width - 1)), width);
}
template <typename T>
inline T __shfl_xor_sync(unsigned long long mask, T value, int bits, int width = warpSize) {
  return __mcShuffleFrom(mask, value, __lane_id() ^ bits, width);
}
template <typename T>
inline T __shfl_down_sync(unsigned long long mask, T value, unsigned delta, int width = warpSize) {
  const int lane = __lane_id();
  const bool inside = (lane & (width - 1)) + static_cast<int>(delta) < width;
  return __mcShuffleFrom(mask, value, inside ? lane + static_cast<int>(delta) : lane, width);
}
template <typename T>
inline T __shfl_up_sync(unsigned long long mask, T value, unsigned delta, int width = warpSize) {
  const int lane = __lane_id();
  const bool inside = (lane & (width - 1)) >= static_cast<int>(delta);
  return __mcShuffleFrom(mask, value, inside ? lane - static_cast<int>(delta) : lane, width);
}

inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline int __popc(unsigned int x) {
  return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
  return __builtin_popcountll(x);
}

// Atomic functions, of the types that MACA is known to have.

template <typename T, typename Word>
inline T __mcAtomicSum(T* address, T value) {
  Word found = __atomic_load_n(reinterpret_cast<Word*>(address), __ATOMIC_RELAXED);
  for (;;) {
    T old;
    std::memcpy(&old, &found, sizeof(T));
    const T sum = old + value;
    Word word;
    std::memcpy(&word, &sum, sizeof(T));
    if (__atomic_compare_exchange_n(reinterpret_cast<Word*>(address), &found, word, true,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return old;
  }
}
inline float atomicAdd(float* address, float value) {
  return __mcAtomicSum<float, std::uint32_t>(address, value);
}
inline int atomicAdd(int* address, int value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline unsigned int atomicCAS(unsigned int* address, unsigned int expected, unsigned int desired) {
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return expected;
}
inline unsigned long long atomicCAS(unsigned long long* address, unsigned long long expected,
                                    unsigned long long desired) {
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return expected;
}

// Launches.

template <typename... P>
struct __mcArguments {
  template <typename Kernel, typename... Unpacked>
  void Apply(Kernel kernel, const Unpacked&... unpacked) const {
    kernel(unpacked...);
  }
};
template <typename Head, typename... Tail>
struct __mcArguments<Head, Tail...> {
  Head head;
  __mcArguments<Tail...> tail;

  explicit __mcArguments(const Head& head, const Tail&... tail) : head(head), tail(tail...) {}
  template <typename Kernel, typename... Unpacked>
  void Apply(Kernel kernel, const Unpacked&... unpacked) const {
    tail.Apply(kernel, unpacked..., head);
  }
};

template <typename... P>
struct __mcLauncher {
  void (*kernel)(P...);
  dim3 grid, block;
  std::size_t shared;
  mcStream_t stream;

  struct Packet {
    void (*kernel)(P...);
    __mcArguments<P...> arguments;
  };
  static void Run(const void* packet) {
    const auto* self = static_cast<const Packet*>(packet);
    self->arguments.Apply(self->kernel);
  }

  void operator()(P... arguments) const {
    const Packet packet{kernel, __mcArguments<P...>(arguments...)};
    __mcLaunch(&Run, &packet, sizeof(packet), &grid.x, &block.x, shared, stream);
  }
};
template <typename... P>
__mcLauncher<P...> __mcConfigure(void (*kernel)(P...), dim3 grid, dim3 block,
                                 std::size_t shared = 0, mcStream_t stream = nullptr) {
  return {kernel, grid, block, shared, stream};
}

#endif  // __MACA__
