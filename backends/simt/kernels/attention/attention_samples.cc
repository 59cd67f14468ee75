#include <cstdint>

#include "backends/simt/dialect.h"
#include "backends/simt/kernels/attention/attention_heads.h"

namespace infini_train::simt {
namespace {

// Attention kernels ask for the bounds of many positions many times: searched for once, they cost
// those a load.
SIMT_KERNEL void AttentionSamplesKernel(std::int32_t* bounds, const std::int32_t* ends,
                                        std::int64_t count, std::int64_t positions) {
  for (std::int64_t t = GlobalThreadIndex(); t < positions; t += GlobalThreadCount()) {
    std::int64_t first = 0;  // the first of the ends that is beyond t
    for (std::int64_t size = count; size > 0;) {
      const std::int64_t half = size / 2;
      if (Load(ends + first + half) <= t) {
        first += half + 1;
        size -= half + 1;
      } else {
        size = half;
      }
    }
    // Where there is none, t is behind the last sample.
    const std::int64_t begin = first > 0 ? Load(ends + first - 1) : 0;
    const std::int64_t end = first == 0 ? 0 : first < count ? Load(ends + first) : begin;
    Vec<std::int32_t, 2> sample;
    sample[0] = static_cast<std::int32_t>(Max<std::int64_t>(begin, 0));
    sample[1] = static_cast<std::int32_t>(Min<std::int64_t>(end, positions));
    Store(bounds + 2 * t, sample);
  }
}

}  // namespace

Tensor AttentionSamples(const Context& context, const Tensor& cumulative_lengths,
                        std::int64_t positions) {
  if (!cumulative_lengths.defined()) return {};
  Tensor samples = Tensor::Empty({positions, 2}, DataType::kInt32, context.device);
  Launch(context, Linear(positions), &AttentionSamplesKernel, samples.data<std::int32_t>(),
         cumulative_lengths.data<std::int32_t>(), cumulative_lengths.numel(), positions);
  return samples;
}

}  // namespace infini_train::simt
