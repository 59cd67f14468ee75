#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>

namespace infini::rt {

/// A vector of trivially copyable values that keeps up to `kInline` of them in itself and goes to
/// the heap only beyond that. The size is chosen at construction, the values may change.
template <typename T, std::size_t kInline>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  InlineVector() = default;
  explicit InlineVector(std::size_t size, T value = T{}) {
    Resize(size);
    std::fill_n(data(), size, value);
  }
  InlineVector(std::initializer_list<T> values) { Assign(values.begin(), values.size()); }
  InlineVector(std::span<const T> values) { Assign(values.data(), values.size()); }

  /// From any sized range of values convertible to `T`.
  template <std::ranges::sized_range Range>
  requires(!std::is_same_v<std::remove_cvref_t<Range>, InlineVector> &&
           !std::convertible_to<Range, std::span<const T>> &&
           std::convertible_to<std::ranges::range_value_t<Range>, T>) InlineVector(Range&& range) {
    Resize(std::ranges::size(range));
    T* out = data();
    for (auto&& value : range)
      *out++ = static_cast<T>(value);
  }

  InlineVector(const InlineVector& other) { Assign(other.data(), other.size()); }
  InlineVector(InlineVector&& other) noexcept { Take(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) Assign(other.data(), other.size());
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) Take(other);
    return *this;
  }
  ~InlineVector() = default;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return heap_ ? heap_.get() : inline_; }
  const T* data() const { return heap_ ? heap_.get() : inline_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  void Resize(std::size_t size) {
    if (size > kInline) {
      if (!heap_ || size > size_) heap_ = std::make_unique<T[]>(size);
    } else {
      heap_.reset();
    }
    size_ = size;
  }
  void Assign(const T* values, std::size_t size) {
    Resize(size);
    std::copy_n(values, size, data());
  }
  void Take(InlineVector& other) {
    heap_ = std::move(other.heap_);
    size_ = std::exchange(other.size_, 0);
    if (!heap_) std::copy_n(other.inline_, size_, inline_);
  }

  std::unique_ptr<T[]> heap_;
  std::size_t size_ = 0;
  T inline_[kInline] = {};
};

}  // namespace infini::rt
