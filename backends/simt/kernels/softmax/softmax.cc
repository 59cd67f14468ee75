#include "backends/simt/kernels/softmax/statistics.h"

namespace infini_train::simt {
namespace {

/// e^(x - shift) / sum. A row without anything finite has no sum, and zeros.
template <typename T>
struct SoftmaxOf {
  using C = ComputeType<T>;
  ShiftedExponential<T> exponential;
  C factor;

  SIMT_DEVICE explicit SoftmaxOf(SoftmaxStatistics<C> row)
      : exponential(row.Shift()), factor(row.sum == 0 ? C(0) : 1 / row.sum) {}
  SIMT_DEVICE C operator()(C x) const { return exponential(x) * factor; }
};

/// x - shift - log(sum)
template <typename T>
struct LogSoftmaxOf {
  using C = ComputeType<T>;
  C shift;
  C log_sum;

  SIMT_DEVICE explicit LogSoftmaxOf(SoftmaxStatistics<C> row)
      : shift(row.Shift()), log_sum(row.sum == 0 ? C(0) : Log(row.sum)) {}
  SIMT_DEVICE C operator()(C x) const { return (x - shift) - log_sum; }
};

/// Writes a function of each element of a row: a body for WalkRow.
template <typename Function, typename T>
struct WriteElements {
  const T* x;
  T* out;
  Function function;

  template <int M>
  SIMT_DEVICE void Visit(std::int64_t i) {
    const Vec<T, M> values = Load<M>(x + i);
    Vec<T, M> results;
    for (int k = 0; k < M; ++k)
      results[k] = FromCompute<T>(function(ToCompute(values[k])));
    Store(out + i, results);
  }
};

template <template <typename> class Function, typename T, typename Team, int N>
SIMT_KERNEL void ForwardKernel(T* out, const T* x, std::int64_t rows, std::int64_t size) {
  for (std::int64_t row = Team::First(); row < rows; row += Team::Count()) {
    const T* x_row = x + row * size;
    WriteElements<Function<T>, T> write{x_row, out + row * size,
                                        Function<T>(RowStatistics<Team, N>(x_row, size))};
    WalkRow<Team, N>(x_row, size, write);
  }
}

/// grad_x = y * (grad_y - sum(grad_y * y))
template <typename T>
struct SoftmaxGradient {
  using C = ComputeType<T>;
  SIMT_DEVICE static C Term(C grad_y, C y) { return grad_y * y; }
  SIMT_DEVICE static C Result(C grad_y, C y, C sum) { return y * (grad_y - sum); }
};

/// grad_x = grad_y - e^y * sum(grad_y)
template <typename T>
struct LogSoftmaxGradient {
  using C = ComputeType<T>;
  SIMT_DEVICE static C Term(C grad_y, C) { return grad_y; }
  SIMT_DEVICE static C Result(C grad_y, C y, C sum) { return grad_y - Exp(y) * sum; }
};

template <template <typename> class Gradient, typename T>
struct SumTerms {
  const T* grad_y;
  const T* y;
  ComputeType<T> sum;

  template <int M>
  SIMT_DEVICE void Visit(std::int64_t i) {
    const Vec<T, M> g = Load<M>(grad_y + i);
    const Vec<T, M> values = Load<M>(y + i);
    ComputeType<T> part = 0;
    for (int k = 0; k < M; ++k)
      part += Gradient<T>::Term(ToCompute(g[k]), ToCompute(values[k]));
    sum += part;
  }
};

template <template <typename> class Gradient, typename T>
struct WriteGradient {
  T* grad_x;
  const T* grad_y;
  const T* y;
  ComputeType<T> sum;

  template <int M>
  SIMT_DEVICE void Visit(std::int64_t i) {
    const Vec<T, M> g = Load<M>(grad_y + i);
    const Vec<T, M> values = Load<M>(y + i);
    Vec<T, M> results;
    for (int k = 0; k < M; ++k)
      results[k] = FromCompute<T>(Gradient<T>::Result(ToCompute(g[k]), ToCompute(values[k]), sum));
    Store(grad_x + i, results);
  }
};

template <template <typename> class Gradient, typename T, typename Team, int N>
SIMT_KERNEL void BackwardKernel(T* grad_x, const T* grad_y, const T* y, std::int64_t rows,
                                std::int64_t size) {
  for (std::int64_t row = Team::First(); row < rows; row += Team::Count()) {
    const std::int64_t begin = row * size;
    SumTerms<Gradient, T> terms{grad_y + begin, y + begin, 0};
    WalkRow<Team, N>(y + begin, size, terms);
    const ComputeType<T> sum = Team::Reduce(terms.sum, SumOp{}, ComputeType<T>(0));
    WriteGradient<Gradient, T> write{grad_x + begin, grad_y + begin, y + begin, sum};
    WalkRow<Team, N>(y + begin, size, write);
  }
}

template <template <typename> class Function>
void Forward(const char* op, const Context& context, Tensor& out, const Tensor& x) {
  if (x.numel() == 0) return;
  const std::int64_t size = x.rank() == 0 ? 1 : x.size(-1);
  const std::int64_t rows = x.numel() / size;
  DispatchFloating(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    DispatchRows<T>(rows, size, {x.raw_data(), out.raw_data()},
                    [&](auto team, auto width, const Geometry& geometry) {
                      Launch(context, geometry,
                             &ForwardKernel<Function, T, typename decltype(team)::type, width()>,
                             out.data<T>(), x.data<T>(), rows, size);
                    });
  });
}

template <template <typename> class Gradient>
void Backward(const char* op, const Context& context, Tensor& grad_x, const Tensor& grad_y,
              const Tensor& y) {
  if (y.numel() == 0) return;
  const std::int64_t size = y.rank() == 0 ? 1 : y.size(-1);
  const std::int64_t rows = y.numel() / size;
  DispatchFloating(op, y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    DispatchRows<T>(rows, size, {y.raw_data(), grad_y.raw_data(), grad_x.raw_data()},
                    [&](auto team, auto width, const Geometry& geometry) {
                      Launch(context, geometry,
                             &BackwardKernel<Gradient, T, typename decltype(team)::type, width()>,
                             grad_x.data<T>(), grad_y.data<T>(), y.data<T>(), rows, size);
                    });
  });
}

void Softmax(const Context& context, Tensor& out, const Tensor& x) {
  Forward<SoftmaxOf>("Softmax", context, out, x);
}

void LogSoftmax(const Context& context, Tensor& out, const Tensor& x) {
  Forward<LogSoftmaxOf>("LogSoftmax", context, out, x);
}

void SoftmaxBackward(const Context& context, Tensor& grad_x, const Tensor& grad_y,
                     const Tensor& y) {
  Backward<SoftmaxGradient>("SoftmaxBackward", context, grad_x, grad_y, y);
}

void LogSoftmaxBackward(const Context& context, Tensor& grad_x, const Tensor& grad_y,
                        const Tensor& y) {
  Backward<LogSoftmaxGradient>("LogSoftmaxBackward", context, grad_x, grad_y, y);
}

}  // namespace

SIMT_REGISTER_KERNEL(Softmax, &Softmax);
SIMT_REGISTER_KERNEL(SoftmaxBackward, &SoftmaxBackward);
SIMT_REGISTER_KERNEL(LogSoftmax, &LogSoftmax);
SIMT_REGISTER_KERNEL(LogSoftmaxBackward, &LogSoftmaxBackward);

}  // namespace infini_train::simt
