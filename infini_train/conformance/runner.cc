#include "infini_train/conformance/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/core/extension_api.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/ops/fallback.h"

namespace infini_train::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMaxFailureTexts = 5;
/// A measurement grows until a call takes this long, or the largest shape is reached: much more of
/// it would be spent on making the numbers.
constexpr double kMinSeconds = 2e-4;
constexpr double kMaxBenchmarkBytes = 64e6;
/// Calls between two waits for the device, so that waiting does not count.
constexpr int kCallsPerMeasurement = 5;
constexpr double kMaxBenchmarkFlops = 2e11;

/// Bits of the significand, the implicit one included.
int SignificandBits(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return 11;
    case DataType::kBFloat16:
      return 8;
    case DataType::kFloat32:
      return 24;
    default:
      return 53;
  }
}

int SmallestExponent(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return -14;
    case DataType::kFloat64:
      return -1022;
    default:
      return -126;
  }
}

/// The distance between neighbouring numbers of the dtype around `magnitude`.
double UnitInLastPlace(DataType dtype, double magnitude) {
  int exponent = SmallestExponent(dtype);
  if (magnitude > 0) exponent = std::max(exponent, std::ilogb(magnitude));
  return std::ldexp(1.0, exponent - SignificandBits(dtype) + 1);
}

/// The error that a kernel may make, in units of the last place: rounding once to the result, and
/// once for each operation in the type computed in (float32 for the half types).
double AllowedUlps(const OpSuite& suite, DataType dtype, const Dims& shape) {
  if (!IsFloatingPoint(dtype)) return 0;
  const double operations = suite.operations(shape);
  const bool is_half = SizeOf(dtype) == 2;
  const double per_operation = is_half ? std::ldexp(1.0, SignificandBits(dtype) - 24) : 1;
  const double rounded_intermediates = is_half && suite.rounds_intermediates ? 4 : 0;
  return 1 + operations * per_operation + rounded_intermediates;
}

struct Difference {
  double ulps = 0;
  std::size_t position = 0;
  double expected = 0;
  double found = 0;
};

Difference Compare(const Tensor& actual, const Tensor& expected, double magnitude) {
  const std::vector<double> found = ToDoubles(actual);
  const std::vector<double> wanted = ToDoubles(expected);
  const DataType dtype = actual.dtype();
  double squares = 0;
  std::size_t finite = 0;
  for (const double value : wanted) {
    if (!std::isfinite(value)) continue;
    squares += value * value;
    ++finite;
  }
  const double typical =
      std::max(magnitude, finite > 0 ? std::sqrt(squares / static_cast<double>(finite)) : 0);
  Difference worst;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (found[i] == wanted[i] || (std::isnan(found[i]) && std::isnan(wanted[i]))) continue;
    double ulps = kInfinity;
    if (IsFloatingPoint(dtype) && std::isfinite(found[i]) && std::isfinite(wanted[i])) {
      ulps = std::fabs(found[i] - wanted[i]) /
             UnitInLastPlace(dtype, std::max(std::fabs(wanted[i]), typical));
    }
    if (ulps > worst.ulps) worst = {ulps, i, wanted[i], found[i]};
  }
  return worst;
}

/// Runs the trials of a suite in one dtype.
class Checker {
 public:
  Checker(Device device, const OpSuite& suite, DataType dtype, OpResult& result)
      : device_(device), suite_(suite), dtype_(dtype), result_(result) {}

  void Run() {
    // float64 and float16 are a device's choice, the others are not; who takes a dtype in one trial
    // takes it in all.
    bool may_refuse = dtype_ == DataType::kFloat64 || dtype_ == DataType::kFloat16;
    for (const Layout layout : suite_.layouts) {
      for (const Dims& shape : suite_.shapes) {
        try {
          RunTrial(layout, shape);
          may_refuse = false;
        } catch (const Error& error) {
          if (may_refuse) {
            result_.skipped.push_back(fmt::format("{}: {}", ToString(dtype_), error.what()));
            return;
          }
          ++accuracy().trials;
          Fail(layout, shape, kInfinity, error.what());
        }
      }
    }
  }

 private:
  Accuracy& accuracy() {
    for (Accuracy& accuracy : result_.accuracy)
      if (accuracy.dtype == dtype_) return accuracy;
    Accuracy fresh;
    fresh.dtype = dtype_;
    result_.accuracy.push_back(fresh);
    return result_.accuracy.back();
  }

  void RunTrial(Layout layout, const Dims& shape) {
    Trial trial({device_, dtype_, layout, suite_.reference_in_same_dtype});
    suite_.body(trial, shape)();
    trial.BecomeReference();
    suite_.body(trial, shape)();
    Accuracy& accuracy = this->accuracy();
    ++accuracy.trials;
    for (const Trial::Comparison& comparison : trial.Comparisons()) {
      const DataType dtype = comparison.actual.dtype();
      double allowed = AllowedUlps(suite_, dtype, shape);
      if (suite_.rounds_intermediates && SizeOf(dtype_) == 2 && dtype == DataType::kFloat32) {
        // A wider result carries the rounding of the half type, in its own finer units.
        allowed = std::ldexp(AllowedUlps(suite_, dtype_, shape), 24 - SignificandBits(dtype_));
      }
      const Difference difference =
          Compare(comparison.actual, comparison.expected, trial.magnitude());
      if (!GapsAreUntouched(comparison.actual)) {
        Fail(layout, shape, kInfinity, "memory between the elements of an output was written");
        return;
      }
      accuracy.worst_ulps = std::max(accuracy.worst_ulps, difference.ulps);
      const double fraction =
          difference.ulps == 0 ? 0 : (allowed > 0 ? difference.ulps / allowed : kInfinity);
      const std::string text =
          fmt::format("element {} of {} is {:.9g}, expected {:.9g}: {:.3g} ulp, at most {:.3g}",
                      difference.position, comparison.actual.shape().ToString(), difference.found,
                      difference.expected, difference.ulps, allowed);
      if (fraction > 1) {
        Fail(layout, shape, fraction, text);
        return;
      }
      if (fraction > accuracy.worst_fraction) {
        accuracy.worst_fraction = fraction;
        accuracy.worst_place = Place(layout, shape) + ": " + text;
      }
    }
  }

