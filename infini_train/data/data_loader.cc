#include "infini_train/data/data_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

using Json = nlohmann::json;

struct Position {
  int64_t epoch = 0;
  int64_t step = 0;
};

TokenBatch EmptyBatch(const BatchGeometry& geometry, const Position& position) {
  TokenBatch batch;
  batch.batch_size = geometry.batch_size;
  batch.sequence_length = geometry.sequence_length;
  batch.epoch = position.epoch;
  batch.step = position.step;
  const auto count = static_cast<size_t>(geometry.batch_size * geometry.sequence_length);
  batch.inputs.resize(count);
  batch.targets.resize(count);
  return batch;
}

std::span<int64_t> Row(std::vector<int64_t>& values, int64_t row, int64_t row_size, int64_t count) {
  return std::span(values).subspan(static_cast<size_t>(row * row_size), static_cast<size_t>(count));
}

}  // namespace

class DataLoader::Impl {
 public:
  Impl(std::shared_ptr<const TokenDataset> dataset, const DataLoaderOptions& options)
      : dataset_(std::move(dataset)),
        options_(options),
        order_(*dataset_, options.geometry, options.shuffle, options.seed) {
    if (options.prefetch < 0) {
      throw Error(
          fmt::format("expected 0 or more batches to prefetch, found {}", options.prefetch));
    }
    Start();
  }

  ~Impl() { Stop(); }

  const DataLoaderOptions& options() const { return options_; }
  int64_t steps_per_epoch() const { return order_.steps_per_epoch(); }

  TokenBatch Next() {
    TokenBatch batch = options_.prefetch > 0 ? Take() : Make(position_);
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
    return {{"shuffle", options_.shuffle},
            {"seed", options_.shuffle ? options_.seed : 0},
            {"sequence_length", options_.geometry.sequence_length},
            {"sequences_per_step", options_.geometry.sequences_per_step()},
            {"num_shards", dataset_->shards().size()},
            {"num_tokens", dataset_->num_tokens()}};
  }

  Position Parse(const std::string& text) const {
    Json state = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!state.is_object()) throw Error("data position: expected a JSON object");
    Regroup(state);
    std::vector<std::string> differences;
    const Json identity = Identity();
    for (const auto& [key, here] : identity.items()) {
      const auto saved = state.find(key);
      if (saved == state.end()) {
        differences.push_back(fmt::format("{} is missing, here {}", key, here.dump()));
      } else if (*saved != here) {
        differences.push_back(fmt::format("{} was {}, is {}", key, saved->dump(), here.dump()));
      }
    }
    if (!differences.empty()) {
      throw Error(fmt::format("the data position was saved under other settings: {}",
                              fmt::join(differences, "; ")));
    }
    const auto number = [&state](const char* key) {
      const auto value = state.find(key);
      if (value == state.end() || !value->is_number_integer()) {
        throw Error(fmt::format("data position: expected an integer \"{}\", found {}", key,
                                value == state.end() ? "none" : value->dump()));
      }
      return value->get<int64_t>();
    };
    const Position position{number("epoch"), number("step")};
    if (position.epoch < 0 || position.step < 0 || position.step >= steps_per_epoch()) {
      throw Error(fmt::format(
          "data position: expected an epoch of at least 0 and a step from 0 to {}, found {} and {}",
          steps_per_epoch() - 1, position.epoch, position.step));
    }
    return position;
  }

  /// A shuffled position counted in steps of another number of sequences becomes one of this
  /// loader's, where it begins one.
  void Regroup(Json& state) const {
    constexpr int64_t kMost = int64_t{1} << 31;
    const auto number = [&state](const char* key) -> int64_t {
      const auto value = state.find(key);
      if (value == state.end() || !value->is_number_integer()) return -1;
      return value->get<int64_t>();
    };
    const int64_t here = options_.geometry.sequences_per_step();
    const int64_t saved = number("sequences_per_step");
    const int64_t step = number("step");
    const int64_t epoch = number("epoch");
    const bool is_position = saved > 0 && saved < kMost && step >= 0 && step < kMost && epoch >= 0;
    if (!options_.shuffle || !is_position || saved == here || saved * step % here != 0) return;
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
    const BatchGeometry& geometry = options_.geometry;
    const int64_t length = geometry.sequence_length;
    TokenBatch batch = EmptyBatch(geometry, position);
    for (int64_t row = 0; row < geometry.batch_size; ++row) {
      const auto [shard, begin] = order_(position.epoch, position.step, row);
      dataset_->ReadWindow(shard, begin, Row(batch.inputs, row, length, length),
                           Row(batch.targets, row, length, length), options_.vocab_size);
    }
    batch.num_targets = geometry.batch_size * length;
    return batch;
  }

  void Start() {
    if (options_.prefetch == 0) return;
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
        changed_.wait(lock, [this] {
          return stop_ || ready_.size() < static_cast<size_t>(options_.prefetch);
        });
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

  const std::shared_ptr<const TokenDataset> dataset_;
  const DataLoaderOptions options_;
  const BatchOrder order_;
  Position position_;  // of the batch that Next() returns next

  std::thread worker_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<TokenBatch> ready_;
  std::exception_ptr failure_;
  bool stop_ = false;
};

