#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace infini_train {

/// A number passed by value to an op: an integer (exact for every int64) or a real number.
class Scalar {
 public:
  template <std::integral T>
  Scalar(T value) : integer_(static_cast<std::int64_t>(value)) {}  // NOLINT
  template <std::floating_point T>
  Scalar(T value) : real_(value), is_integer_(false) {}  // NOLINT

  bool is_integer() const { return is_integer_; }

  template <typename T>
  T To() const {
    if constexpr (std::is_same_v<T, bool>) {
      return is_integer_ ? integer_ != 0 : real_ != 0;
    } else if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>) {
      return is_integer_ ? static_cast<T>(integer_) : static_cast<T>(real_);
    } else {
      return static_cast<T>(static_cast<float>(To<double>()));
    }
  }

 private:
  std::int64_t integer_ = 0;
  double real_ = 0;
  bool is_integer_ = true;
};

}  // namespace infini_train
