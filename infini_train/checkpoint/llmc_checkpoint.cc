#include "infini_train/checkpoint/llmc_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "infini_train/checkpoint/host_values.h"
#include "infini_train/core/error.h"
#include "infini_train/core/storage.h"

namespace infini_train::checkpoint {
namespace {

constexpr std::size_t kHeaderBytes = kLlmcHeaderInts * sizeof(std::int32_t);
/// "3 (float32) or 5 (bfloat16)"
std::string Describe(const std::vector<LlmcVersion>& versions) {
  std::vector<std::string> words;
  for (const LlmcVersion& version : versions)
    words.push_back(fmt::format("{} ({})", version.number, ToString(version.dtype)));
  return fmt::format("{}", fmt::join(words, " or "));
}

const LlmcVersion& VersionFor(DataType dtype, const std::vector<LlmcVersion>& versions) {
  for (const LlmcVersion& version : versions) {
    if (version.dtype == dtype) return version;
  }
  throw Error(fmt::format("llm.c checkpoint: expected a type of version {}, got {}",
                          Describe(versions), ToString(dtype)));
}

}  // namespace

const std::vector<LlmcVersion>& LlmcVersions() {
  static const std::vector<LlmcVersion> versions = {{3, DataType::kFloat32},
                                                    {5, DataType::kBFloat16}};
  return versions;
}

bool IsLlmcFile(const std::filesystem::path& path, std::int32_t magic) {
  return LeadingInt32(path) == magic;
}

LlmcReader::LlmcReader(const std::filesystem::path& path, std::int32_t magic,
                       const std::vector<LlmcVersion>& versions)
    : file_(std::make_shared<MappedFile>(path.string())) {
  const auto bytes = file_->bytes();
  if (bytes.size() < kHeaderBytes) {
    throw Error(fmt::format("{}: expected a header of {} bytes, found a file of {}", path.string(),
                            kHeaderBytes, bytes.size()));
  }
  std::memcpy(header_.data(), bytes.data(), kHeaderBytes);
  if (header_[0] != magic) {
    throw Error(fmt::format("{}: expected magic {}, found {}", path.string(), magic, header_[0]));
  }
  for (const LlmcVersion& version : versions) {
    if (version.number != header_[1]) continue;
    dtype_ = version.dtype;
    return;
  }
  throw Error(fmt::format("{}: expected version {}, found {}", path.string(), Describe(versions),
                          header_[1]));
}

std::optional<double> LlmcReader::HeaderReal(int index) const {
  const std::int32_t bits = header(index);
  const auto value = std::bit_cast<float>(bits);
  if (bits != 0 && std::fpclassify(value) == FP_SUBNORMAL) return std::nullopt;
  // The decimal that the writer meant: 1e-05 rather than 9.999999747378752e-06.
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

std::int64_t LlmcReader::PayloadElements() const {
  return static_cast<std::int64_t>((file_->bytes().size() - kHeaderBytes) / SizeOf(dtype_));
}

std::span<const std::byte> LlmcReader::Payload(std::int64_t first, std::int64_t elements) const {
  if (first < 0 || elements < 0 || first > PayloadElements() ||
      elements > PayloadElements() - first) {
    throw Error(fmt::format("{}: expected {} values from value {} on, found {} in all", path(),
                            elements, first, PayloadElements()));
  }
  return file_->bytes().subspan(kHeaderBytes + static_cast<std::size_t>(first) * SizeOf(dtype_),
                                static_cast<std::size_t>(elements) * SizeOf(dtype_));
}

void LlmcReader::CheckPayload(std::int64_t elements) const {
  const std::size_t bytes = file_->bytes().size() - kHeaderBytes;
  if (PayloadElements() != elements || bytes % SizeOf(dtype_) != 0) {
    throw Error(
        fmt::format("{}: expected {} values of {} for the sizes in the header, found {} bytes",
                    path(), elements, ToString(dtype_), bytes));
  }
}

Tensor LlmcReader::Next(const Dims& shape) {
  const std::int64_t elements = Numel(shape);
  const std::span<const std::byte> values = Payload(next_, elements);
  next_ += elements;
  auto storage = std::make_shared<Storage>(Device(), const_cast<std::byte*>(values.data()),
                                           values.size(), [file = file_] {});
  return Tensor::FromStorage(std::move(storage), dtype_, shape, ContiguousStrides(shape));
}

LlmcWriter::LlmcWriter(const std::filesystem::path& path, std::int32_t magic, DataType dtype,
                       const std::vector<std::int32_t>& fields,
                       const std::vector<LlmcVersion>& versions)
    : file_(path.string()), dtype_(dtype) {
  std::array<std::int32_t, kLlmcHeaderInts> header{magic, VersionFor(dtype, versions).number};
  std::copy(fields.begin(), fields.end(), header.begin() + 2);
  file_.Write(std::as_bytes(std::span(header)));
}

void LlmcWriter::Append(const Tensor& tensor) {
  file_.Write(HostValues(tensor, dtype_));
}

}  // namespace infini_train::checkpoint
