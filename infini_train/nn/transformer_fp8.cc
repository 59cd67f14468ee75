// The transformer's scales of FP8: which layers have them, and their state in checkpoints.

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <unordered_map>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/checklist/tensor_checklist.h"
#include "infini_train/nn/transformer.h"
#include "infini_train/ops/matmul_precision.h"

namespace infini_train::nn {
namespace {

/// Libraries multiply in FP8 where the sums' terms are a multiple of as many.
constexpr std::int64_t kFp8Multiple = 16;

/// The tensors of a state of FP8 scales, by the ends of their names.
constexpr std::pair<std::string_view, Tensor Fp8ScalesState::*> kFp8StateTensors[] = {
    {"scale", &Fp8ScalesState::scale},
    {"amax", &Fp8ScalesState::amax},
    {"history", &Fp8ScalesState::history},
    {"has_past", &Fp8ScalesState::has_past}};

/// Whether `given` has what may replace a tensor of such a state; notes what is wrong with it.
bool IsFp8State(const std::string& name, std::string_view suffix, const Tensor& target,
                const std::unordered_map<std::string, Tensor>& given, TensorChecklist& checklist) {
  if (!checklist.ExpectType(name, target.shape(), target.dtype())) return false;
  const bool is_scale = suffix == "scale", is_flag = suffix == "has_past";
  const char* const expected = is_scale  ? "powers of two from 2^-100 to 2^100"
                               : is_flag ? "0 or 1"
                                         : "finite numbers of 0 or more";
  for (const double value : To(given.at(name), DataType::kFloat64).ToVector<double>()) {
    int exponent = 0;
    const bool fits = is_scale
                          ? std::frexp(value, &exponent) == 0.5 && std::abs(exponent - 1) <= 100
                      : is_flag ? value == 0 || value == 1
                                : value >= 0 && std::isfinite(value);
    if (fits) continue;
    checklist.NoteValues(name, expected, value);
    return false;
  }
  return true;
}

}  // namespace

void Transformer::PrepareFp8() {
  const DataType dtype = head_weight().dtype();
  const bool possible = dtype == DataType::kFloat32 || dtype == DataType::kBFloat16;
  if (fp8_scales_ || !possible || GetMatmulPrecision() != MatmulPrecision::kFp8) return;
  std::vector<Linear*> linears;
  std::vector<Fp8Format> formats;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    for (const auto& [name, module] : blocks_[i]->NamedModules()) {
      auto* linear = dynamic_cast<Linear*>(module);
      if (linear == nullptr) continue;
      linears.push_back(linear);
      fp8_linears_.push_back(fmt::format("h.{}.{}", i, name));
      formats.insert(formats.end(), std::begin(Fp8LinearState::kFormats),
                     std::end(Fp8LinearState::kFormats));
    }
  }
  const bool has_head = config_.vocab_size % kFp8Multiple == 0;
  if (has_head) {
    fp8_linears_.emplace_back("lm_head");
    formats.insert(formats.end(), std::begin(Fp8LinearState::kFormats),
                   std::end(Fp8LinearState::kFormats));
  }
  fp8_scales_ = std::make_shared<Fp8Scales>(formats, head_weight().device());
  const auto state_of = [&](std::size_t i) {
    return std::make_shared<Fp8LinearState>(fp8_scales_, static_cast<std::int64_t>(i));
  };
  for (std::size_t i = 0; i < linears.size(); ++i)
    linears[i]->set_fp8_state(state_of(i));
  if (has_head) fp8_head_ = state_of(linears.size());
}

void Transformer::UpdateFp8Scales() {
  if (fp8_scales_) fp8_scales_->Update();
}

std::vector<Tensor> Transformer::Fp8Magnitudes() const {
  return fp8_scales_ ? fp8_scales_->Magnitudes() : std::vector<Tensor>();
}

NamedTensors Transformer::Fp8State() {
  NamedTensors result;
  if (!fp8_scales_) return result;
  const Fp8ScalesState state = fp8_scales_->State();
  const NoGrad no_grad;
  constexpr auto kTensors = static_cast<std::int64_t>(std::size(Fp8LinearState::kFormats));
  for (std::size_t i = 0; i < fp8_linears_.size(); ++i) {
    const auto first = static_cast<std::int64_t>(i) * kTensors;
    for (const auto& [name, member] : kFp8StateTensors)
      result.emplace_back(fmt::format("{}.{}", fp8_linears_[i], name),
                          Clone(Slice(state.*member, 0, first, first + kTensors)));
  }
  return result;
}

void Transformer::LoadFp8State(const NamedTensors& state) {
  PrepareFp8();
  if (!fp8_scales_ || GetMatmulPrecision() != MatmulPrecision::kFp8) return;
  Fp8ScalesState all = fp8_scales_->State();
  const NoGrad no_grad;
  constexpr auto kTensors = static_cast<std::int64_t>(std::size(Fp8LinearState::kFormats));
  const std::unordered_map<std::string, Tensor> given(state.begin(), state.end());
  TensorChecklist checklist("state of FP8", state);
  for (std::size_t i = 0; i < fp8_linears_.size(); ++i) {
    const auto first = static_cast<std::int64_t>(i) * kTensors;
    for (const auto& [suffix, member] : kFp8StateTensors) {
      const std::string name = fmt::format("{}.{}", fp8_linears_[i], suffix);
      const Tensor target = Slice(all.*member, 0, first, first + kTensors);
      if (IsFp8State(name, suffix, target, given, checklist)) CopyInPlace(target, given.at(name));
    }
  }
  checklist.ThrowIfWrong("the model");
  fp8_scales_->LoadState(all);
}

}  // namespace infini_train::nn
