#include "infini_train/checkpoint/host_values.h"

#include <cstring>
#include <type_traits>

namespace infini_train::checkpoint {

std::vector<std::byte> HostValues(const Tensor& tensor, DataType dtype) {
  std::vector<std::byte> values(static_cast<std::size_t>(tensor.numel()) * SizeOf(dtype));
  if (tensor.dtype() == dtype) {
    tensor.CopyToHost(values.data());
    return values;
  }
  DispatchFloating("conversion for a file", tensor.dtype(), [&](auto source_tag) {
    using Source = typename decltype(source_tag)::type;
    const std::vector<Source> source = tensor.ToVector<Source>();
    DispatchFloating("conversion for a file", dtype, [&](auto target_tag) {
      using Target = typename decltype(target_tag)::type;
      // The half types convert from and to float.
      using Between = std::conditional_t<std::is_same_v<Target, double>, double, float>;
      std::byte* out = values.data();
      for (const Source value : source) {
        const auto converted = static_cast<Target>(static_cast<Between>(value));
        std::memcpy(out, &converted, sizeof(converted));
        out += sizeof(converted);
      }
    });
  });
  return values;
}

}  // namespace infini_train::checkpoint
