/// Enqueues many operations on many streams with random dependencies and checks each, as it runs,
/// against a model of what must have happened before it.
///
///     stress [--operations N] [--streams N] [--seed N] [--hold]
///
/// The model keeps, per operation, those that must precede it directly: its predecessor in the
/// stream, the records its stream waited for, and what the legacy default stream's rules add. The
/// marks that operations leave are plain memory, so that a thread sanitizer sees a missing edge
/// even where the timing hides it. With --hold every stream is blocked until all is queued;
/// otherwise the host also synchronises at random and checks what that promises.

#include <infini/rt/cpu/runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace infini::rt;
using namespace infini::rt::runtime;
using Cpu = Runtime<Device::Type::kCpu>;

constexpr std::uint32_t kNone = UINT32_MAX;

struct Options {
  std::uint32_t operations = 1'000'000;
  std::uint32_t streams = 32;
  std::uint32_t seed = 1;
  bool hold = false;
};

struct Operation {
  std::uint32_t first_predecessor;
  std::uint32_t predecessor_count;
  std::uint32_t runs;
};

std::vector<Operation> operations;
std::vector<std::uint32_t> predecessors;
std::atomic<std::uint64_t> violations{0};

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "stress: %s\n", message.c_str());
  std::_Exit(1);
}

void Check(Error error) {
  if (error != kSuccess) Fail("error " + std::to_string(error));
}

void Run(std::uint32_t index) {
  Operation& operation = operations[index];
  for (std::uint32_t i = 0; i < operation.predecessor_count; ++i) {
    if (operations[predecessors[operation.first_predecessor + i]].runs == 0) {
      violations.fetch_add(1, std::memory_order_relaxed);
    }
  }
  ++operation.runs;
}

void HostFunction(void* data) {
  Run(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(data)));
}

Error Kernel(const void* args) {
  Run(*static_cast<const std::uint32_t*>(args));
  return kSuccess;
}

struct ModelStream {
  Stream handle = nullptr;
  bool blocking = true;
  std::uint32_t last = kNone;
  std::vector<std::uint32_t> awaited;  // since the last operation
};

struct ModelEvent {
  Event handle = nullptr;
  std::vector<std::uint32_t> covers;
};

class Stress {
 public:
  explicit Stress(const Options& options) : options_(options), random_(options.seed) {
    operations.resize(options.operations);
    predecessors.reserve(std::size_t{4} * options.operations);
    streams_.resize(options.streams);
    for (std::size_t i = 1; i < streams_.size(); ++i) {
      streams_[i].blocking = i % 3 != 0;
      Check(Cpu::StreamCreateWithFlags(&streams_[i].handle,
                                       streams_[i].blocking ? kStreamDefault : kStreamNonBlocking));
    }
    events_.resize(std::size_t{2} * options.streams);
    for (ModelEvent& event : events_) {
      Check(
          Cpu::EventCreateWithFlags(&event.handle, Pick(2) ? kEventDisableTiming : kEventDefault));
    }
  }

