#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/conformance/trial.h"
#include "infini_train/core/api.h"

/// The conformance check of an accelerator: every declared op over shapes, dtypes and strides
/// against the float64 reference, and how fast it is.
namespace infini_train::conformance {

/// The worst of the trials of one op in one dtype.
struct Accuracy {
  DataType dtype = DataType::kFloat32;
  int trials = 0;
  int failures = 0;
  /// The largest error, in units of the last place of the dtype at the larger of the reference's
  /// magnitude and the root mean square of its tensor; infinite for a wrong integer or a NaN.
  double worst_ulps = 0;
  /// The largest fraction of its allowed error that a trial used.
  double worst_fraction = 0;
  /// Where the largest fraction was used: layout, shape, expected and found.
  std::string worst_place;
};

/// The speed of one op in one dtype.
struct Speed {
  DataType dtype = DataType::kFloat32;
  std::string shape;
  double seconds = 0;
  /// The fewest bytes that the call must move: inputs read once, outputs written once.
  double least_bytes = 0;
  double flops = 0;
  /// Bytes that the kernels moved, where the device counts them.
  std::optional<double> moved_bytes;
};

struct OpResult {
  OpId op = {};
  bool is_native = false;
  std::uint64_t fallbacks = 0;
  std::vector<Accuracy> accuracy;
  std::vector<Speed> speed;
  /// Of float64 and float16, which are a device's choice, those that it refused from the first
  /// trial on, with its reason.
  std::vector<std::string> skipped;
  /// The first few failures in words.
  std::vector<std::string> failures;
};

struct INFINI_TRAIN_API Report {
  std::string device;
  std::string device_name;
  int compute_units = 0;
  int warp_size = 0;
  std::string framework_version;
  int extension_api_version = 0;
  std::vector<OpResult> ops;

  int NumNative() const;
  int NumFailedOps() const;
};

struct Options {
  Device device;
  /// Ops to check, by name; empty: all.
  std::vector<std::string> ops;
  /// Whether to measure speed.
  bool benchmark = true;
  /// Called before each op with its place in the list, for progress.
  std::function<void(OpId op, int index, int count)> progress;
};

/// Runs the check. Wrong results are part of the report; throws Error for an unknown op or a device
/// that cannot be used at all.
INFINI_TRAIN_API Report Run(const Options& options);

/// The report as JSON, as Markdown, and as one self-contained HTML page with plots.
INFINI_TRAIN_API std::string ToJson(const Report& report);
INFINI_TRAIN_API std::string ToMarkdown(const Report& report);
INFINI_TRAIN_API std::string ToHtml(const Report& report);

}  // namespace infini_train::conformance
