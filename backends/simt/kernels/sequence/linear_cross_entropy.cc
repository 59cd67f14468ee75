#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backends/simt/kernels/fp8/transpose_codes.h"
#include "backends/simt/kernels/loss/cross_entropy_in_place.h"
#include "backends/simt/rows.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/fp8.h"
#include "infini_train/ops/fp8_composition.h"

namespace infini_train::simt {
namespace {

// Rows of logits held at once, and bytes of them. A product of fewer rows leaves a part of a large
// chip idle, and every chunk reads and writes all sums of the weight's gradient.
constexpr std::int64_t kMaxRowsPerChunk = 16384;
// For 8192 rows and a vocabulary of 128256 two chunks hold a gigabyte less than one.
constexpr std::int64_t kMaxBytesPerChunk = std::int64_t{1700} << 20;
// Chunks of whole tiles of a product, and rows of logits that begin where it reads them at its
// best, whatever the vocabulary's size.
constexpr std::int64_t kRowsMultiple = 128;
constexpr std::int64_t kRowStrideMultiple = 64;

template <typename S>
struct CopyOrClear {
  S* out;
  const S* x;
  bool clears;

  template <int M>
  SIMT_DEVICE void Visit(std::int64_t i) {
    Vec<S, M> values{};
    if (!clears) values = Load<M>(x + i);
    Store(out + i, values);
  }
};

// The rows of x whose target counts, zeros in place of the others: these have a gradient of 0 at
// their logits, but would make NaN of it in the weight's gradient if they hold infinity or NaN.
template <typename S, typename I, typename Team, int N>
SIMT_KERNEL void MaskRowsKernel(S* out, const S* x, const I* targets, std::int64_t ignore_index,
                                std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = Team::First(); row < rows; row += Team::Count()) {
    const bool ignored = static_cast<std::int64_t>(Load(targets + row)) == ignore_index;
    CopyOrClear<S> body{out + row * columns, x + row * columns, ignored};
    WalkRow<Team, N>(x + row * columns, columns, body);
  }
}

// loss = scale * sum of losses, by one block.
template <typename C>
SIMT_KERNEL void SumLossesKernel(C* loss, const C* losses, std::int64_t count, double scale) {
  double sum = 0;
  for (std::int64_t i = ThreadIndex(); i < count; i += BlockSize())
    sum += static_cast<double>(Load(losses + i));
  const double total = ReduceBlock(sum, SumOp(), 0.0);
  if (ThreadIndex() == 0) Store(loss, static_cast<C>(total * scale));
}

Tensor Rows(const Tensor& x, std::int64_t begin, std::int64_t count) {
  Dims shape = x.shape();
  shape[0] = count;
  return x.AsStrided(shape, x.strides(), x.offset() + begin * x.strides()[0]);
}

Tensor Transpose(const Tensor& x) {
  return x.AsStrided({x.size(1), x.size(0)}, {x.strides()[1], x.strides()[0]}, x.offset());
}

/// A matrix of the first rows * columns elements of `memory`.
Tensor MatrixIn(const Tensor& memory, std::int64_t rows, std::int64_t columns) {
  return memory.AsStrided({rows, columns}, {columns, 1}, memory.offset());
}

/// What gradients from products in FP8 take besides.
struct Fp8Arguments {
  Tensor& amax;
  const Tensor& hidden_scale;
  const Tensor& weight_codes;
  const Tensor& weight_scale;
};

/// The op, or Fp8LinearCrossEntropy where it is given arguments for that, a chunk of rows at a
/// time.
class LinearCrossEntropyRun {
 public:
  LinearCrossEntropyRun(const Context& context, Tensor& grad_hidden, Tensor& grad_weight,
                        const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                        std::int64_t ignore_index, double scale, const Fp8Arguments* fp8 = nullptr)
      : context_(context),
        grad_hidden_(grad_hidden),
        grad_weight_(grad_weight),
        hidden_(hidden),
        weight_(weight),
        targets_(targets),
        ignore_index_(ignore_index),
        scale_(scale),
        fp8_(fp8),
        stat_(hidden.dtype() == DataType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32) {}

