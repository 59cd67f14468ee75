#include <algorithm>
#include <array>
#include <cstdint>
#include <numbers>
#include <string>

#include "backends/simt/dialect.h"
#include "backends/simt/philox.h"
#include "backends/simt/types.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::simt {
namespace {

/// Elements that one Philox block gives numbers to; a lane makes them together.
constexpr int kWords = 4;

/// Elements of T that one access moves, of the kWords of a lane.
template <typename T>
constexpr int kAccess = kMaxVectorWidth<T> < kWords ? kMaxVectorWidth<T> : kWords;

/// Reads up to kWords elements; those beyond `count` are left out.
template <typename T>
SIMT_DEVICE void LoadWords(const T* x, std::int64_t count, bool vectors, T (&values)[kWords]) {
  if (vectors && count >= kWords) {
    for (int i = 0; i < kWords; i += kAccess<T>) {
      const Vec<T, kAccess<T>> part = Load<kAccess<T>>(x + i);
      for (int k = 0; k < kAccess<T>; ++k)
        values[i + k] = part[k];
    }
    return;
  }
  for (int i = 0; i < kWords && i < count; ++i)
    values[i] = Load(x + i);
}

/// Writes up to kWords elements.
template <typename T>
SIMT_DEVICE void StoreWords(T* out, std::int64_t count, bool vectors, const T (&values)[kWords]) {
  if (vectors && count >= kWords) {
    for (int i = 0; i < kWords; i += kAccess<T>) {
      Vec<T, kAccess<T>> part;
      for (int k = 0; k < kAccess<T>; ++k)
        part[k] = values[i + k];
      Store(out + i, part);
    }
    return;
  }
  for (int i = 0; i < kWords && i < count; ++i)
    Store(out + i, values[i]);
}

/// Whether lanes may use vectors of their kWords elements at all of these addresses.
template <typename... Ts>
bool Aligned(const Ts*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % (kAccess<Ts> * sizeof(Ts)) == 0) && ...);
}

// Generators of the kWords numbers of one Philox block, in the compute type C.

template <typename C>
struct Uniform {
  C low;
  C width;
  C largest;

  SIMT_DEVICE void operator()(const std::array<std::uint32_t, kWords>& words,
                              C (&numbers)[kWords]) const {
    for (int i = 0; i < kWords; ++i) {
      const C number = low + width * static_cast<C>(UniformFromBits(words[i]));
      numbers[i] = number > largest ? largest : number;
    }
  }
};

/// Box-Muller on word pairs.
template <typename C>
struct Normal {
  C mean;
  C stddev;

  SIMT_DEVICE void operator()(const std::array<std::uint32_t, kWords>& words,
                              C (&numbers)[kWords]) const {
    for (int i = 0; i < kWords; i += 2) {
      // 1 - u is in (0, 1], exact.
      const C radius = stddev * Sqrt(C(-2) * Log(C(1) - static_cast<C>(UniformFromBits(words[i]))));
      // The angle is brought to [-pi / 4, pi / 4] before pi comes in, and turned back by quarters.
      const C turn = static_cast<C>(UniformFromBits(words[i + 1]));
      const C quarter = Floor(C(4) * turn + C(0.5));
      const C angle = (turn - C(0.25) * quarter) * (C(2) * std::numbers::pi_v<C>);
      const C c = Cos(angle);
      const C s = Sin(angle);
      const int quarters = static_cast<int>(quarter) % 4;
      const C first = quarters % 2 == 1 ? s : c;
      const C second = quarters % 2 == 1 ? c : s;
      numbers[i] = mean + radius * (quarters == 1 || quarters == 2 ? -first : first);
      numbers[i + 1] = mean + radius * (quarters >= 2 ? -second : second);
    }
  }
};

template <typename T, typename Numbers>
SIMT_KERNEL void RandomKernel(T* out, std::int64_t count, Generator::State state, bool vectors,
                              Numbers make) {
  const std::uint64_t offset = PhiloxOffset(state);
  for (std::int64_t block = GlobalThreadIndex(); block * kWords < count;
       block += GlobalThreadCount()) {
    const auto words = Philox4x32(state.seed, offset, static_cast<std::uint64_t>(block));
    ComputeType<T> numbers[kWords];
    make(words, numbers);
    T values[kWords];
    for (int i = 0; i < kWords; ++i)
      values[i] = FromCompute<T>(numbers[i]);
    StoreWords(out + block * kWords, count - block * kWords, vectors, values);
  }
}

void RandomUniform(const Context& context, Tensor& out, double low, double high,
                   Generator::State state) {
  if (!(low < high)) {
    throw Error("RandomUniform expected low < high, got " + std::to_string(low) + " and " +
                std::to_string(high));
  }
  DispatchTypes(FloatingTypes{}, "RandomUniform", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    // Rounding may reach `high`, which is not in the range.
    const double largest = std::max(low, LargestBelow(high, out.dtype()));
    const Uniform<C> numbers = {static_cast<C>(low), static_cast<C>(high - low),
                                static_cast<C>(largest)};
    T* const data = out.data<T>();
    Launch(context, Linear(out.numel(), kWords), &RandomKernel<T, Uniform<C>>, data, out.numel(),
           state, Aligned(data), numbers);
  });
}

