#pragma once

#include <cstdint>

#include "infini_train/core/generator.h"

namespace infini_train {

/// What an Attention op computes besides its tensors.
struct AttentionParams {
  /// Factor on q k^T, usually 1 / sqrt(head size).
  double scale = 1.0;
  /// Query i of T sees keys up to i + S - T: aligned at the end, so that a key/value cache works.
  bool causal = true;
  /// Where positive, a query sees only the last `sliding_window` of the keys that it may see.
  std::int64_t sliding_window = 0;
  /// Probability of dropping an attention weight; weight (b, h, t, s) is element ((b H + h) T + t)
  /// S
  /// + s of the Philox sequence of `dropout_state`.
  double dropout_p = 0.0;
  Generator::State dropout_state = {};
};

/// The two 8-bit floating formats of "FP8 Formats for Deep Learning" (Micikevicius et al. 2022),
/// whose bits a uint8 tensor holds.
enum class Fp8Format : std::uint8_t {
  kE4M3,  ///< largest number 448, no infinity: activations and weights
  kE5M2,  ///< largest number 57344: gradients
};

struct AdamWParams {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

struct SgdParams {
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool first_step = false;
};

}  // namespace infini_train