  void Run(Tensor& loss) {
    const std::int64_t count = hidden_.size(0);
    losses_ = Empty({count}, stat_);
    if (count == 0) {
      if (grad_weight_.defined()) Call<op::Fill>(grad_weight_, Scalar(0.0));
    } else {
      const std::int64_t rows = RowsPerChunk(count);
      Allocate(rows, count > rows);
    }
    for (std::int64_t begin = 0; begin < count; begin += rows_)
      RunChunk(begin, std::min(rows_, count - begin));
    if (weight_sums_.defined() && !weight_sums_.IsSameAs(grad_weight_))
      Call<op::Copy>(grad_weight_, weight_sums_);
    DispatchFloating("LinearCrossEntropy", stat_, [&](auto tag) {
      using C = typename decltype(tag)::type;
      if constexpr (std::is_same_v<C, ComputeType<C>>) {
        Launch(context_, Geometry{.block = 1024}, SumLossesKernel<C>, loss.data<C>(),
               losses_.data<C>(), count, scale_);
      }
    });
  }

 private:
  Tensor Empty(const Dims& shape, DataType dtype) const {
    return Tensor::Empty(shape, dtype, context_.device);
  }
  bool HasBackward() const { return grad_hidden_.defined() || grad_weight_.defined(); }

  std::int64_t RowsPerChunk(std::int64_t count) const {
    const std::int64_t row_bytes = std::max<std::int64_t>(1, weight_.size(0)) *
                                   static_cast<std::int64_t>(SizeOf(hidden_.dtype()));
    const std::int64_t most =
        std::clamp<std::int64_t>(kMaxBytesPerChunk / row_bytes, 1, kMaxRowsPerChunk);
    const std::int64_t chunks = (count + most - 1) / most;
    const std::int64_t even = (count + chunks - 1) / chunks;
    const std::int64_t rows =
        std::min((even + kRowsMultiple - 1) / kRowsMultiple * kRowsMultiple, count);
    // Where sums over several chunks need memory besides the gradient, one chunk may need less.
    const bool needs_sums = grad_weight_.defined() && grad_weight_.dtype() != stat_;
    const std::int64_t sum_bytes = weight_.numel() * static_cast<std::int64_t>(SizeOf(stat_));
    return needs_sums && (count - rows) * row_bytes <= sum_bytes ? count : rows;
  }

  void Allocate(std::int64_t rows, bool several) {
    rows_ = rows;
    const std::int64_t vocab_size = weight_.size(0);
    const std::int64_t row_stride =
        (vocab_size + kRowStrideMultiple - 1) / kRowStrideMultiple * kRowStrideMultiple;
    logits_ = Empty({rows, row_stride}, hidden_.dtype())
                  .AsStrided({rows, vocab_size}, {row_stride, 1}, 0);
    if (fp8_ != nullptr && HasBackward()) {
      codes_scale_ = ScaleOfBound(Fp8Format::kE5M2, std::abs(scale_));
      codes_scale_tensor_ = MakeFp8Scale(codes_scale_, context_.device);
      codes_ = Empty({rows, vocab_size}, DataType::kUInt8);
    }
    if (!grad_weight_.defined()) return;
    if (fp8_ != nullptr) {
      transposed_codes_ = Empty({vocab_size, rows}, DataType::kUInt8);
      hidden_codes_ = Empty({hidden_.size(1), rows}, DataType::kUInt8);
    }
    masked_ = Empty({rows, hidden_.size(1)}, hidden_.dtype());
    // Sums over several chunks are rounded once, at the end.
    weight_sums_ = several && grad_weight_.dtype() != stat_ ? Empty(grad_weight_.shape(), stat_)
                                                            : grad_weight_;
  }

  void RunChunk(std::int64_t begin, std::int64_t count) {
    const Tensor hidden = Rows(hidden_, begin, count);
    const Tensor targets = Rows(targets_, begin, count);
    Tensor losses = Rows(losses_, begin, count);
    Tensor logits = Rows(logits_, 0, count);
    Call<op::Gemm>(logits, hidden, Transpose(weight_), Tensor(), false);
    if (fp8_ != nullptr && HasBackward()) {
      RunFp8Backward(begin, losses, logits, hidden, targets);
      return;
    }
    // With a backward the logits become their gradient.
    CrossEntropyInPlace(context_, losses, logits, targets, ignore_index_, scale_, HasBackward());
    if (grad_hidden_.defined()) {
      Tensor grad_hidden = Rows(grad_hidden_, begin, count);
      Call<op::Gemm>(grad_hidden, logits, weight_, Tensor(), false);
    }
    if (grad_weight_.defined()) {
      const Tensor masked = Rows(masked_, 0, count);
      MaskRows(masked, hidden, targets);
      Call<op::Gemm>(weight_sums_, Transpose(logits), masked, Tensor(), begin > 0);
    }
  }

