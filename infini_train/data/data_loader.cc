#include "infini_train/data/data_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "infini_train/core/error.h"
#include "infini_train/core/json/json_node.h"
#include "infini_train/core/json/untrusted_json.h"

namespace infini_train {
namespace {

using Json = nlohmann::json;

// Beyond any run: what is saved may be anything, and epochs are counted on from it.
constexpr int64_t kMostEpochs = int64_t{1} << 53;

struct Position {
  int64_t epoch = 0;
  int64_t step = 0;
};

}  // namespace

class DataLoader::Impl {
 public:
  Impl(std::shared_ptr<const BatchSource> source, int prefetch)
      : source_(std::move(source)), prefetch_(prefetch) {
    if (prefetch < 0) {
      throw Error(fmt::format("expected 0 or more batches to prefetch, found {}", prefetch));
    }
    Start();
  }

  ~Impl() { Stop(); }

  int64_t steps_per_epoch() const { return source_->steps_per_epoch(); }

  TokenBatch Next() {
    TokenBatch batch = prefetch_ > 0 ? Take() : Make(position_);
    position_ = After({batch.epoch, batch.step});
    return batch;
  }

  std::string State() const {
    Json state = Identity();
    state["epoch"] = position_.epoch;
    state["step"] = position_.step;
    return state.dump();
  }

  void LoadState(const std::string& text) {
    const Position position = Parse(text);
    Stop();
    position_ = position;
    Start();
  }

 private:
  // What must agree for a position to mean the same batch.
  Json Identity() const {
    Json identity = Json::parse(source_->Identity());
    identity["sequences_per_step"] = source_->sequences_per_step();
    return identity;
  }

  Position Parse(const std::string& text) const {
    Json state = ParseJson(text, "data position");
    if (!state.is_object()) throw Error("data position: expected a JSON object");
    Regroup(state);
    std::vector<std::string> differences;
    const Json identity = Identity();
    for (const auto& [key, here] : identity.items()) {
      const auto saved = state.find(key);
      if (saved == state.end()) {
        differences.push_back(fmt::format("{} is missing, here {}", key, DescribeJson(here)));
      } else if (*saved != here) {
        differences.push_back(
            fmt::format("{} was {}, is {}", key, DescribeJson(*saved), DescribeJson(here)));
      }
    }
    if (!differences.empty()) {
      throw Error(fmt::format("the data position was saved under other settings: {}",
                              fmt::join(differences, "; ")));
    }
    const JsonNode position(state, "data position");
    return {position.Required("epoch").Index(kMostEpochs),
            position.Required("step").Index(steps_per_epoch())};
  }

  /// A position in an order of sequences counted in steps of another number of sequences becomes
  /// one of this loader's, where it begins one.
  void Regroup(Json& state) const {
    constexpr int64_t kMost = int64_t{1} << 31;
    const auto number = [&state](const char* key) -> int64_t {
      const auto value = state.find(key);
      if (value == state.end() || !value->is_number_integer()) return -1;
      return value->get<int64_t>();
    };
    const int64_t here = source_->sequences_per_step();
    const int64_t saved = number("sequences_per_step");
    const int64_t step = number("step");
    const int64_t epoch = number("epoch");
    const bool is_position = saved > 0 && saved < kMost && step >= 0 && step < kMost &&
                             epoch >= 0 && epoch < kMostEpochs;
    if (!source_->orders_sequences() || !is_position || saved == here || saved * step % here != 0)
      return;
    state["sequences_per_step"] = here;
    state["step"] = saved * step / here;
    // Fewer steps fit where they are larger.
    if (saved * step / here < steps_per_epoch()) return;
    state["step"] = 0;
    state["epoch"] = epoch + 1;
  }

  Position After(const Position& position) const {
    if (position.step + 1 < steps_per_epoch()) return {position.epoch, position.step + 1};
    return {position.epoch + 1, 0};
  }

  TokenBatch Make(const Position& position) const {
    return source_->Make(position.epoch, position.step);
  }

  void Start() {
    if (prefetch_ == 0) return;
    stop_ = false;
    worker_ = std::thread([this, position = position_] { Prefetch(position); });
  }

  void Stop() {
    if (!worker_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    worker_.join();
    ready_.clear();
    failure_ = nullptr;
  }

  void Prefetch(Position position) {
    try {
      for (;; position = After(position)) {
        TokenBatch batch = Make(position);
        std::unique_lock lock(mutex_);
        changed_.wait(lock,
                      [this] { return stop_ || ready_.size() < static_cast<size_t>(prefetch_); });
        if (stop_) return;
        ready_.push_back(std::move(batch));
        changed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  TokenBatch Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty() || failure_ != nullptr; });
    if (ready_.empty()) std::rethrow_exception(failure_);
    TokenBatch batch = std::move(ready_.front());
    ready_.pop_front();
    changed_.notify_all();
    return batch;
  }

  const std::shared_ptr<const BatchSource> source_;
  const int prefetch_;
  Position position_;  // of the batch that Next() returns next

  std::thread worker_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<TokenBatch> ready_;
  std::exception_ptr failure_;
  bool stop_ = false;
};

DataLoader::DataLoader(std::shared_ptr<const BatchSource> source, int prefetch)
    : impl_(std::make_unique<Impl>(std::move(source), prefetch)) {}

DataLoader::~DataLoader() = default;

int64_t DataLoader::steps_per_epoch() const {
  return impl_->steps_per_epoch();
}
TokenBatch DataLoader::Next() {
  return impl_->Next();
}
std::string DataLoader::State() const {
  return impl_->State();
}
void DataLoader::LoadState(const std::string& state) {
  impl_->LoadState(state);
}

}  // namespace infini_train
