#include "infini_train/conformance/suites.h"

#include <algorithm>

namespace infini_train::conformance {

const std::vector<OpSuite>& OpSuites() {
  static const std::vector<OpSuite> suites = [] {
    std::vector<OpSuite> all;
    AppendElementwiseSuites(all);
    AppendReductionSuites(all);
    AppendMatmulSuites(all);
    AppendIndexSuites(all);
    AppendSequenceSuites(all);
    AppendFp8Suites(all);
    AppendExpertSuites(all);
    AppendOptimizerSuites(all);
    AppendDecodeSuites(all);
    std::stable_sort(all.begin(), all.end(),
                     [](const OpSuite& a, const OpSuite& b) { return a.op < b.op; });
    return all;
  }();
  return suites;
}

}  // namespace infini_train::conformance