  void RunFp8Backward(std::int64_t begin, const Tensor& losses, const Tensor& logits,
                      const Tensor& hidden, const Tensor& targets) {
    const std::int64_t count = logits.size(0), vocab_size = logits.size(1);
    const Tensor codes = MatrixIn(codes_, count, vocab_size);
    CrossEntropyToCodes(context_, losses, codes, logits, targets, ignore_index_,
                        scale_ * static_cast<double>(codes_scale_));
    if (grad_hidden_.defined()) {
      Tensor grad_hidden = Rows(grad_hidden_, begin, count);
      Call<op::Fp8Gemm>(grad_hidden, codes, Fp8Format::kE5M2, codes_scale_tensor_,
                        fp8_->weight_codes, Fp8Format::kE4M3, fp8_->weight_scale, Tensor(), false);
    }
    if (!grad_weight_.defined()) return;
    const Tensor transposed = MatrixIn(transposed_codes_, vocab_size, count);
    TransposeCodes(context_, transposed, codes);
    const Tensor masked = Rows(masked_, 0, count);
    MaskRows(masked, hidden, targets);
    Tensor hidden_codes = MatrixIn(hidden_codes_, hidden.size(1), count);
    Tensor none;
    Call<op::Fp8Quantize>(none, hidden_codes, none, fp8_->amax, masked, fp8_->hidden_scale,
                          Fp8Format::kE4M3);
    Call<op::Fp8Gemm>(weight_sums_, transposed, Fp8Format::kE5M2, codes_scale_tensor_, hidden_codes,
                      Fp8Format::kE4M3, fp8_->hidden_scale, Tensor(), begin > 0);
  }

  void MaskRows(const Tensor& out, const Tensor& x, const Tensor& targets) const {
    DispatchFloating("LinearCrossEntropy", x.dtype(), [&](auto tag) {
      DispatchIndex("LinearCrossEntropy", targets.dtype(), [&](auto index_tag) {
        using S = typename decltype(tag)::type;
        using I = typename decltype(index_tag)::type;
        DispatchRows<S>(x.size(0), x.size(1), {out.raw_data(), x.raw_data()},
                        [&](auto team, auto width, const Geometry& geometry) {
                          Launch(context_, geometry,
                                 &MaskRowsKernel<S, I, typename decltype(team)::type, width()>,
                                 out.data<S>(), x.data<S>(), targets.data<I>(), ignore_index_,
                                 x.size(0), x.size(1));
                        });
      });
    });
  }

  const Context& context_;
  Tensor& grad_hidden_;
  Tensor& grad_weight_;
  const Tensor& hidden_;
  const Tensor& weight_;
  const Tensor& targets_;
  const std::int64_t ignore_index_;
  const double scale_;
  const Fp8Arguments* const fp8_;
  const DataType stat_;
  std::int64_t rows_ = 1;
  Tensor losses_;       // [N]
  Tensor logits_;       // [rows, V] in hidden's type, then its gradient
  Tensor masked_;       // [rows, C]
  Tensor weight_sums_;  // [V, C]
  // In FP8:
  float codes_scale_ = 1;
  Tensor codes_scale_tensor_;  // [2]
  Tensor codes_;               // [rows, V], of the logits' gradient
  Tensor transposed_codes_;    // [V, rows]
  Tensor hidden_codes_;        // [C, rows], transposed
};

void LinearCrossEntropy(const Context& context, Tensor& loss, Tensor& grad_hidden,
                        Tensor& grad_weight, const Tensor& hidden, const Tensor& weight,
                        const Tensor& targets, std::int64_t ignore_index, double scale) {
  LinearCrossEntropyRun(context, grad_hidden, grad_weight, hidden, weight, targets, ignore_index,
                        scale)
      .Run(loss);
}

void Fp8LinearCrossEntropy(const Context& context, Tensor& loss, Tensor& grad_hidden,
                           Tensor& grad_weight, Tensor& amax, const Tensor& hidden,
                           const Tensor& weight, const Tensor& targets, const Tensor& hidden_scale,
                           const Tensor& weight_codes, const Tensor& weight_scale,
                           std::int64_t ignore_index, double scale) {
  const Fp8Arguments fp8 = {amax, hidden_scale, weight_codes, weight_scale};
  LinearCrossEntropyRun(context, grad_hidden, grad_weight, hidden, weight, targets, ignore_index,
                        scale, &fp8)
      .Run(loss);
}

}  // namespace

SIMT_REGISTER_KERNEL(LinearCrossEntropy, &LinearCrossEntropy);
SIMT_REGISTER_KERNEL(Fp8LinearCrossEntropy, &Fp8LinearCrossEntropy);

}  // namespace infini_train::simt
