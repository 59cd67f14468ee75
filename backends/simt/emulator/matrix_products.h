#pragma once

#include <bit>
#include <cstdint>

#include "backends/simt/emulator/language.h"

#include "backends/simt/emulator/group_calls.h"
#include "backends/simt/matrix_products.h"
#include "infini_train/core/half.h"

namespace infini_train::simt {

/// One type of two has them, so that kernels are tested with such instructions and without.
template <>
struct MatrixProducts<BFloat16> {
  static constexpr bool kExist = true;

  static void Add(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  Place place = Place::current()) {
    struct Words {
      std::uint32_t a[4];
      std::uint32_t b[2];
    };
    const Words own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const int lane = ThreadIndex() % kLanes;
    const int row = lane / kQuad;
    const int column = lane % kQuad * 2;
    for (int k = 0; k < kQuad; ++k) {
      const Words of_row = Shuffle<kLanes>(own, row * kQuad + k, place);
      const Words of_columns[2] = {Shuffle<kLanes>(own, column * kQuad + k, place),
                                   Shuffle<kLanes>(own, (column + 1) * kQuad + k, place)};
      for (int i = 0; i < 4; ++i) {
        const auto& rows = of_columns[i % 2].b;
        sums[i] +=
            PairProduct(of_row.a[i / 2], rows[0]) + PairProduct(of_row.a[i / 2 + 2], rows[1]);
      }
    }
  }

 private:
  static constexpr int kLanes = 32;
  static constexpr int kQuad = 4;

  static float PairProduct(std::uint32_t a, std::uint32_t b) {
    return std::bit_cast<float>(a << 16) * std::bit_cast<float>(b << 16) +
           std::bit_cast<float>(a & 0xFFFF0000u) * std::bit_cast<float>(b & 0xFFFF0000u);
  }
};

}  // namespace infini_train::simt
