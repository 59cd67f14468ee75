#include "infini_train/core/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/core/storage.h"

namespace infini_train {
namespace {

static_assert(std::endian::native == std::endian::little, "little-endian files are written as is");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;

/// NumPy's type codes, without byte order.
constexpr std::pair<std::string_view, DataType> kTypeCodes[] = {
    {"f4", DataType::kFloat32}, {"f8", DataType::kFloat64}, {"f2", DataType::kFloat16},
    {"i8", DataType::kInt64},   {"i4", DataType::kInt32},   {"u1", DataType::kUInt8},
    {"u2", DataType::kUInt16},  {"b1", DataType::kBool}};

struct Header {
  DataType dtype = DataType::kFloat32;
  bool swap_bytes = false;
  bool fortran_order = false;
  Dims shape;
};

/// Reads the header's Python dictionary literal: exactly the keys descr, fortran_order and shape.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Header Parse() {
    Expect('{');
    while (!Take('}')) {
      const std::string_view key = String();
      Expect(':');
      if (key == "descr" && !has_descr_) {
        Descr();
        has_descr_ = true;
      } else if (key == "fortran_order" && !has_order_) {
        header_.fortran_order = Boolean();
        has_order_ = true;
      } else if (key == "shape" && !has_shape_) {
        Shape();
        has_shape_ = true;
      } else {
        Fail("one each of the keys 'descr', 'fortran_order' and 'shape'");
      }
      if (!Take(',')) {
        Expect('}');
        break;
      }
    }
    SkipBlanks();
    if (position_ != text_.size() || !has_descr_ || !has_order_ || !has_shape_) {
      Fail("the keys 'descr', 'fortran_order' and 'shape' and nothing else");
    }
    return header_;
  }

 private:
  [[noreturn]] void Fail(std::string_view expected) const {
    std::string found(text_.substr(0, 200));
    for (char& c : found) {
      if (c < ' ' || c > '~') c = '.';
    }
    throw Error(fmt::format("{}: malformed .npy header at character {}: expected {}, found {}",
                            name_, position_, expected, found));
  }

  void SkipBlanks() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) {
      ++position_;
    }
  }

  bool Take(char c) {
    SkipBlanks();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  void Expect(char c) {
    if (!Take(c)) Fail(fmt::format("'{}'", c));
  }

  std::string_view String() {
    SkipBlanks();
    const char quote = position_ < text_.size() ? text_[position_] : ' ';
    const std::size_t end =
        quote == '\'' || quote == '"' ? text_.find(quote, position_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) Fail("a quoted string");
    const std::string_view value = text_.substr(position_ + 1, end - position_ - 1);
    position_ = end + 1;
    return value;
  }

  bool Boolean() {
    SkipBlanks();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(position_, word.size()) == word) {
        position_ += word.size();
        return value;
      }
    }
    Fail("True or False");
  }

  void Descr() {
    SkipBlanks();
    const std::size_t start = position_;
    const std::string_view descr =
        position_ < text_.size() && text_[position_] == '[' ? "a structure" : String();
    const std::string_view order = "<>|=";
    if (descr.size() == 3 && order.find(descr[0]) != std::string_view::npos) {
      for (const auto& [code, dtype] : kTypeCodes) {
        if (descr.substr(1) != code) continue;
        header_.dtype = dtype;
        header_.swap_bytes = descr[0] == '>';
        return;
      }
    }
    position_ = start;
    throw Error(fmt::format(
        "{}: expected elements of float16, float32, float64, int32, int64, uint8, uint16 or bool, "
        "found NumPy type '{}'",
        name_, descr.substr(0, 40)));
  }

  void Shape() {
    Expect('(');
    while (!Take(')')) {
      SkipBlanks();
      std::int64_t extent = 0;
      const auto [end, status] =
          std::from_chars(text_.data() + position_, text_.data() + text_.size(), extent);
      if (status != std::errc() || extent < 0) Fail("an extent of at most 63 bits");
      position_ = static_cast<std::size_t>(end - text_.data());
      if (header_.shape.size() == kMaxRank) {
        Fail(fmt::format("at most {} dimensions", kMaxRank));
      }
      header_.shape.push_back(extent);
      if (!Take(',')) {
        Expect(')');
        break;
      }
    }
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t position_ = 0;
  Header header_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

/// The header's text and the offset of the elements.
std::pair<std::string_view, std::size_t> FindHeader(std::string_view content,
                                                    std::string_view name) {
  if (content.substr(0, kMagic.size()) != kMagic || content.size() < kMagic.size() + 2) {
    throw Error(
        fmt::format("{}: expected a .npy file, found {} bytes without its first bytes "
                    "\\x93NUMPY and version",
                    name, content.size()));
  }
  const int major = static_cast<unsigned char>(content[6]);
  const int minor = static_cast<unsigned char>(content[7]);
  if (major < 1 || major > 3 || minor != 0) {
    throw Error(fmt::format("{}: expected .npy format version 1.0, 2.0 or 3.0, found {}.{}", name,
                            major, minor));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t start = kMagic.size() + 2 + length_bytes;
  std::uint32_t length = 0;
  if (content.size() >= start) std::memcpy(&length, content.data() + 8, length_bytes);
  if (content.size() < start || length > content.size() - start) {
    throw Error(fmt::format("{}: truncated .npy header: {} bytes announced, the file has {}", name,
                            length, content.size()));
  }
  return {content.substr(start, length), start + length};
}

void SwapBytes(std::byte* data, std::size_t count, std::size_t element_size) {
  for (std::size_t i = 0; i < count; ++i) {
    std::reverse(data + i * element_size, data + (i + 1) * element_size);
  }
}

std::string_view TypeCode(DataType dtype) {
  for (const auto& [code, type] : kTypeCodes) {
    if (type == dtype) return code;
  }
  return "f4";
}

/// The elements as they are stored in the file.
std::vector<std::byte> HostBytes(const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.nbytes());
  tensor.CopyToHost(bytes.data());
  if (tensor.dtype() != DataType::kBFloat16) return bytes;
  std::vector<std::byte> widened(2 * bytes.size());
  for (std::size_t i = 0; i < bytes.size() / sizeof(BFloat16); ++i) {
    BFloat16 narrow;
    std::memcpy(&narrow, bytes.data() + i * sizeof(narrow), sizeof(narrow));
    const float wide = narrow;
    std::memcpy(widened.data() + i * sizeof(wide), &wide, sizeof(wide));
  }
  return widened;
}

}  // namespace

