#include "infini_train/autograd/fp8.h"

#include <iterator>
#include <utility>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/functions/helpers.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/fp8.h"

namespace infini_train {
namespace {

/// Distance of rows of scales, so that each lies at a multiple of 16 bytes.
constexpr std::int64_t kScaleStride = 4;

constexpr auto kTensorsPerLinear = static_cast<std::int64_t>(std::size(Fp8LinearState::kFormats));

Tensor Filled(const Dims& shape, Scalar value, Device device) {
  Tensor tensor = Tensor::Empty(shape, DataType::kFloat32, device);
  Call<op::Fill>(tensor, value);
  return tensor;
}

}  // namespace

void Fp8Scales::Rows::Update() {
  Call<op::Fp8UpdateScales>(scales, amax, history, largest);
}

Fp8Scales::Fp8Scales(const std::vector<Fp8Format>& formats, Device device) {
  const auto count = static_cast<std::int64_t>(formats.size());
  all_ = {raw::Narrow(Filled({count, kScaleStride}, 1, device), 1, 0, 2),
          Filled({count}, 0, device), Filled({count, kHistoryLength}, 0, device),
          Tensor::Empty({count}, DataType::kFloat32, device)};
  for (std::int64_t i = 0; i < count; ++i) {
    Rows rows = {raw::Narrow(all_.scales, 0, i, 1), raw::Narrow(all_.amax, 0, i, 1),
                 raw::Narrow(all_.history, 0, i, 1), raw::Narrow(all_.largest, 0, i, 1)};
    const Fp8Format format = formats[static_cast<std::size_t>(i)];
    Call<op::Fill>(rows.largest, LargestOf(format));
    entries_.push_back({rows, raw::Reshape(rows.scales, {2}), raw::Reshape(rows.amax, {}), format});
  }
}

Fp8ScaleUse Fp8Scales::Use(std::int64_t tensor, const Fp8Pass& pass, bool record) {
  Entry& entry = entries_.at(static_cast<std::size_t>(tensor));
  const Device device = entry.scale.device();
  Fp8ScaleUse use = {entry.scale, record ? entry.amax : Tensor(), entry.format};
  if (entry.has_past) return use;
  Rows rows = entry.rows;
  if (!record) {
    rows = {Filled({1, 2}, 1, device), Filled({1}, 0, device), Filled({1, 1}, 0, device),
            entry.rows.largest};
    use.scale = raw::Reshape(rows.scales, {2});
  }
  Tensor none, amax = raw::Reshape(rows.amax, {});
  pass(none, none, none, amax, entry.scale, entry.format);
  rows.Update();
  entry.has_past = record;
  return use;
}

Fp8Matrix Fp8Scales::Quantize(std::int64_t tensor, const Dims& shape, const Fp8Wanted& wanted,
                              const Fp8Pass& pass, bool record) {
  Fp8ScaleUse use = Use(tensor, pass, record);
  const Device device = use.scale.device();
  Fp8Matrix result = {{}, {}, use.scale, use.format};
  if (wanted.codes) result.codes = Tensor::Empty(shape, DataType::kUInt8, device);
  if (wanted.transposed)
    result.transposed = Tensor::Empty({shape[1], shape[0]}, DataType::kUInt8, device);
  Tensor column_sums = wanted.column_sums;
  pass(result.codes, result.transposed, column_sums, use.amax, use.scale, use.format);
  return result;
}

void Fp8Scales::Update() {
  all_.Update();
  ++num_updates_;
}

Fp8ScalesState Fp8Scales::State() const {
  const NoGrad no_grad;
  std::vector<std::uint8_t> has_past;
  for (const Entry& entry : entries_)
    has_past.push_back(entry.has_past ? 1 : 0);
  const Dims count = all_.amax.shape();
  return {raw::Clone(raw::Reshape(raw::Narrow(raw::To(all_.scales, Device()), 1, 1, 1), count)),
          raw::Clone(raw::To(all_.amax, Device())), raw::Clone(raw::To(all_.history, Device())),
          Tensor::FromVector(has_past, count)};
}

void Fp8Scales::LoadState(const Fp8ScalesState& state) {
  const Dims count = all_.amax.shape();
  if (state.scale.shape() != count || state.amax.shape() != count ||
      state.history.shape() != all_.history.shape() || state.has_past.shape() != count) {
    throw Error("Fp8Scales: expected a state of as many tensors as there are scales, " +
                count.ToString() + ", found " + state.scale.shape().ToString());
  }
  const NoGrad no_grad;
  std::vector<float> scales;
  for (const float scale : state.scale.ToVector<float>())
    scales.insert(scales.end(), {1 / scale, scale});
  CopyInPlace(all_.scales, Tensor::FromVector(scales, all_.scales.shape()));
  CopyInPlace(all_.amax, state.amax);
  CopyInPlace(all_.history, state.history);
  const std::vector<std::uint8_t> has_past = state.has_past.ToVector<std::uint8_t>();
  for (std::size_t i = 0; i < entries_.size(); ++i)
    entries_[i].has_past = has_past[i] != 0;
  ++num_updates_;
}

Fp8LinearState::Fp8LinearState(std::shared_ptr<Fp8Scales> scales, std::int64_t index)
    : scales_(std::move(scales)), first_(index * kTensorsPerLinear) {}

Fp8ScaleUse Fp8LinearState::UseInput(const Fp8Pass& pass, bool record) const {
  return scales_->Use(first_, pass, record);
}

Fp8Matrix Fp8LinearState::QuantizeInput(const Dims& shape, const Fp8Wanted& wanted,
                                        const Fp8Pass& pass, bool record) const {
  return scales_->Quantize(first_, shape, wanted, pass, record);
}

bool Fp8LinearState::IsCurrent(const Tensor& weight) const {
  return weight_.scale.defined() && weight_data_ == weight.raw_data() &&
         weight_version_ == weight.version() && weight_updates_ == scales_->num_updates();
}

Fp8Matrix Fp8LinearState::KeepWeight(const Tensor& weight, const Fp8Wanted& wanted, bool record) {
  const Tensor matrix = raw::Contiguous(weight);
  const Fp8Pass pass = [&](Tensor& out, Tensor& transposed, Tensor& column_sums, Tensor& amax,
                           const Tensor& scale, Fp8Format format) {
    Call<op::Fp8Quantize>(out, transposed, column_sums, amax, matrix, scale, format);
  };
  weight_ = scales_->Quantize(first_ + 1, matrix.shape(), wanted, pass, record);
  weight_data_ = weight.raw_data();
  weight_version_ = weight.version();
  weight_updates_ = scales_->num_updates();
  weight_recorded_ = record;
  return weight_;
}

Fp8Matrix Fp8LinearState::QuantizeWeight(const Tensor& weight, bool record) {
  const bool is_there = weight_.codes.defined() && (weight_recorded_ || !record);
  return is_there && IsCurrent(weight) ? weight_
                                       : KeepWeight(weight, {.transposed = record}, record);
}

Fp8Matrix Fp8LinearState::QuantizeTransposedWeight(const Tensor& weight) {
  const bool is_there = weight_.transposed.defined() && weight_recorded_;
  return is_there && IsCurrent(weight) ? weight_ : KeepWeight(weight, {.codes = false}, true);
}

Fp8Matrix Fp8LinearState::QuantizeGradient(const Dims& shape, const Fp8Wanted& wanted,
                                           const Fp8Pass& pass) const {
  return scales_->Quantize(first_ + 2, shape, wanted, pass, /*record=*/true);
}

}  // namespace infini_train
