// Any bytes are the state of a run that is written out again as it was, whose data position a
// loader continues at or refuses; or they are refused themselves.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "infini_train/checkpoint/state/state_json.h"
#include "infini_train/core/error.h"
#include "infini_train/core/json/untrusted_json.h"
#include "infini_train/data/data_loader.h"

namespace {

using namespace infini_train;

constexpr int64_t kStepsPerEpoch = 10;
constexpr int64_t kSequencesPerStep = 4;

class NumberedBatches final : public BatchSource {
 public:
  explicit NumberedBatches(bool orders_sequences) : orders_sequences_(orders_sequences) {}

  int64_t steps_per_epoch() const override { return kStepsPerEpoch; }
  TokenBatch Make(int64_t epoch, int64_t step) const override {
    TokenBatch batch;
    batch.epoch = epoch;
    batch.step = step;
    return batch;
  }
  std::string Identity() const override { return R"({"seed": 5})"; }
  int64_t sequences_per_step() const override { return kSequencesPerStep; }
  bool orders_sequences() const override { return orders_sequences_; }
  bool targets_vary() const override { return false; }

 private:
  const bool orders_sequences_;
};

/// The batch at a position, or the first of the epoch after where that has no more.
bool IsAt(const std::string& position, const TokenBatch& batch) {
  const auto json = ParseJson(position, "position");
  const int64_t sequences = json["sequences_per_step"].get<int64_t>() * json["step"].get<int64_t>();
  const int64_t epoch = json["epoch"].get<int64_t>();
  if (batch.epoch == epoch) return batch.step * kSequencesPerStep == sequences;
  return batch.epoch == epoch + 1 && batch.step == 0 &&
         sequences >= kStepsPerEpoch * kSequencesPerStep;
}

void Continue(const std::string& position, bool orders_sequences) {
  DataLoader loader(std::make_shared<const NumberedBatches>(orders_sequences), /*prefetch=*/0);
  try {
    loader.LoadState(position);
  } catch (const Error&) {
    return;
  }
  const std::string state = loader.State();
  const TokenBatch batch = loader.Next();
  if (batch.step < 0 || batch.step >= kStepsPerEpoch) std::abort();
  if (!IsAt(position, batch) || !IsAt(state, batch)) std::abort();
}

bool IsSame(const checkpoint::TrainingState& a, const checkpoint::TrainingState& b) {
  return a.step == b.step && a.optimizer == b.optimizer && a.optimizer_step == b.optimizer_step &&
         a.random == b.random && a.data_state == b.data_state;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool orders_sequences : {false, true})
    Continue(std::string(text), orders_sequences);

  checkpoint::StateJson read;
  try {
    read = checkpoint::ParseStateJson(text, "state.json");
  } catch (const Error&) {
    return 0;
  }
  const checkpoint::StateJson again = checkpoint::ParseStateJson(
      checkpoint::DumpStateJson(read.state, read.has_fp8_state), "state.json");
  if (again.has_fp8_state != read.has_fp8_state || !IsSame(again.state, read.state)) std::abort();
  for (const bool orders_sequences : {false, true})
    Continue(read.state.data_state, orders_sequences);
  return 0;
}
