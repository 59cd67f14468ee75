#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/core/tensor.h"

namespace infini_train {
namespace {

constexpr std::int64_t kMaxElements = 1000;  ///< Longer tensors are abbreviated
constexpr std::int64_t kEdgeItems = 3;       ///< to this many at either end of a dimension.
constexpr std::size_t kLineWidth = 80;
constexpr std::string_view kPrefix = "Tensor(";

/// The part of a tensor that is shown, on the host.
struct Shown {
  Dims shape;
  Dims cut;  ///< 1 for dimensions whose middle is left out
  std::vector<std::byte> values;
};

/// Appends the shown elements of dimensions `dim` and up, from storage offset `offset`.
void Collect(const Tensor& tensor, int dim, std::int64_t offset, Shown& shown) {
  const Dims& shape = tensor.shape();
  const std::int64_t stride = dim < shape.size() ? tensor.strides()[dim] : 1;
  if (dim + 1 < shape.size()) {
    for (std::int64_t i = 0; i < shown.shape[dim]; ++i) {
      const std::int64_t skipped =
          shown.cut[dim] && i >= kEdgeItems ? shape[dim] - 2 * kEdgeItems : 0;
      Collect(tensor, dim + 1, offset + (i + skipped) * stride, shown);
    }
    return;
  }
  const auto append = [&](std::int64_t start, std::int64_t count) {
    const std::size_t end = shown.values.size();
    shown.values.resize(end + static_cast<std::size_t>(count) * SizeOf(tensor.dtype()));
    tensor.AsStrided({count}, {stride}, offset + start * stride)
        .CopyToHost(shown.values.data() + end);
  };
  if (dim == shape.size()) {
    append(0, 1);
  } else if (shown.cut[dim]) {
    append(0, kEdgeItems);
    append(shape[dim] - kEdgeItems, kEdgeItems);
  } else {
    append(0, shape[dim]);
  }
}

Shown Select(const Tensor& tensor) {
  Shown shown{tensor.shape(), Dims::Filled(tensor.rank(), 0), {}};
  const bool abbreviate = tensor.numel() > kMaxElements;
  if (!abbreviate) {
    shown.values.resize(tensor.nbytes());
    tensor.CopyToHost(shown.values.data());
    return shown;
  }
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    if (tensor.shape()[dim] <= 2 * kEdgeItems) continue;
    shown.shape[dim] = 2 * kEdgeItems;
    shown.cut[dim] = 1;
  }
  Collect(tensor, 0, tensor.offset(), shown);
  return shown;
}

template <typename T>
std::vector<std::string> FormatReals(const std::vector<T>& values) {
  double largest = 0;
  double smallest = INFINITY;
  bool integral = true;
  for (const T& value : values) {
    const double magnitude = std::fabs(static_cast<double>(value));
    if (!std::isfinite(magnitude) || magnitude == 0) continue;
    largest = std::max(largest, magnitude);
    smallest = std::min(smallest, magnitude);
    integral = integral && magnitude == std::floor(magnitude);
  }
  // Where four decimals would be too wide, or would not show the small values.
  const bool scientific =
      largest >= 1e8 || (!integral && (smallest < 1e-4 || largest / smallest > 1000));
  std::vector<std::string> texts;
  for (const T& value : values) {
    const auto real = static_cast<double>(value);
    texts.push_back(!std::isfinite(real) ? fmt::format("{}", real)
                    : scientific         ? fmt::format("{:.4e}", real)
                                         : fmt::format("{:.4f}", real));
  }
  return texts;
}

/// The shown values as text, all of the same width.
std::vector<std::string> Format(const Tensor& tensor, const Shown& shown) {
  std::vector<std::string> texts = DispatchAll("ToString", tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool>) {
      std::vector<std::string> words;
      for (const std::byte value : shown.values)
        words.emplace_back(value != std::byte{0} ? "true" : "false");
      return words;
    } else {
      std::vector<T> values(shown.values.size() / sizeof(T));
      if (!values.empty()) std::memcpy(values.data(), shown.values.data(), shown.values.size());
      if constexpr (std::is_integral_v<T>) {
        std::vector<std::string> numbers;
        for (const T value : values)
          numbers.push_back(fmt::format("{}", value));
        return numbers;
      } else {
        return FormatReals(values);
      }
    }
  });
  std::size_t width = 0;
  for (const std::string& text : texts)
    width = std::max(width, text.size());
  for (std::string& text : texts)
    text.insert(0, width - text.size(), ' ');
  return texts;
}

/// Writes nested brackets around the values.
class Layout {
 public:
  Layout(const Shown& shown, const std::vector<std::string>& texts)
      : shown_(shown), texts_(texts) {}

  std::string Run() {
    Write(0);
    return std::move(out_);
  }

 private:
  void NewLine(int lines, std::size_t indent) {
    out_.append(static_cast<std::size_t>(lines), '\n');
    out_.append(indent, ' ');
  }

  void Write(int dim) {
    const int rank = shown_.shape.size();
    if (dim == rank) {
      out_ += texts_[next_++];
      return;
    }
    out_ += '[';
    const std::size_t indent = kPrefix.size() + static_cast<std::size_t>(dim) + 1;
    if (dim + 1 == rank) {
      WriteRow(dim, indent);
    } else {
      for (std::int64_t i = 0; i < shown_.shape[dim]; ++i) {
        if (i > 0) {
          out_ += ',';
          NewLine(rank - dim - 1, indent);
        }
        if (i == kEdgeItems && shown_.cut[dim]) {
          out_ += "...,";
          NewLine(rank - dim - 1, indent);
        }
        Write(dim + 1);
      }
    }
    out_ += ']';
  }

  void WriteRow(int dim, std::size_t indent) {
    std::size_t column = indent;
    for (std::int64_t i = 0; i < shown_.shape[dim]; ++i) {
      if (i > 0) out_ += ", ";
      if (i == kEdgeItems && shown_.cut[dim]) {
        out_ += "..., ";
        column += 5;
      }
      const std::string& text = texts_[next_++];
      // The last column leaves room for the comma.
      if (i > 0 && column + text.size() >= kLineWidth) {
        out_.pop_back();
        NewLine(1, indent);
        column = indent;
      }
      out_ += text;
      column += text.size() + 2;
    }
  }

  const Shown& shown_;
  const std::vector<std::string>& texts_;
  std::size_t next_ = 0;
  std::string out_;
};

}  // namespace

std::string Tensor::ToString() const {
  if (!defined()) return "Tensor(undefined)";
  const std::string description = fmt::format("shape={}, dtype={}, device={})", shape().ToString(),
                                              infini_train::ToString(dtype()), device().ToString());
  if (numel() == 0) return fmt::format("{}[], {}", kPrefix, description);
  const Shown shown = Select(*this);
  const std::vector<std::string> texts = Format(*this, shown);
  const std::string values = Layout(shown, texts).Run();
  // Below several lines the description has a line of its own.
  const bool one_line = values.find('\n') == std::string::npos;
  return fmt::format("{}{},{:{}}{}", kPrefix, values, one_line ? " " : "\n",
                     one_line ? 1 : kPrefix.size() + 1, description);
}

}  // namespace infini_train
