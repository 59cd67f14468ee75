// Times single ops on a device by its own events, at the shapes of training:
//
//   benchmarks/device_ops --device cuda --filter gemm/fc
//
// Prints the median of the calls, and the work and memory traffic per second that the least work
// and traffic of each call make of it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/device_ops/cases.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/trainer/setup.h"

namespace infini_train::device_ops {

Tensor Random(const Dims& shape, DataType dtype, Device device) {
  Tensor values = Tensor::Empty(shape, dtype, device);
  Call<op::RandomNormal>(values, 0.0, 0.02, Generator::State{.seed = 1});
  return values;
}

Tensor Indices(const Dims& shape, std::int64_t limit, Device device) {
  Tensor indices = Tensor::Empty(shape, DataType::kInt64, device);
  Call<op::RandomInt>(indices, 0, limit, Generator::State{.seed = 2});
  return indices;
}

double Bytes(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors)
    bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

namespace {

struct Options {
  std::string device = "cuda";
  std::string filter;
  int calls = 20;
  int warmup = 3;
};

/// Milliseconds of the median call. All calls are enqueued before the first time is read, so that
/// the device never waits for the host.
double MedianMilliseconds(Device device, const std::function<void()>& call,
                          const Options& options) {
  DeviceGuardImpl& impl = GetDeviceGuardImpl(device.type());
  for (int i = 0; i < options.warmup; ++i)
    call();
  Synchronize(device);
  const StreamHandle stream = CurrentStream(device);
  std::vector<EventHandle> events(static_cast<std::size_t>(options.calls) + 1);
  for (EventHandle& event : events)
    event = impl.CreateEvent();
  impl.RecordEvent(events[0], stream);
  for (int i = 1; i <= options.calls; ++i) {
    call();
    impl.RecordEvent(events[static_cast<std::size_t>(i)], stream);
  }
  Synchronize(device);
  std::vector<double> times;
  for (std::size_t i = 1; i < events.size(); ++i)
    times.push_back(impl.ElapsedMilliseconds(events[i - 1], events[i]));
  for (const EventHandle event : events)
    impl.DestroyEvent(event);
  std::nth_element(times.begin(), times.begin() + options.calls / 2, times.end());
  return times[static_cast<std::size_t>(options.calls / 2)];
}

void Run(const Options& options) {
  const Device device = trainer::ResolveDevice(options.device);
  const DeviceGuard guard(device);
  std::vector<Case> cases;
  AppendGemmCases(cases);
  AppendAttentionCases(cases);
  AppendDecodeCases(cases);
  AppendExpertCases(cases);
  AppendFp8Cases(cases);
  AppendMemoryCases(cases);
  fmt::print("{:<56} {:>9} {:>9} {:>8}\n", "op", "ms", "TFLOP/s", "TB/s");
  for (const Case& one : cases) {
    if (one.name.find(options.filter) == std::string::npos) continue;
    const Measured measured = one.make(device);
    const double milliseconds = MedianMilliseconds(device, measured.call, options);
    const auto rate = [&](double amount) {
      return amount > 0 ? fmt::format("{:.2f}", amount / milliseconds * 1e-9) : std::string("-");
    };
    fmt::print("{:<56} {:>9.4f} {:>9} {:>8}\n", one.name, milliseconds, rate(measured.flops),
               rate(measured.bytes));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace infini_train::device_ops

int main(int argc, char** argv) {
  infini_train::device_ops::Options options;
  CLI::App app("Times single ops on a device");
  app.add_option("--device", options.device, "cuda, cuda:1, ...")->capture_default_str();
  app.add_option("--filter", options.filter, "only cases whose name has this text in it");
  app.add_option("--calls", options.calls, "measured calls of each")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "calls before them")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    infini_train::device_ops::Run(options);
  } catch (const infini_train::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  }
}
