#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <type_traits>

#include "infini_train/core/error.h"
#include "infini_train/core/philox.h"
#include "infini_train/kernels/cpu/elementwise/convert.h"
#include "infini_train/kernels/cpu/math.h"
#include "infini_train/kernels/cpu/parallel.h"
#include "infini_train/kernels/cpu/random_state.h"
#include "infini_train/ops/dispatch.h"

namespace infini_train::cpu {
namespace {

constexpr std::int64_t kBlocks = 256;
/// Elements that are made at a time.
constexpr std::int64_t kTile = 4 * kBlocks;

/// The words of kBlocks Philox blocks in the order of the elements that they belong to.
struct Words {
  Words(Generator::State state, std::uint64_t first_block) {
#pragma omp simd
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      const auto block =
          Philox4x32(state.seed, state.offset, first_block + static_cast<std::uint64_t>(i));
      words[4 * i] = block[0];
      words[4 * i + 1] = block[1];
      words[4 * i + 2] = block[2];
      words[4 * i + 3] = block[3];
    }
  }
  std::uint32_t operator[](std::int64_t element) const {
    return words[element];
  }

  alignas(64) std::uint32_t words[kTile];
};

/// Calls `body(position, n, words)` for each tile of `numel` elements, in parallel.
template <typename Body>
void ForEachTile(std::int64_t numel, Generator::State state, const Body& body) {
  const std::int64_t tiles = (numel + kTile - 1) / kTile;
  state = Resolve(state);
  ParallelFor(0, tiles, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const Words words(state, static_cast<std::uint64_t>(tile * kBlocks));
      body(tile * kTile, std::min(kTile, numel - tile * kTile), words);
    }
  });
}

/// Fills a floating tensor by tiles: `body(words, numbers)` makes kTile floats, or doubles where
/// the data is.
template <typename Body>
void FillFloating(std::string_view op, const Tensor& out, Generator::State state,
                  const Body& body) {
  if (!IsFloatingPoint(out.dtype())) {
    infini_train::detail::ThrowUnsupportedDataType(op, out.dtype(), "a floating type");
  }
  auto* data = static_cast<std::byte*>(out.raw_data());
  const auto element_size = static_cast<std::int64_t>(SizeOf(out.dtype()));
  ForEachTile(out.numel(), state, [&](std::int64_t position, std::int64_t n, const Words& words) {
    const auto run = [&](auto tag) {
      using T = typename decltype(tag)::type;
      alignas(64) T numbers[kTile];
      body(words, numbers);
      Convert(DataTypeOf<T>(), numbers, out.dtype(), data + position * element_size, n);
    };
    if (out.dtype() == DataType::kFloat64) {
      run(TypeTag<double>{});
    } else {
      run(TypeTag<float>{});
    }
  });
}

void RandomUniform(const KernelContext&, Tensor& out, double low, double high,
                   Generator::State state) {
  if (!(low < high)) {
    throw Error(fmt::format("RandomUniform expected low < high, got {} and {}", low, high));
  }
  // Rounding may reach `high`, which is not in the range.
  const double limit = std::max(low, LargestBelow(high, out.dtype()));
  FillFloating("RandomUniform", out, state, [&](const Words& words, auto* numbers) {
    using T = std::remove_pointer_t<decltype(numbers)>;
    const T start = static_cast<T>(low);
    const T width = static_cast<T>(high - low);
    const T largest = static_cast<T>(limit);
    for (std::int64_t i = 0; i < kTile; ++i) {
      const T number = start + width * static_cast<T>(UniformFromBits(words[i]));
      numbers[i] = AtMost(number, largest);
    }
  });
}

/// cos and sin of 2 pi u, for u in [0, 1).
template <typename T>
struct CosSin {
  explicit CosSin(T u) {
    const T quarter = std::floor(T(4) * u + T(0.5));
    const T angle = (u - T(0.25) * quarter) * (T(2) * std::numbers::pi_v<T>);  // Up to pi / 4.
    const T z = angle * angle;
    T c = 0;
    T s = 0;
    if constexpr (sizeof(T) == 4) {
      s = angle +
          angle * z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880))));
      c = 1.0f + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320))));
    } else {
      s = std::sin(angle);
      c = std::cos(angle);
    }
    const bool odd = quarter == T(1) || quarter == T(3);
    const T first = odd ? s : c;
    const T second = odd ? c : s;
    cos = quarter == T(1) || quarter == T(2) ? -first : first;
    sin = quarter == T(2) || quarter == T(3) ? -second : second;
  }

  T cos;
  T sin;
};

