#include "infini_train/kernels/cpu/indices.h"

#include <fmt/format.h>

#include "infini_train/core/error.h"

namespace infini_train::cpu {

void CheckIndices(std::string_view op, std::string_view what, const Tensor& indices,
                  std::int64_t limit, std::optional<std::int64_t> ignored) {
  DispatchIndex(op, indices.dtype(), [&](auto tag) {
    using I = typename decltype(tag)::type;
    const I* data = indices.data<I>();
    for (std::int64_t i = 0; i < indices.numel(); ++i) {
      const std::int64_t index = data[i];
      if ((index >= 0 && index < limit) || index == ignored) continue;
      throw Error(fmt::format("{}: {} {} at position {} is outside [0, {}){}", op, what, index, i,
                              limit,
                              ignored ? fmt::format(" and not the ignored {}", *ignored) : ""));
    }
  });
}

}  // namespace infini_train::cpu
