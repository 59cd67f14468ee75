#include "kernels/gemm_search.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "infini_train/core/error.h"

namespace infini_train::cuda {
namespace {

constexpr int kRounds = 7;
/// A way that takes so many times as long as the best one leaves.
constexpr float kHopeless = 1.25f;
/// What measurements of one way differ in.
constexpr float kNoise = 1.01f;
/// Short work is repeated until it takes about this many milliseconds, so that the event's
/// resolution and the gaps between kernels do not decide.
constexpr float kShort = 0.1f;
constexpr int kMaxRepeats = 20;
/// No new round begins after this time.
constexpr std::chrono::milliseconds kBudget(400);

void Check(cudaError_t error) {
  if (error != cudaSuccess)
    throw Error(std::string("timing of matrix products: ") + cudaGetErrorString(error));
}

class Event {
 public:
  Event() { Check(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Record(cudaStream_t stream) { Check(cudaEventRecord(event_, stream)); }
  float MillisecondsSince(const Event& start) const {
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Way {
  std::size_t index;
  std::vector<float> times;

  float Median() const {
    std::vector<float> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

}  // namespace

std::optional<std::size_t> FindFastest(cudaStream_t stream, std::size_t count,
                                       const std::function<bool(std::size_t)>& enqueue) {
  // The first run of each loads its kernel, and says whether there is one.
  std::vector<Way> ways;
  for (std::size_t i = 0; i < count; ++i) {
    if (enqueue(i)) ways.push_back({i, {}});
  }
  if (ways.empty()) return std::nullopt;
  if (ways.size() == 1) return ways[0].index;
  Check(cudaStreamSynchronize(stream));

  const auto deadline = std::chrono::steady_clock::now() + kBudget;
  std::vector<Event> marks(ways.size() + 1);
  int repeats = 1;
  for (int round = 0; round < kRounds; ++round) {
    // A first run keeps the device busy while the others are enqueued, so that it never waits.
    enqueue(ways[0].index);
    marks[0].Record(stream);
    for (std::size_t i = 0; i < ways.size(); ++i) {
      for (int repeat = 0; repeat < repeats; ++repeat)
        enqueue(ways[i].index);
      marks[i + 1].Record(stream);
    }
    Check(cudaStreamSynchronize(stream));
    for (std::size_t i = 0; i < ways.size(); ++i)
      ways[i].times.push_back(marks[i + 1].MillisecondsSince(marks[i]) /
                              static_cast<float>(repeats));
    float best = ways[0].Median();
    for (const Way& way : ways)
      best = std::min(best, way.Median());
    std::erase_if(ways, [&](const Way& way) { return way.Median() > kHopeless * best; });
    repeats = std::clamp(static_cast<int>(kShort / std::max(best, 1e-4f)), 1, kMaxRepeats);
    if (ways.size() == 1 || std::chrono::steady_clock::now() > deadline) break;
  }
  const Way* chosen = &ways[0];
  for (const Way& way : ways) {
    if (way.Median() * kNoise < chosen->Median()) chosen = &way;
  }
  return chosen->index;
}

}  // namespace infini_train::cuda
