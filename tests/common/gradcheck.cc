#include "tests/common/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/grad_mode.h"
#include "tests/common/device_test.h"

namespace infini_train::test {
namespace {

constexpr double kStep = 1e-5;
/// Central differences are off by about step² f''' / 6 + u |f| / step, some 1e-10 for functions and
/// arguments near 1.
constexpr double kTolerance = 1e-7;

using Values = std::vector<std::vector<double>>;

std::vector<Tensor> FloatingOf(const Outputs& outputs) {
  std::vector<Tensor> floating;
  for (const Tensor& tensor : outputs.tensors) {
    if (IsFloatingPoint(tensor.dtype())) floating.push_back(tensor);
  }
  return floating;
}

Values RandomLike(const std::vector<Tensor>& tensors, std::uint64_t seed) {
  Values values;
  for (const Tensor& tensor : tensors)
    values.push_back(RandomValues(tensor.numel(), 0.5, 1.5, seed++));
  return values;
}

/// As a tensor of an expanded layout holds them: the first slice, again and again.
std::vector<double> Repeated(const Dims& shape, std::vector<double> values) {
  if (shape.empty() || shape[0] == 0) return values;
  const std::size_t slice = values.size() / static_cast<std::size_t>(shape[0]);
  for (std::size_t i = slice; i < values.size(); ++i)
    values[i] = values[i - slice];
  return values;
}

class Checker {
 public:
  Checker(Device device, const GradCheck& check, Values values)
      : device_(device), check_(check), values_(std::move(values)) {}

  /// Computes the slopes that the gradients are compared with.
  void Prepare() {
    const std::vector<Tensor> outputs = Run(values_, DataType::kFloat64);
    weights_ = RandomLike(outputs, 71);
    for (const Tensor& output : outputs) {
      ASSERT_EQ(output.dtype(), DataType::kFloat64);
      output_shapes_.push_back(output.shape());
    }
    Differentiate();
  }

  void CompareAnalytic(Layout input_layout, Layout grad_layout) {
    SCOPED_TRACE(testing::Message() << "inputs " << testing::PrintToString(input_layout)
                                    << ", gradients " << testing::PrintToString(grad_layout));
    const std::vector<bool> all(check_.inputs.size(), true);
    CompareWith(input_layout, grad_layout, all);
    if (check_.inputs.size() < 2) return;
    for (std::size_t i = 0; i < check_.inputs.size(); ++i) {
      std::vector<bool> one(check_.inputs.size(), false);
      one[i] = true;
      CompareWith(input_layout, grad_layout, one);
    }
  }

