#include "infini_train/checkpoint/llmc_checkpoint.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>

#include "infini_train/core/error.h"
#include "infini_train/core/storage.h"

namespace infini_train::checkpoint {
namespace {

constexpr std::size_t kHeaderBytes = kLlmcHeaderInts * sizeof(std::int32_t);
constexpr std::int32_t kVersionFloat32 = 3;
constexpr std::int32_t kVersionBFloat16 = 5;

std::int32_t VersionOf(DataType dtype) {
  if (dtype == DataType::kFloat32) return kVersionFloat32;
  if (dtype == DataType::kBFloat16) return kVersionBFloat16;
  throw Error(
      fmt::format("llm.c checkpoint: expected float32 or bfloat16, got {}", ToString(dtype)));
}

}  // namespace

bool IsLlmcFile(const std::filesystem::path& path, std::int32_t magic) {
  std::ifstream file(path, std::ios::binary);
  std::int32_t found = 0;
  return file.read(reinterpret_cast<char*>(&found), sizeof(found)) && found == magic;
}

LlmcReader::LlmcReader(const std::filesystem::path& path, std::int32_t magic)
    : file_(std::make_shared<MappedFile>(path.string())), position_(kHeaderBytes) {
  const auto bytes = file_->bytes();
  if (bytes.size() < kHeaderBytes) {
    throw Error(fmt::format("{}: expected a header of {} bytes, found a file of {}", path.string(),
                            kHeaderBytes, bytes.size()));
  }
  std::memcpy(header_.data(), bytes.data(), kHeaderBytes);
  if (header_[0] != magic) {
    throw Error(fmt::format("{}: expected magic {}, found {}", path.string(), magic, header_[0]));
  }
  if (header_[1] != kVersionFloat32 && header_[1] != kVersionBFloat16) {
    throw Error(fmt::format("{}: expected version {} (float32) or {} (bfloat16), found {}",
                            path.string(), kVersionFloat32, kVersionBFloat16, header_[1]));
  }
  dtype_ = header_[1] == kVersionFloat32 ? DataType::kFloat32 : DataType::kBFloat16;
}

void LlmcReader::CheckPayload(std::int64_t elements) const {
  const auto expected = kHeaderBytes + static_cast<std::size_t>(elements) * SizeOf(dtype_);
  if (file_->bytes().size() != expected) {
    throw Error(fmt::format("{}: expected {} bytes for the sizes in the header, found {}", path(),
                            expected, file_->bytes().size()));
  }
}

Tensor LlmcReader::Next(const Dims& shape) {
  const std::size_t bytes = static_cast<std::size_t>(Numel(shape)) * SizeOf(dtype_);
  if (bytes > file_->bytes().size() - position_) {
    throw Error(fmt::format("{}: ends in the middle of a tensor", path()));
  }
  const std::byte* data = file_->bytes().data() + position_;
  position_ += bytes;
  auto storage =
      std::make_shared<Storage>(Device(), const_cast<std::byte*>(data), bytes, [file = file_] {});
  return Tensor::FromStorage(std::move(storage), dtype_, shape, ContiguousStrides(shape));
}

LlmcWriter::LlmcWriter(const std::filesystem::path& path, std::int32_t magic, DataType dtype,
                       const std::vector<std::int32_t>& fields)
    : file_(path.string()), dtype_(dtype) {
  std::array<std::int32_t, kLlmcHeaderInts> header{magic, VersionOf(dtype)};
  std::copy(fields.begin(), fields.end(), header.begin() + 2);
  file_.Write(std::as_bytes(std::span(header)));
}

void LlmcWriter::Append(const Tensor& tensor) {
  if (tensor.dtype() == dtype_) {
    std::vector<std::byte> buffer(tensor.nbytes());
    tensor.CopyToHost(buffer.data());
    file_.Write(buffer);
    return;
  }
  // Converted a value at a time on the host: files are written rarely, and from any device.
  DispatchFloating("llm.c checkpoint", tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const T value : tensor.ToVector<T>()) {
      const auto real = static_cast<float>(value);
      const BFloat16 half(real);
      file_.Write(dtype_ == DataType::kFloat32 ? std::as_bytes(std::span(&real, 1))
                                               : std::as_bytes(std::span(&half, 1)));
    }
  });
}

}  // namespace infini_train::checkpoint