  void Go() {
    if (options_.hold) {
      for (ModelStream& stream : streams_) {
        if (&stream != &Legacy()) Check(Cpu::LaunchHostFunc(stream.handle, &Hold, &open_));
      }
    }
    auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t index = 0; index < options_.operations; ++index)
      Step(index);
    auto queued = std::chrono::steady_clock::now();
    open_ = true;
    Check(Cpu::DeviceSynchronize());
    auto end = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < options_.operations; ++i) {
      if (operations[i].runs != 1) {
        Fail("operation " + std::to_string(i) + " ran " + std::to_string(operations[i].runs) +
             " times");
      }
    }
    if (violations != 0) Fail(std::to_string(violations.load()) + " violations of the order");
    std::printf(
        "%u operations on %u streams, %zu dependencies, all in order; queued in %.2f s, "
        "finished in %.2f s\n",
        options_.operations, options_.streams, predecessors.size(),
        std::chrono::duration<double>(queued - begin).count(),
        std::chrono::duration<double>(end - begin).count());
    for (ModelEvent& event : events_)
      Check(Cpu::EventDestroy(event.handle));
    for (ModelStream& stream : streams_) {
      if (&stream != &Legacy()) Check(Cpu::StreamDestroy(stream.handle));
    }
  }

 private:
  static void Hold(void* open) {
    while (!static_cast<std::atomic<bool>*>(open)->load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::uint32_t Pick(std::size_t count) {
    return std::uniform_int_distribution<std::uint32_t>(
        0, static_cast<std::uint32_t>(count) - 1)(random_);
  }
  ModelStream& Legacy() { return streams_[0]; }

  // What all later operations of the stream must follow.
  std::vector<std::uint32_t> Frontier(ModelStream& stream) {
    std::vector<std::uint32_t> frontier = stream.awaited;
    auto add = [&](const ModelStream& other) {
      if (other.last != kNone) frontier.push_back(other.last);
      frontier.insert(frontier.end(), other.awaited.begin(), other.awaited.end());
    };
    if (stream.last != kNone) frontier.push_back(stream.last);
    if (&stream == &Legacy()) {
      for (ModelStream& other : streams_) {
        if (&other != &Legacy() && other.blocking) add(other);
      }
    } else if (stream.blocking && Legacy().last != kNone) {
      frontier.push_back(Legacy().last);
    }
    return frontier;
  }

  void Step(std::uint32_t index) {
    // The default stream joins everything, so it is used rarely.
    ModelStream& stream = Pick(200) == 0 ? Legacy() : streams_[1 + Pick(streams_.size() - 1)];
    for (std::uint32_t waits = Pick(8) == 0 ? 1 + Pick(3) : 0; waits > 0; --waits) {
      ModelEvent& event = events_[Pick(events_.size())];
      Check(Cpu::StreamWaitEvent(stream.handle, event.handle, 0));
      stream.awaited.insert(stream.awaited.end(), event.covers.begin(), event.covers.end());
    }
    std::vector<std::uint32_t> frontier = Frontier(stream);
    operations[index] = {static_cast<std::uint32_t>(predecessors.size()),
                         static_cast<std::uint32_t>(frontier.size()), 0};
    if (predecessors.size() + frontier.size() > predecessors.capacity()) {
      Fail("the model is out of room");
    }
    predecessors.insert(predecessors.end(), frontier.begin(), frontier.end());
    if (Pick(2) == 0) {
      Check(Cpu::LaunchHostFunc(stream.handle, HostFunction,
                                reinterpret_cast<void*>(std::uintptr_t{index})));
    } else {
      Check(Cpu::LaunchKernel(Kernel, &index, sizeof(index), stream.handle));
    }
    stream.last = index;
    stream.awaited.clear();
    if (Pick(8) == 0) {
      ModelEvent& event = events_[Pick(events_.size())];
      Check(Cpu::EventRecord(event.handle, stream.handle));
      event.covers = Frontier(stream);
    }
    if (!options_.hold && Pick(2000) == 0) Synchronise();
  }

  void Synchronise() {
    std::vector<std::uint32_t> done;
    if (Pick(2) == 0) {
      ModelEvent& event = events_[Pick(events_.size())];
      Check(Cpu::EventSynchronize(event.handle));
      done = event.covers;
    } else {
      ModelStream& stream = streams_[Pick(streams_.size())];
      Check(Cpu::StreamSynchronize(stream.handle));
      if (stream.last != kNone) done.push_back(stream.last);
    }
    for (std::uint32_t index : done) {
      if (operations[index].runs != 1) Fail("synchronised before the work was done");
    }
  }

  const Options options_;
  std::mt19937 random_;
  std::vector<ModelStream> streams_;
  std::vector<ModelEvent> events_;
  std::atomic<bool> open_{false};
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    if (flag == "--hold") {
      options.hold = true;
      continue;
    }
    std::uint32_t* target = flag == "--operations" ? &options.operations
                            : flag == "--streams"  ? &options.streams
                            : flag == "--seed"     ? &options.seed
                                                   : nullptr;
    if (target == nullptr || i + 1 == argc) Fail("unknown or incomplete option " + flag);
    *target = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
  }
  if (options.streams < 2 || options.operations == 0) Fail("needs operations and two streams");
  Stress(options).Go();
  return 0;
}