DataLoader::DataLoader(std::shared_ptr<const TokenDataset> dataset,
                       const DataLoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(dataset), options)) {}

DataLoader::~DataLoader() = default;

const DataLoaderOptions& DataLoader::options() const {
  return impl_->options();
}
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

EvaluationBatches::EvaluationBatches(std::shared_ptr<const TokenDataset> dataset,
                                     const BatchGeometry& geometry, int64_t vocab_size)
    : dataset_(std::move(dataset)), geometry_(geometry), vocab_size_(vocab_size) {
  geometry_.Check();
  int64_t windows = 0;
  for (const TokenShard& shard : dataset_->shards()) {
    const int64_t targets = std::max<int64_t>(shard.size() - 1, 0);
    first_window_of_shard_.push_back(windows);
    windows += (targets + geometry_.sequence_length - 1) / geometry_.sequence_length;
    num_targets_ += targets;
  }
  first_window_of_shard_.push_back(windows);
  if (windows == 0) {
    throw Error(fmt::format("{}: expected at least 2 tokens, found {}",
                            dataset_->shards().front().path(), dataset_->shards().front().size()));
  }
  const int64_t per_step = geometry_.sequences_per_step();
  num_batches_ = (windows + per_step - 1) / per_step;
}

std::optional<TokenBatch> EvaluationBatches::Next() {
  if (next_ == num_batches_) return std::nullopt;
  const int64_t length = geometry_.sequence_length;
  TokenBatch batch = EmptyBatch(geometry_, {0, next_});
  std::fill(batch.targets.begin(), batch.targets.end(), TokenBatch::kIgnore);
  const int64_t first =
      next_ * geometry_.sequences_per_step() + geometry_.rank * geometry_.batch_size;
  for (int64_t row = 0; row < geometry_.batch_size; ++row) {
    const int64_t window = first + row;
    if (window >= first_window_of_shard_.back()) break;
    const auto next =
        std::upper_bound(first_window_of_shard_.begin(), first_window_of_shard_.end(), window);
    const auto shard = static_cast<size_t>(next - first_window_of_shard_.begin() - 1);
    const int64_t begin = (window - first_window_of_shard_[shard]) * length;
    const int64_t count = std::min(length, dataset_->shards()[shard].size() - 1 - begin);
    dataset_->ReadWindow(shard, begin, Row(batch.inputs, row, length, count),
                         Row(batch.targets, row, length, count), vocab_size_);
    batch.num_targets += count;
  }
  ++next_;
  return batch;
}

}  // namespace infini_train
