#include <cstdint>
#include <vector>

#include "infini_train/conformance/suites.h"
#include "infini_train/ops/fp8.h"

namespace infini_train::conformance {
namespace {

constexpr DataType kResultTypes[] = {DataType::kFloat32, DataType::kBFloat16};

/// A step between two numbers of E4M3, in units of float32's last place.
double OneStep(const Dims&) {
  return 1 << 20;
}

/// A step between two numbers of E5M2.
double OneLongStep(const Dims&) {
  return 1 << 21;
}

Tensor ScaleOf(Trial& trial, double scale) {
  return trial.FixedValues({2}, DataType::kFloat32, {1 / scale, scale});
}

/// Codes of numbers between -8 and 8.
Tensor Codes(Trial& trial, const Dims& shape, Fp8Format format, std::uint64_t seed) {
  std::vector<double> values = RandomValues(Numel(shape), -8, 8, seed);
  DispatchFp8(format, [&](auto tag) {
    using F = typename decltype(tag)::type;
    for (double& value : values)
      value = F(static_cast<float>(value)).bits;
  });
  return trial.FixedValues(shape, DataType::kUInt8, values);
}

std::function<void()> QuantizeCall(Trial& trial, const Dims& shape) {
  Tensor out = trial.FixedOutput(shape, DataType::kUInt8);
  Tensor transposed = trial.FixedOutput({shape[1], shape[0]}, DataType::kUInt8);
  Tensor column_sums = trial.FixedOutput({shape[1]}, DataType::kFloat32);
  const Tensor x = trial.Input(shape, -8, 8);
  const Tensor scale = ScaleOf(trial, 64);
  Tensor no_amax;
  trial.SetMagnitude(8);
  return [=]() mutable {
    Call<op::Fp8Quantize>(out, transposed, column_sums, no_amax, x, scale, Fp8Format::kE4M3);
  };
}

/// The numbers of codes [M, K], by a product with the identity: where functions are quantised, one
/// that is rounded otherwise may be another code.
void Read(Tensor& numbers, const Tensor& codes, Fp8Format format, const Tensor& scale) {
  const std::int64_t n = codes.size(1);
  std::vector<std::uint8_t> identity(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i)
    identity[static_cast<std::size_t>(i * (n + 1))] = Float8E4M3(1.0f).bits;
  const Tensor matrix = MakeTensor(codes.device(), DataType::kUInt8, {n, n},
                                   std::vector<double>(identity.begin(), identity.end()));
  const Tensor one = MakeTensor(codes.device(), DataType::kFloat32, {2}, {1, 1});
  Call<op::Fp8Gemm>(numbers, codes, format, scale, matrix, Fp8Format::kE4M3, one, Tensor(), false);
}

template <bool kTanh>
std::function<void()> QuantizeGeluCall(Trial& trial, const Dims& shape) {
  Tensor numbers = trial.FixedOutput(shape, DataType::kFloat32);
  const Tensor x = trial.Input(shape, -8, 8);
  const Tensor scale = ScaleOf(trial, 32);
  Tensor codes = MakeOutput(x.device(), DataType::kUInt8, shape);
  Tensor none;
  return [=]() mutable {
    Call<op::Fp8QuantizeGelu>(codes, none, none, x, scale, Fp8Format::kE4M3, kTanh);
    Read(numbers, codes, Fp8Format::kE4M3, scale);
  };
}

template <bool kTanh>
std::function<void()> QuantizeGeluBackwardCall(Trial& trial, const Dims& shape) {
  Tensor numbers = trial.FixedOutput(shape, DataType::kFloat32);
  Tensor column_sums = trial.FixedOutput({shape[1]}, DataType::kFloat32);
  const Tensor grad_y = trial.Input(shape);
  const Tensor x = trial.Input(shape, -8, 8);
  const Tensor scale = ScaleOf(trial, 128);
  Tensor codes = MakeOutput(x.device(), DataType::kUInt8, shape);
  Tensor none;
  return [=]() mutable {
    Call<op::Fp8QuantizeGeluBackward>(codes, none, column_sums, none, grad_y, x, scale,
                                      Fp8Format::kE4M3, kTanh);
    Read(numbers, codes, Fp8Format::kE4M3, scale);
  };
}

/// LayerNorm where kCentered, else RmsNorm; of x + residual where kAdds.
template <bool kCentered, bool kAdds>
std::function<void()> QuantizeNormCall(Trial& trial, const Dims& shape) {
  Tensor numbers = trial.FixedOutput(shape, DataType::kFloat32);
  Tensor sum = kAdds ? trial.Output(shape) : Tensor();
  Tensor mean = kCentered ? trial.StatOutput({shape[0]}) : Tensor();
  Tensor rstd = trial.StatOutput({shape[0]});
  const Tensor x = trial.Input(shape, -2, 3);
  const Tensor residual = kAdds ? trial.Input(shape, -2, 3) : Tensor();
  const Tensor weight = trial.Input({shape[1]});
  const Tensor bias = kCentered ? trial.Input({shape[1]}) : Tensor();
  const Tensor scale = ScaleOf(trial, 64);
  Tensor codes = MakeOutput(x.device(), DataType::kUInt8, shape);
  Tensor none;
  return [=]() mutable {
    Call<op::Fp8QuantizeNorm>(codes, none, none, sum, mean, rstd, x, residual, weight, bias, scale,
                              Fp8Format::kE4M3, 1e-2);
    Read(numbers, codes, Fp8Format::kE4M3, scale);
  };
}

/// shape: tokens, vocabulary, hidden size.
std::function<void()> LinearCrossEntropyCall(Trial& trial, const Dims& shape) {
  const double factor = 1 / static_cast<double>(shape[0]);
  Tensor loss = trial.StatOutput({});
  Tensor grad_hidden = trial.Output({shape[0], shape[2]});
  Tensor grad_weight = trial.StatOutput({shape[1], shape[2]});
  const Tensor hidden = trial.Input({shape[0], shape[2]});
  const Tensor weight = trial.Input({shape[1], shape[2]});
  const Tensor hidden_scale = ScaleOf(trial, 128), weight_scale = ScaleOf(trial, 8);
  const Tensor weight_codes = Codes(trial, {shape[2], shape[1]}, Fp8Format::kE4M3, 2);
  const Tensor targets = trial.Indices({shape[0]}, shape[1]);
  Tensor no_amax;
  // The gradient of a logit, of which there may be a row in a sum.
  trial.SetMagnitude(2 * factor);
  return [=]() mutable {
    Call<op::Fp8LinearCrossEntropy>(loss, grad_hidden, grad_weight, no_amax, hidden, weight,
                                    targets, hidden_scale, weight_codes, weight_scale, -100,
                                    factor);
  };
}

/// shape: M, N, K.
template <Fp8Format kFormat>
std::function<void()> GemmCall(Trial& trial, const Dims& shape) {
  Tensor out = trial.InOut({shape[0], shape[1]});
  const Tensor a = Codes(trial, {shape[0], shape[2]}, kFormat, 1);
  const Tensor b = Codes(trial, {shape[1], shape[2]}, Fp8Format::kE4M3, 2);
  const Tensor a_scale = ScaleOf(trial, 4), b_scale = ScaleOf(trial, 8);
  const Tensor bias =
      trial.FixedValues({shape[1]}, DataType::kBFloat16, RandomValues(shape[1], -1, 1, 3));
  // A product, of which there are shape[2] in a sum.
  trial.SetMagnitude(2);
  return [=]() mutable {
    Call<op::Fp8Gemm>(out, a, kFormat, a_scale, b, Fp8Format::kE4M3, b_scale, bias,
                      kFormat == Fp8Format::kE5M2);
  };
}

/// shape: T, H.
std::function<void()> UpdateScalesCall(Trial& trial, const Dims& shape) {
  Tensor scales = trial.InOut({shape[0], 2}, 1, 1);
  Tensor amax = trial.InOut({shape[0]}, 0, 9);
  Tensor history = trial.InOut(shape, 0, 9);
  const Tensor largest = trial.FixedValues(
      {shape[0]}, DataType::kFloat32,
      std::vector<double>(static_cast<std::size_t>(shape[0]), Float8E4M3::kLargest));
  return [=]() mutable { Call<op::Fp8UpdateScales>(scales, amax, history, largest); };
}

}  // namespace

void AppendFp8Suites(std::vector<OpSuite>& suites) {
  const std::vector<Dims> matrices = {{1, 1}, {3, 5}, {65, 33}, {128, 64}, {200, 144}};
  const auto sum_of_rows = [](const Dims& shape) { return 10 + static_cast<double>(shape[0]); };
  suites.push_back({OpId::kFp8Quantize,
                    kFloatingTypes,
                    kRowMajor,
                    matrices,
                    &QuantizeCall,
                    sum_of_rows,
                    {1024, 1024}});
  for (const auto body : {&QuantizeGeluCall<false>, &QuantizeGeluCall<true>}) {
    suites.push_back({OpId::kFp8QuantizeGelu, kFloatingTypes, kRowMajor, matrices, body, OneStep});
  }
  for (const auto body : {&QuantizeGeluBackwardCall<false>, &QuantizeGeluBackwardCall<true>}) {
    suites.push_back(
        {OpId::kFp8QuantizeGeluBackward, kFloatingTypes, kRowMajor, matrices, body, OneStep});
  }
  for (const auto body : {&QuantizeNormCall<false, false>, &QuantizeNormCall<false, true>,
                          &QuantizeNormCall<true, false>, &QuantizeNormCall<true, true>}) {
    suites.push_back({OpId::kFp8QuantizeNorm, kFloatingTypes, kRowMajor, matrices, body, OneStep});
  }
  OpSuite head = {OpId::kFp8LinearCrossEntropy,
                  kResultTypes,
                  kContiguousOnly,
                  {{1, 1, 1}, {5, 11, 8}, {70, 130, 33}, {64, 48, 32}},
                  &LinearCrossEntropyCall,
                  OneLongStep};
  head.reference_in_same_dtype = true;
  head.rounds_intermediates = true;
  suites.push_back(head);
  const auto flops = [](const Dims& shape) {
    return 2.0 * static_cast<double>(shape[0]) * static_cast<double>(shape[1]) *
           static_cast<double>(shape[2]);
  };
  // Chips keep 13 bits and more of a sum of such products, which are of magnitude 2 each.
  const auto short_sums = [](const Dims& shape) {
    return 4096 + 128 * static_cast<double>(shape[2]);
  };
  for (const auto body : {&GemmCall<Fp8Format::kE4M3>, &GemmCall<Fp8Format::kE5M2>}) {
    OpSuite suite = {OpId::kFp8Gemm,
                     kResultTypes,
                     kContiguousOnly,
                     {{1, 1, 1}, {5, 7, 3}, {64, 48, 32}, {96, 80, 208}},
                     body,
                     short_sums,
                     {1024, 1024, 1024},
                     flops};
    suite.reference_in_same_dtype = true;
    suite.rounds_intermediates = true;
    suites.push_back(suite);
  }
  OpSuite update = {OpId::kFp8UpdateScales,       kFloat32Only,      kContiguousOnly,
                    {{1, 16}, {300, 16}, {5, 1}}, &UpdateScalesCall, Zero};
  update.reference_in_same_dtype = true;
  suites.push_back(update);
}

}  // namespace infini_train::conformance
