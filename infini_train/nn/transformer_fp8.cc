// The transformer's scales of FP8: which layers have them, and their state in checkpoints.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string_view>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
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

/// What is wrong with a tensor of such a state that is to replace `target`; empty if nothing is.
std::string Fp8StateProblem(std::string_view suffix, const Tensor& target, const Tensor& found) {
  if (found.shape() != target.shape() || found.dtype() != target.dtype()) {
    return fmt::format("expected {} {}, found {} {}", ToString(target.dtype()),
                       target.shape().ToString(), ToString(found.dtype()),
                       found.shape().ToString());
  }
  const bool is_scale = suffix == "scale", is_flag = suffix == "has_past";
  for (const double value : To(found, DataType::kFloat64).ToVector<double>()) {
    int exponent = 0;
    if (is_scale && (std::frexp(value, &exponent) != 0.5 || std::abs(exponent - 1) > 100))
      return fmt::format("expected powers of two from 2^-100 to 2^100, found {}", value);
    if (is_flag && value != 0 && value != 1) return fmt::format("expected 0 or 1, found {}", value);
    if (!is_scale && !(value >= 0 && std::isfinite(value)))
      return fmt::format("expected finite numbers of 0 or more, found {}", value);
  }
  return "";
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
  std::map<std::string, Tensor> given(state.begin(), state.end());
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < fp8_linears_.size(); ++i) {
    const auto first = static_cast<std::int64_t>(i) * kTensors;
    for (const auto& [suffix, member] : kFp8StateTensors) {
      const std::string name = fmt::format("{}.{}", fp8_linears_[i], suffix);
      const auto found = given.find(name);
      if (found == given.end()) {
        problems.push_back(fmt::format("{} is missing", name));
        continue;
      }
      const Tensor target = Slice(all.*member, 0, first, first + kTensors);
      const std::string problem = Fp8StateProblem(suffix, target, found->second);
      if (problem.empty()) {
        CopyInPlace(target, found->second);
      } else {
        problems.push_back(fmt::format("{}: {}", name, problem));
      }
      given.erase(found);
    }
  }
  for (const auto& [name, tensor] : given)
    problems.push_back(fmt::format("{} is unexpected", name));
  if (!problems.empty())
    throw Error(fmt::format("FP8 scales do not fit: {}", fmt::join(problems, "; ")));
  fp8_scales_->LoadState(all);
}

}  // namespace infini_train::nn
