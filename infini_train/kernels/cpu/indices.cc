#include "infini_train/kernels/cpu/indices.h"

#include <fmt/format.h>

#include <algorithm>

#include "infini_train/core/error.h"

namespace infini_train::cpu {

void CheckIndices(std::string_view op, std::string_view what, const Tensor& indices,
                  std::int64_t limit, std::optional<std::int64_t> ignored) {
  DispatchIndex(op, indices.dtype(), [&](auto tag) {
    using I = typename decltype(tag)::type;
    const I* row = indices.data<I>();
    const int rank = indices.rank();
    // Once for each repeated element, at its first position.
    Dims shape = indices.shape();
    for (int d = 0; d < rank; ++d) {
      if (indices.strides()[d] == 0) shape[d] = std::min<std::int64_t>(shape[d], 1);
    }
    const std::int64_t columns = rank == 0 ? 1 : shape.back();
    const std::int64_t stride = rank == 0 ? 1 : indices.strides().back();
    const std::int64_t numel = Numel(shape);
    Dims place = Dims::Filled(rank, 0);
    for (std::int64_t begin = 0; begin < numel; begin += columns) {
      for (std::int64_t i = 0; i < columns; ++i) {
        const std::int64_t index = row[i * stride];
        if ((index >= 0 && index < limit) || index == ignored) continue;
        if (rank > 0) place.back() = i;
        std::int64_t position = 0;
        for (int d = 0; d < rank; ++d)
          position = position * indices.shape()[d] + place[d];
        throw Error(fmt::format("{}: {} {} at position {} is outside [0, {}){}", op, what, index,
                                position, limit,
                                ignored ? fmt::format(" and not the ignored {}", *ignored) : ""));
      }
      for (int d = rank - 2; d >= 0; --d) {
        row += indices.strides()[d];
        if (++place[d] < shape[d]) break;
        row -= shape[d] * indices.strides()[d];
        place[d] = 0;
      }
    }
  });
}

}  // namespace infini_train::cpu