  std::string Place(Layout layout, const Dims& shape) const {
    return fmt::format("{} {} {}", ToString(dtype_), ToString(layout), shape.ToString());
  }

  void Fail(Layout layout, const Dims& shape, double fraction, const std::string& text) {
    Accuracy& accuracy = this->accuracy();
    ++accuracy.failures;
    if (fraction == kInfinity) accuracy.worst_ulps = kInfinity;
    accuracy.worst_fraction = std::max(accuracy.worst_fraction, fraction);
    const std::string place = Place(layout, shape) + ": " + text;
    accuracy.worst_place = place;
    if (result_.failures.size() < kMaxFailureTexts) result_.failures.push_back(place);
  }

  Device device_;
  const OpSuite& suite_;
  DataType dtype_;
  OpResult& result_;
};

/// Of one call, on average.
double SecondsOf(Device device, const std::function<void()>& call) {
  Synchronize(device);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCallsPerMeasurement; ++i)
    call();
  Synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
         kCallsPerMeasurement;
}

/// What one call moves, where the device counts it; nothing where no kernel of the device ran.
std::optional<double> MovedBytes(Device device, const std::function<void()>& call) {
  const DeviceGuardImpl& impl = GetDeviceGuardImpl(device.type());
  const std::optional<DeviceTraffic> before = impl.Traffic();
  if (!before) return std::nullopt;
  call();
  Synchronize(device);
  const DeviceTraffic after = impl.Traffic().value_or(*before);
  const std::uint64_t moved =
      after.bytes_read - before->bytes_read + after.bytes_written - before->bytes_written;
  if (moved == 0) return std::nullopt;
  return static_cast<double>(moved);
}

/// Grows the first number of the benchmark's shape until a call can be timed; the best of five.
Speed Measure(Device device, const OpSuite& suite, DataType dtype) {
  Dims shape = suite.benchmark_shape;
  for (;;) {
    Trial trial({device, dtype, Layout::kContiguous, suite.reference_in_same_dtype, false});
    const std::function<void()> call = suite.body(trial, shape);
    SecondsOf(device, call);
    double seconds = kInfinity;
    for (int i = 0; i < 5; ++i)
      seconds = std::min(seconds, SecondsOf(device, call));
    const double flops = suite.flops != nullptr ? suite.flops(shape) : 0;
    const auto bytes = static_cast<double>(trial.least_bytes());
    if (seconds < kMinSeconds && bytes < kMaxBenchmarkBytes && flops < kMaxBenchmarkFlops) {
      shape[0] *= 4;
      continue;
    }
    return {dtype, shape.ToString(), seconds, bytes, flops, MovedBytes(device, call)};
  }
}

}  // namespace

int Report::NumNative() const {
  return static_cast<int>(
      std::count_if(ops.begin(), ops.end(), [](const OpResult& op) { return op.is_native; }));
}

int Report::NumFailedOps() const {
  return static_cast<int>(std::count_if(ops.begin(), ops.end(),
                                        [](const OpResult& op) { return !op.failures.empty(); }));
}

Report Run(const Options& options) {
  const Device device = options.device;
  const DeviceProperties properties = GetDeviceGuardImpl(device.type()).Properties(device.index());
  Report report;
  report.device = device.ToString();
  report.device_name = properties.name;
  report.compute_units = properties.compute_units;
  report.warp_size = properties.warp_size;
  report.framework_version = INFINI_TRAIN_VERSION;
  report.extension_api_version = INFINI_TRAIN_EXTENSION_API_VERSION;

  std::vector<OpId> ops;
  for (int i = 0; i < kNumOps; ++i) {
    const auto id = static_cast<OpId>(i);
    if (options.ops.empty() ||
        std::find(options.ops.begin(), options.ops.end(), GetOpInfo(id).name) != options.ops.end())
      ops.push_back(id);
  }
  for (const std::string& name : options.ops) {
    if (std::none_of(ops.begin(), ops.end(), [&](OpId id) { return GetOpInfo(id).name == name; }))
      throw Error(
          fmt::format("ops: there is no op '{}'; infini-train info --device lists them", name));
  }

  const DeviceGuard guard(device);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (options.progress)
      options.progress(ops[i], static_cast<int>(i), static_cast<int>(ops.size()));
    OpResult result;
    result.op = ops[i];
    result.is_native = HasKernel(device.type(), ops[i]);
    const std::uint64_t fallbacks = FallbackCount(ops[i]);
    for (const OpSuite& suite : OpSuites()) {
      if (suite.op != ops[i]) continue;
      for (const DataType dtype : suite.dtypes)
        Checker(device, suite, dtype, result).Run();
    }
    result.fallbacks = FallbackCount(ops[i]) - fallbacks;
    if (options.benchmark && result.failures.empty()) {
      for (const OpSuite& suite : OpSuites()) {
        if (suite.op != ops[i] || suite.benchmark_shape.empty()) continue;
        for (const DataType dtype : suite.dtypes)
          if (dtype == suite.dtypes[0] || dtype == DataType::kBFloat16)
            result.speed.push_back(Measure(device, suite, dtype));
        break;
      }
    }
    report.ops.push_back(std::move(result));
  }
  return report;
}

}  // namespace infini_train::conformance