void SaveNpy(const std::string& path, const Tensor& tensor) {
  const std::vector<std::byte> elements = HostBytes(tensor);
  const std::string_view code = TypeCode(tensor.dtype());
  const Dims& shape = tensor.shape();
  // One byte has no order. A tuple of one element ends with a comma.
  std::string header =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                  code.back() == '1' ? '|' : '<', code, fmt::join(shape.begin(), shape.end(), ", "),
                  shape.size() == 1 ? "," : "");
  const std::size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header.push_back('\n');
  AtomicFile file(path);
  file.Write(kMagic);
  const auto length = static_cast<std::uint16_t>(header.size());
  const std::byte prefix[] = {std::byte{1}, std::byte{0}, static_cast<std::byte>(length & 0xFF),
                              static_cast<std::byte>(length >> 8)};
  file.Write(prefix);
  file.Write(header);
  file.Write(elements);
  file.Commit();
}

Tensor ParseNpy(std::span<const std::byte> content, std::string_view name) {
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  const auto [header_text, offset] = FindHeader(text, name);
  const Header header = HeaderParser(header_text, name).Parse();
  const std::size_t element_size = SizeOf(header.dtype);
  const std::span<const std::byte> elements = content.subspan(offset);
  std::int64_t count = 0;
  try {
    count = Numel(header.shape);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", name, error.what()));
  }
  // Divided rather than multiplied: the product may not fit.
  if (elements.size() % element_size != 0 ||
      elements.size() / element_size != static_cast<std::size_t>(count)) {
    throw Error(fmt::format("{}: expected {} elements of {} for shape {}, found {} bytes", name,
                            count, ToString(header.dtype), header.shape.ToString(),
                            elements.size()));
  }
  Dims file_shape = header.shape;
  if (header.fortran_order) std::reverse(file_shape.begin(), file_shape.end());
  Tensor tensor = Tensor::Empty(file_shape, header.dtype);
  tensor.CopyFromHost(elements.data(), elements.size());
  if (count == 0) return header.fortran_order ? Tensor::Empty(header.shape, header.dtype) : tensor;
  if (header.swap_bytes) {
    SwapBytes(static_cast<std::byte*>(tensor.raw_data()), static_cast<std::size_t>(count),
              element_size);
  }
  if (header.dtype == DataType::kBool) {
    // NumPy takes any byte but 0 for True; in a bool it would be undefined.
    auto* const values = static_cast<std::uint8_t*>(tensor.raw_data());
    std::transform(values, values + count, values, [](std::uint8_t value) { return value != 0; });
  }
  if (!header.fortran_order) return tensor;
  Dims strides = tensor.strides();
  std::reverse(strides.begin(), strides.end());
  Tensor result = Tensor::Empty(header.shape, header.dtype);
  tensor.AsStrided(header.shape, strides, 0).CopyToHost(result.raw_data());
  return result;
}

Tensor LoadNpy(const std::string& path) {
  return ParseNpy(MappedFile(path).bytes(), path);
}

}  // namespace infini_train
