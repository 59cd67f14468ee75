#include <infini/rt/data_type.h>

#include <array>

namespace infini::rt {
namespace {

constexpr std::array<std::string_view, kDataTypeCount> kNames = {
    "int8",   "int16",  "int32",   "int64",    "uint8",   "uint16",
    "uint32", "uint64", "float16", "bfloat16", "float32", "float64"};

}  // namespace

std::string_view ToString(DataType type) {
  auto position = static_cast<std::size_t>(type);
  return position < kNames.size() ? kNames[position] : "unknown";
}

std::optional<DataType> DataTypeFromString(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

}  // namespace infini::rt