void RandomNormal(const Context& context, Tensor& out, double mean, double stddev,
                  Generator::State state) {
  DispatchTypes(FloatingTypes{}, "RandomNormal", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const Normal<C> numbers = {static_cast<C>(mean), static_cast<C>(stddev)};
    T* const data = out.data<T>();
    Launch(context, Linear(out.numel(), kWords), &RandomKernel<T, Normal<C>>, data, out.numel(),
           state, Aligned(data), numbers);
  });
}

/// The high half of a 128-bit product.
SIMT_DEVICE inline std::uint64_t MultiplyHigh(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kLow = 0xFFFFFFFFu;
  const std::uint64_t low = (a & kLow) * (b & kLow);
  const std::uint64_t middle = (a >> 32) * (b & kLow) + (low >> 32);
  const std::uint64_t other = (a & kLow) * (b >> 32) + (middle & kLow);
  return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32);
}

template <typename T>
SIMT_KERNEL void RandomIntKernel(T* out, std::int64_t count, Generator::State state, bool vectors,
                                 std::uint64_t low, std::uint64_t range) {
  const bool wide = range > std::uint64_t{1} << 32;
  const std::uint64_t offset = PhiloxOffset(state);
  for (std::int64_t block = GlobalThreadIndex(); block * kWords < count;
       block += GlobalThreadCount()) {
    const auto number = static_cast<std::uint64_t>(block);
    const auto words = Philox4x32(state.seed, offset, number);
    // A fraction of the range: the high half of range * word. Ranges beyond 32 bits take lower bits
    // from the block as far again into the sequence.
    const auto lower = wide ? Philox4x32(state.seed, offset, ~number) : words;
    T values[kWords];
    for (int i = 0; i < kWords; ++i) {
      const std::uint64_t distance =
          wide ? MultiplyHigh(range, static_cast<std::uint64_t>(words[i]) << 32 | lower[i])
               : (range * words[i]) >> 32;
      values[i] = static_cast<T>(low + distance);
    }
    StoreWords(out + block * kWords, count - block * kWords, vectors, values);
  }
}

void RandomInt(const Context& context, Tensor& out, std::int64_t low, std::int64_t high,
               Generator::State state) {
  if (low >= high) {
    throw Error("RandomInt expected low < high, got " + std::to_string(low) + " and " +
                std::to_string(high));
  }
  const auto start = static_cast<std::uint64_t>(low);
  DispatchTypes(Types<std::int64_t, std::int32_t>{}, "RandomInt", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const data = out.data<T>();
    Launch(context, Linear(out.numel(), kWords), &RandomIntKernel<T>, data, out.numel(), state,
           Aligned(data), start, static_cast<std::uint64_t>(high) - start);
  });
}

template <typename T>
SIMT_KERNEL void DropoutKernel(T* out, const T* x, std::int64_t count, Generator::State state,
                               bool vectors, float threshold, ComputeType<T> scale) {
  const std::uint64_t offset = PhiloxOffset(state);
  for (std::int64_t block = GlobalThreadIndex(); block * kWords < count;
       block += GlobalThreadCount()) {
    const std::int64_t first = block * kWords;
    const auto words = Philox4x32(state.seed, offset, static_cast<std::uint64_t>(block));
    T values[kWords] = {};
    LoadWords(x + first, count - first, vectors, values);
    for (int i = 0; i < kWords; ++i) {
      const bool dropped = UniformFromBits(words[i]) < threshold;
      values[i] = FromCompute<T>(dropped ? ComputeType<T>(0) : ToCompute(values[i]) * scale);
    }
    StoreWords(out + first, count - first, vectors, values);
  }
}

void Dropout(const Context& context, Tensor& out, const Tensor& x, double p,
             Generator::State state) {
  if (!(p >= 0 && p <= 1)) {
    throw Error("Dropout expected a probability in [0, 1], got " + std::to_string(p));
  }
  DispatchTypes(FloatingTypes{}, "Dropout", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CheckDataType("Dropout", out, x.dtype());
    T* const data = out.data<T>();
    const T* const source = x.data<T>();
    Launch(context, Linear(x.numel(), kWords), &DropoutKernel<T>, data, source, x.numel(), state,
           Aligned(data, source), static_cast<float>(p), static_cast<ComputeType<T>>(1 / (1 - p)));
  });
}

}  // namespace

SIMT_REGISTER_KERNEL(RandomUniform, &RandomUniform);
SIMT_REGISTER_KERNEL(RandomNormal, &RandomNormal);
SIMT_REGISTER_KERNEL(RandomInt, &RandomInt);
SIMT_REGISTER_KERNEL(Dropout, &Dropout);

}  // namespace infini_train::simt