void RandomNormal(const KernelContext&, Tensor& out, double mean, double stddev,
                  Generator::State state) {
  FillFloating("RandomNormal", out, state, [&](const Words& words, auto* numbers) {
    using T = std::remove_pointer_t<decltype(numbers)>;
    const T center = static_cast<T>(mean);
    const T scale = static_cast<T>(stddev);
    for (std::int64_t i = 0; i < kTile; i += 2) {
      // 1 - u is in (0, 1], exact.
      const T first = T(1) - static_cast<T>(UniformFromBits(words[i]));
      const T second = static_cast<T>(UniformFromBits(words[i + 1]));
      const T radius = scale * std::sqrt(T(-2) * Log(first));
      const CosSin<T> direction(second);
      numbers[i] = center + radius * direction.cos;
      numbers[i + 1] = center + radius * direction.sin;
    }
  });
}

void RandomInt(const KernelContext&, Tensor& out, std::int64_t low, std::int64_t high,
               Generator::State state) {
  if (low >= high) {
    throw Error(fmt::format("RandomInt expected low < high, got {} and {}", low, high));
  }
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const bool wide = range > std::uint64_t{1} << 32;
  state = Resolve(state);
  DispatchIndex("RandomInt", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* data = out.data<T>();
    ForEachTile(out.numel(), state, [&](std::int64_t position, std::int64_t n, const Words& words) {
      for (std::int64_t i = 0; i < n; ++i) {
        // A fraction of the range: the high half of range * word. Ranges beyond 32 bits take lower
        // bits from the block as far again into the sequence.
        std::uint64_t offset = (range * words[i]) >> 32;
        if (wide) {
          const auto index = static_cast<std::uint64_t>(position + i);
          const std::uint64_t word = static_cast<std::uint64_t>(words[i]) << 32 |
                                     Philox4x32(state.seed, state.offset, ~(index / 4))[index % 4];
          offset = static_cast<std::uint64_t>((static_cast<unsigned __int128>(range) * word) >> 64);
        }
        data[position + i] = static_cast<T>(static_cast<std::uint64_t>(low) + offset);
      }
    });
  });
}

void Dropout(const KernelContext&, Tensor& out, const Tensor& x, double p, Generator::State state) {
  if (!(p >= 0 && p <= 1)) {
    throw Error(fmt::format("Dropout expected a probability in [0, 1], got {}", p));
  }
  if (out.dtype() != x.dtype()) {
    infini_train::detail::ThrowUnsupportedDataType("Dropout", out.dtype(), ToString(x.dtype()));
  }
  const auto* source = static_cast<const std::byte*>(x.raw_data());
  const auto element_size = static_cast<std::int64_t>(SizeOf(x.dtype()));
  auto* data = static_cast<std::byte*>(out.raw_data());
  const auto probability = static_cast<float>(p);
  DispatchFloating("Dropout", x.dtype(), [&](auto tag) {
    using T = ComputeType<typename decltype(tag)::type>;
    const T scale = static_cast<T>(1 / (1 - p));
    ForEachTile(x.numel(), state, [&](std::int64_t position, std::int64_t n, const Words& words) {
      // Copies, which a store to `numbers` cannot change.
      const float threshold = probability;
      const T factor = scale;
      alignas(64) T numbers[kTile];
      Convert(x.dtype(), source + position * element_size, DataTypeOf<T>(), numbers, n);
      for (std::int64_t i = 0; i < n; ++i)
        numbers[i] = UniformFromBits(words[i]) < threshold ? T(0) : numbers[i] * factor;
      Convert(DataTypeOf<T>(), numbers, x.dtype(), data + position * element_size, n);
    });
  });
}

}  // namespace

REGISTER_KERNEL(kCPU, RandomUniform, &RandomUniform);
REGISTER_KERNEL(kCPU, RandomNormal, &RandomNormal);
REGISTER_KERNEL(kCPU, RandomInt, &RandomInt);
REGISTER_KERNEL(kCPU, Dropout, &Dropout);

}  // namespace infini_train::cpu