  void CompareDataType(DataType dtype) {
    SCOPED_TRACE(testing::Message() << "in " << ToString(dtype));
    Values rounded;
    for (std::size_t i = 0; i < values_.size(); ++i)
      rounded.push_back(ToDoubles(MakeTensor(device_, dtype, check_.inputs[i].shape, values_[i])));
    Values weights;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      weights.push_back(ToDoubles(MakeTensor(device_, dtype, output_shapes_[i], weights_[i])));
    }
    const auto [outputs, grads] = Evaluate(rounded, weights, dtype);
    const auto [exact_outputs, exact_grads] = Evaluate(rounded, weights, DataType::kFloat64);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "output " << i);
      ExpectNear(outputs[i], ToDoubles(exact_outputs[i]),
                 check_.stores_between ? dtype : outputs[i].dtype());
    }
    for (std::size_t i = 0; i < grads.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "gradient of input " << i);
      ASSERT_EQ(grads[i].dtype(), dtype);
      ExpectNear(grads[i], ToDoubles(exact_grads[i]), dtype);
    }
  }

 private:
  std::vector<Tensor> Leaves(const Values& values, DataType dtype, Layout layout) const {
    std::vector<Tensor> leaves;
    for (std::size_t i = 0; i < values.size(); ++i)
      leaves.push_back(MakeTensor(device_, dtype, check_.inputs[i].shape, values[i], layout));
    return leaves;
  }

  std::vector<Tensor> Run(const Values& values, DataType dtype) const {
    NoGrad no_grad;
    return FloatingOf(check_.function(Leaves(values, dtype, Layout::kContiguous)));
  }

  /// jacobian_[input][element] holds the slope of each output's elements.
  void Differentiate() {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      std::vector<Values> columns;
      for (std::size_t element = 0; element < values_[i].size(); ++element) {
        Values shifted = values_;
        shifted[i][element] = values_[i][element] + kStep;
        const double above = shifted[i][element];
        const std::vector<Tensor> high = Run(shifted, DataType::kFloat64);
        shifted[i][element] = values_[i][element] - kStep;
        const double width = above - shifted[i][element];
        const std::vector<Tensor> low = Run(shifted, DataType::kFloat64);
        Values column;
        for (std::size_t o = 0; o < high.size(); ++o) {
          std::vector<double> slope = ToDoubles(high[o]);
          const std::vector<double> subtracted = ToDoubles(low[o]);
          for (std::size_t k = 0; k < slope.size(); ++k)
            slope[k] = (slope[k] - subtracted[k]) / width;
          column.push_back(std::move(slope));
        }
        columns.push_back(std::move(column));
      }
      jacobian_.push_back(std::move(columns));
    }
  }

  void CompareWith(Layout input_layout, Layout grad_layout,
                   const std::vector<bool>& requires_grad) {
    const std::vector<Tensor> leaves = Leaves(values_, DataType::kFloat64, input_layout);
    for (std::size_t i = 0; i < leaves.size(); ++i)
      leaves[i].set_requires_grad(requires_grad[i]);
    const std::vector<Tensor> outputs = FloatingOf(check_.function(leaves));
    ASSERT_EQ(outputs.size(), output_shapes_.size());
    Values weights = weights_;
    std::vector<Tensor> roots;
    std::vector<Tensor> grads;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      ASSERT_EQ(outputs[o].shape(), output_shapes_[o]);
      if (grad_layout == Layout::kExpanded) weights[o] = Repeated(output_shapes_[o], weights[o]);
      if (!outputs[o].requires_grad()) {
        // Not every output need depend on every input.
        std::fill(weights[o].begin(), weights[o].end(), 0.0);
        continue;
      }
      roots.push_back(outputs[o]);
      grads.push_back(
          MakeTensor(device_, DataType::kFloat64, output_shapes_[o], weights[o], grad_layout));
    }
    std::vector<std::vector<double>> given;
    for (const Tensor& grad : grads)
      given.push_back(ToDoubles(grad));
    for (int pass = 1; pass <= 2; ++pass) {
      Backward(roots, grads, pass == 1);
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "backward " << pass << ", input " << i);
        if (!requires_grad[i]) {
          EXPECT_FALSE(leaves[i].grad().defined());
          continue;
        }
        CompareGradient(leaves[i], i, weights, pass);
      }
      for (std::size_t g = 0; g < grads.size(); ++g) {
        EXPECT_EQ(ToDoubles(grads[g]), given[g]) << "backward wrote a gradient it was given";
      }
    }
  }

  void CompareGradient(const Tensor& leaf, std::size_t input, const Values& weights, int passes) {
    ASSERT_TRUE(leaf.grad().defined());
    ASSERT_EQ(leaf.grad().shape(), leaf.shape());
    const std::vector<double> analytic = ToDoubles(leaf.grad());
    int failures = 0;
    for (std::size_t element = 0; element < analytic.size() && failures < 3; ++element) {
      double numeric = 0;
      double scale = 1;
      for (std::size_t o = 0; o < weights.size(); ++o) {
        for (std::size_t k = 0; k < weights[o].size(); ++k) {
          const double term = weights[o][k] * jacobian_[input][element][o][k];
          numeric += passes * term;
          scale += std::fabs(term);
        }
      }
      if (std::fabs(analytic[element] - numeric) <= kTolerance * scale) continue;
      ++failures;
      ADD_FAILURE() << "element " << element << " of " << leaf.shape().ToString() << ": expected "
                    << numeric << ", got " << analytic[element];
    }
  }

  std::pair<std::vector<Tensor>, std::vector<Tensor>> Evaluate(const Values& values,
                                                               const Values& weights,
                                                               DataType dtype) const {
    const std::vector<Tensor> leaves = Leaves(values, dtype, Layout::kContiguous);
    for (const Tensor& leaf : leaves)
      leaf.set_requires_grad();
    const std::vector<Tensor> outputs = FloatingOf(check_.function(leaves));
    std::vector<Tensor> roots;
    std::vector<Tensor> incoming;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      roots.push_back(outputs[o]);
      incoming.push_back(MakeTensor(device_, outputs[o].dtype(), outputs[o].shape(), weights[o]));
    }
    Backward(roots, incoming);
    std::vector<Tensor> grads;
    for (const Tensor& leaf : leaves)
      grads.push_back(leaf.grad());
    return {outputs, grads};
  }

  void ExpectNear(const Tensor& actual, const std::vector<double>& exact, DataType compute) {
    Tolerance tolerance;
    tolerance.operations = check_.operations;
    tolerance.compute = compute;
    for (const double value : exact)
      tolerance.scale = std::max(tolerance.scale, std::fabs(value));
    ExpectClose(actual, exact, tolerance);
  }

  Device device_;
  const GradCheck& check_;
  Values values_;
  Values weights_;
  std::vector<Dims> output_shapes_;
  std::vector<std::vector<Values>> jacobian_;
};

}  // namespace

void CheckGradients(Device device, const GradCheck& check) {
  SCOPED_TRACE(check.name);
  Values values;
  Values repeated;
  for (const GradInput& input : check.inputs) {
    const std::uint64_t seed = 1 + values.size();
    values.push_back(input.values.empty()
                         ? RandomValues(Numel(input.shape), input.low, input.high, seed)
                         : input.values);
    repeated.push_back(Repeated(input.shape, values.back()));
  }
  Checker checker(device, check, values);
  checker.Prepare();
  if (testing::Test::HasFatalFailure()) return;
  for (const Layout layout : kWritableLayouts)
    checker.CompareAnalytic(layout, layout);
  checker.CompareAnalytic(Layout::kContiguous, Layout::kExpanded);
  if (check.expanded) {
    Checker expanded(device, check, repeated);
    expanded.Prepare();
    expanded.CompareAnalytic(Layout::kExpanded, Layout::kTransposed);
  }
  if (check.operations > 0) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16})
      checker.CompareDataType(dtype);
  }
}

}  // namespace infini_train::test
