#pragma once

#include <type_traits>

#include "backends/simt/dialect.h"

/// Functions of two arguments that arithmetic ops share with their scalar forms.
namespace infini_train::simt {

/// The unsigned type in which integer arithmetic on T wraps; not narrower than unsigned, since
/// narrower operands would be promoted to int.
template <typename T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

// One struct for each arithmetic operation, on floating operands and on wrapping integers.
#define INFINI_TRAIN_ARITHMETIC(Name, expression)          \
  struct Name##Op {                                        \
    template <typename T>                                  \
    SIMT_DEVICE T operator()(T a_value, T b_value) const { \
      if constexpr (std::is_integral_v<T>) {               \
        const auto a = static_cast<Wrapping<T>>(a_value);  \
        const auto b = static_cast<Wrapping<T>>(b_value);  \
        return static_cast<T>(expression);                 \
      } else {                                             \
        const T a = a_value;                               \
        const T b = b_value;                               \
        return expression;                                 \
      }                                                    \
    }                                                      \
  };
INFINI_TRAIN_ARITHMETIC(Add, a + b)
INFINI_TRAIN_ARITHMETIC(Sub, a - b)
INFINI_TRAIN_ARITHMETIC(ReverseSub, b - a)
INFINI_TRAIN_ARITHMETIC(Mul, a* b)
#undef INFINI_TRAIN_ARITHMETIC

// One struct for each function of two arguments.
#define INFINI_TRAIN_FUNCTION(Name, expression)   \
  struct Name##Op {                               \
    template <typename T>                         \
    SIMT_DEVICE auto operator()(T a, T b) const { \
      return expression;                          \
    }                                             \
  };
INFINI_TRAIN_FUNCTION(Div, a / b)
INFINI_TRAIN_FUNCTION(ReverseDiv, b / a)
INFINI_TRAIN_FUNCTION(Pow, Pow(a, b))
// The sum is NaN where a or b is.
INFINI_TRAIN_FUNCTION(Maximum, a != a || b != b ? T(a + b) : a < b ? b : a)
INFINI_TRAIN_FUNCTION(Minimum, a != a || b != b ? T(a + b) : b < a ? b : a)
INFINI_TRAIN_FUNCTION(Eq, a == b)
INFINI_TRAIN_FUNCTION(Ne, a != b)
INFINI_TRAIN_FUNCTION(Lt, a < b)
INFINI_TRAIN_FUNCTION(Le, a <= b)
INFINI_TRAIN_FUNCTION(LogicalAnd, (a != 0) & (b != 0))
INFINI_TRAIN_FUNCTION(LogicalOr, (a | b) != 0)
#undef INFINI_TRAIN_FUNCTION

}  // namespace infini_train::simt
