#include "infini_train/models/families/weights.h"

#include <algorithm>
#include <string_view>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/checklist/tensor_checklist.h"

namespace infini_train::models {
namespace {

/// What an accelerator converts at a time.
constexpr std::size_t kPieceBytes = std::size_t{64} << 20;
/// How far the system is asked to read ahead of what is being converted.
constexpr std::size_t kReadAheadBytes = std::size_t{256} << 20;

/// The matrix whose rows a mapping counts.
Tensor RowsOf(const Tensor& parameter) {
  return parameter.rank() > 2 ? Reshape(parameter, {-1, parameter.size(-1)}) : parameter;
}

/// The name under which a tensor is saved.
std::string SavedName(const ModelFamily& family, const std::string& name) {
  return name == "lm_head.weight" ? name : std::string(family.optional_prefix()) + name;
}

/// The shape of rows of a parameter as the file stores them.
Dims StoredShape(const WeightPart& part, const Tensor& rows) {
  Dims shape = rows.shape();
  if (part.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

/// Calls visitor(part, rows of the parameter, parameter) for each part of each mapping that
/// parts_of(mapping) says.
template <typename PartsOf, typename Visitor>
void VisitParts(const ModelFamily& family, const Model& model, PartsOf parts_of, Visitor visitor) {
  const NoGrad no_grad;
  const std::unordered_map<std::string, Tensor> parameters = ParametersByName(model);
  for (const WeightMapping& mapping : family.WeightMap(model.config)) {
    const Tensor& parameter = parameters.at(mapping.parameter);
    const Tensor matrix = RowsOf(parameter);
    std::int64_t row = 0;
    for (const WeightPart& part : parts_of(mapping)) {
      const std::int64_t rows = part.rows >= 0 ? part.rows : matrix.size(0);
      visitor(part, Slice(matrix, 0, row, row + rows), parameter);
      row += rows;
    }
  }
}

}  // namespace

std::unordered_map<std::string, Tensor> ParametersByName(const Model& model) {
  const NamedTensors named = model.module->NamedParameters();
  return {named.begin(), named.end()};
}

void CopyWeight(const Tensor& target, const Tensor& stored) {
  const NoGrad no_grad;
  if (target.device().is_cpu()) {
    CopyInPlace(target, stored);
    return;
  }
  if (stored.dtype() == target.dtype() && stored.IsContiguous() && target.IsContiguous()) {
    target.CopyFromHost(stored.raw_data(), stored.nbytes());
    return;
  }
  const std::int64_t rows = stored.size(0);
  const auto row_bytes =
      stored.nbytes() / static_cast<std::size_t>(std::max<std::int64_t>(rows, 1));
  const auto step = static_cast<std::int64_t>(
      std::max<std::size_t>(kPieceBytes / std::max<std::size_t>(row_bytes, 1), 1));
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    const std::int64_t end = std::min(begin + step, rows);
    CopyInPlace(Slice(target, 0, begin, end), Slice(stored, 0, begin, end));
  }
}

NamedTensors WeightsForFile(const ModelFamily& family, const Model& model) {
  NamedTensors tensors;
  const auto all = [](const WeightMapping& mapping) { return mapping.parts; };
  VisitParts(family, model, all, [&](const WeightPart& part, const Tensor& rows, const Tensor&) {
    tensors.emplace_back(SavedName(family, part.name),
                         part.transposed ? Transpose(rows, 0, 1) : rows);
  });
  return tensors;
}

WeightPlan::WeightPlan(const ModelFamily& family, const Model& model,
                       const checkpoint::SafetensorsFolder& files) {
  auto checklist = TensorChecklist::Of(files);
  const std::string prefix(family.optional_prefix());
  const bool are_prefixed = checklist.ContainsPrefix(prefix);
  const auto name_in_file = [&](const std::string& name) {
    const std::string saved = SavedName(family, name);
    return checklist.Contains(saved) || (are_prefixed && !checklist.Contains(name)) ? saved : name;
  };
  const auto parts_in_file = [&](const WeightMapping& mapping) {
    const bool is_whole = !mapping.whole.empty() &&
                          checklist.Contains(name_in_file(mapping.whole)) &&
                          !checklist.Contains(name_in_file(mapping.parts.front().name));
    return is_whole ? std::vector<WeightPart>{{mapping.whole}} : mapping.parts;
  };
  const auto plan = [&](const WeightPart& part, const Tensor& rows, const Tensor& parameter) {
    const std::string name = name_in_file(part.name);
    if (checklist.ExpectFloating(name, StoredShape(part, part.rows < 0 ? parameter : rows)))
      steps_.push_back({rows, name, part.transposed});
  };
  VisitParts(family, model, parts_in_file, plan);
  checklist.ThrowIfWrong("the model", [&](std::string_view name) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    return family.IsIgnorable(model.config, name);
  });
}

void WeightPlan::Run(const checkpoint::SafetensorsFolder& files) const {
  const NoGrad no_grad;
  std::size_t ahead = 0;        // steps that the system was told of
  std::size_t ahead_bytes = 0;  // of them, not yet converted
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    for (; ahead < steps_.size() && ahead_bytes < kReadAheadBytes; ++ahead) {
      ahead_bytes += files.ReadAhead(steps_[ahead].name);
    }
    const Tensor stored = RowsOf(files.Load(steps_[i].name));
    CopyWeight(steps_[i].target, steps_[i].transposed ? Transpose(stored, 0, 1) : stored);
    ahead_bytes -= stored.nbytes();
  }
}

}  // namespace infini_train::models
