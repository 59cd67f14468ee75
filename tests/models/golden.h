#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/file.h"

namespace infini_train::test {

/// A family's folder of tests/golden/data; see tests/golden/README.md.
class Golden {
 public:
  explicit Golden(const std::string& family)
      : folder_(std::filesystem::path(GOLDEN_FOLDER) / family),
        json_(nlohmann::json::parse(ReadFile((folder_ / "golden.json").string()))),
        tensors_(folder_ / "golden.safetensors") {}

  const std::filesystem::path& folder() const { return folder_; }
  /// golden.json
  const nlohmann::json& json() const { return json_; }
  Tensor Get(const std::string& name) const { return tensors_.Load(name); }
  Tensor Ids(const std::string& name) const { return To(Get(name), DataType::kInt64); }

 private:
  std::filesystem::path folder_;
  nlohmann::json json_;
  checkpoint::SafetensorsFile tensors_;
};

/// The largest difference over the largest magnitude of `expected`; infinite where a value is none.
inline double RelativeError(const Tensor& found, const Tensor& expected) {
  // On the CPU: not every device has float64.
  const auto doubles = [](const Tensor& tensor) {
    return To(To(tensor.Detach(), Device()), DataType::kFloat64).ToVector<double>();
  };
  const std::vector<double> values = doubles(found);
  const std::vector<double> wanted = doubles(expected);
  double difference = values.size() == wanted.size() ? 0.0 : INFINITY;
  double magnitude = 0.0;
  for (std::size_t i = 0; i < std::min(values.size(), wanted.size()); ++i) {
    const double away = std::abs(values[i] - wanted[i]);
    difference = std::isnan(away) ? INFINITY : std::max(difference, away);
    magnitude = std::max(magnitude, std::abs(wanted[i]));
  }
  return difference == 0.0 ? 0.0 : difference / magnitude;
}

inline double RelativeError(double found, double expected) {
  const double away = std::abs(found - expected) / std::abs(expected);
  return std::isnan(away) ? INFINITY : away;
}

}  // namespace infini_train::test
