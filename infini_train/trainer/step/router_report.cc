#include "infini_train/trainer/step/router_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

namespace infini_train::trainer {

double RouterReport::Layer::Imbalance() const {
  const double total = std::accumulate(load.begin(), load.end(), 0.0);
  if (total == 0.0) return 1.0;
  return *std::max_element(load.begin(), load.end()) * static_cast<double>(load.size()) / total;
}

double RouterReport::MeanEntropy() const {
  double sum = 0.0;
  for (const Layer& layer : layers)
    sum += layer.entropy;
  return layers.empty() ? 0.0 : sum / static_cast<double>(layers.size());
}

double RouterReport::LargestImbalance() const {
  double largest = 1.0;
  for (const Layer& layer : layers)
    largest = std::max(largest, layer.Imbalance());
  return largest;
}

RouterReport MakeRouterReport(std::span<const float> sums, std::int64_t num_experts) {
  RouterReport report;
  report.load_balancing_loss = sums[0];
  const auto experts = static_cast<std::size_t>(num_experts);
  for (std::size_t first = 1; first + experts + 2 <= sums.size(); first += experts + 2) {
    const std::span<const float> row = sums.subspan(first, experts + 2);
    RouterReport::Layer layer;
    layer.load.assign(row.begin(), row.begin() + num_experts);
    const double choices = std::accumulate(layer.load.begin(), layer.load.end(), 0.0);
    for (double& load : layer.load)
      load /= std::max(choices, 1.0);
    layer.entropy = row[experts] / std::max(row[experts + 1], 1.0F);
    report.layers.push_back(std::move(layer));
  }
  return report;
}

void AppendMetrics(const RouterReport& report, Metrics& metrics) {
  metrics.emplace_back("aux_loss", report.load_balancing_loss);
  metrics.emplace_back("router_entropy", report.MeanEntropy());
  metrics.emplace_back("expert_imbalance", report.LargestImbalance());
  for (std::size_t i = 0; i < report.layers.size(); ++i) {
    metrics.emplace_back(fmt::format("router_entropy/h.{}", i), report.layers[i].entropy);
    metrics.emplace_back(fmt::format("expert_imbalance/h.{}", i), report.layers[i].Imbalance());
  }
}

std::string FormatExpertLoad(const RouterReport& report) {
  std::string text = "expert load of the last step, in percent of each layer's choices";
  for (std::size_t i = 0; i < report.layers.size(); ++i) {
    const RouterReport::Layer& layer = report.layers[i];
    fmt::format_to(std::back_inserter(text), "\nh.{:<3}", i);
    for (const double load : layer.load)
      fmt::format_to(std::back_inserter(text), " {:5.1f}", 100.0 * load);
    fmt::format_to(std::back_inserter(text), " | max/mean {:.2f} | entropy {:.3f}",
                   layer.Imbalance(), layer.entropy);
  }
  return text;
}

}  // namespace infini_train::trainer
