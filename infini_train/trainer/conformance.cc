#include <fmt/format.h>

#include <filesystem>

#include "infini_train/conformance/runner.h"
#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/ops/dispatch.h"
#include "infini_train/trainer/commands.h"
#include "infini_train/trainer/setup.h"

namespace infini_train::trainer {

int ConformanceCommand(const ConformanceOptions& options, std::FILE* out) {
  const std::filesystem::path folder = options.output_dir;
  CreateFolder(folder);
  conformance::Options check;
  check.device = ResolveDevice(options.device);
  check.ops = options.ops;
  check.benchmark = options.benchmark;
  check.progress = [out](OpId op, int index, int count) {
    fmt::print(out, "[{:>3}/{}] {}\n", index + 1, count, GetOpInfo(op).name);
    std::fflush(out);
  };
  const conformance::Report report = conformance::Run(check);
  WriteFileAtomically((folder / "conformance.json").string(), conformance::ToJson(report));
  WriteFileAtomically((folder / "conformance.md").string(), conformance::ToMarkdown(report));
  WriteFileAtomically((folder / "conformance.html").string(), conformance::ToHtml(report));

  std::size_t falling_back = 0;
  for (const conformance::OpResult& op : report.ops) {
    falling_back += op.fallbacks > 0;
    for (const std::string& text : op.failures)
      fmt::print(out, "FAILED {}: {}\n", GetOpInfo(op.op).name, text);
  }
  fmt::print(out, "{}: {} ops, {} native, {} on the CPU, {} failed; see {}\n", report.device,
             report.ops.size(), report.NumNative(), falling_back, report.NumFailedOps(),
             (folder / "conformance.html").string());
  return report.NumFailedOps() > 0 ? 1 : 0;
}

}  // namespace infini_train::trainer
