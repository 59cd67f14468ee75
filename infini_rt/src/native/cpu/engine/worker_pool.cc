#include "native/cpu/engine/worker_pool.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <system_error>

#include "native/cpu/engine/stream.h"

namespace infini::rt::cpu {
namespace {

constexpr std::chrono::seconds kStopTimeout{2};

// Signals belong to the application's own threads.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

 private:
  sigset_t previous_;
};

// A stream priority is added to the nice value that the thread began with. Raising needs a
// privilege, and is only a wish without it.
int NiceValue() {
  return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
}
void SetNiceValue(int value) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), value);
}

}  // namespace

bool WorkerPool::Serve(Stream* stream) {
  std::lock_guard lock(mutex_);
  if (stopping_) return false;
  unserved_.reserve(unserved_.size() + 1);
  if (idle_ <= unserved_.size()) {
    BlockSignals block;
    try {
      threads_.emplace_back([this] { Loop(); });
    } catch (const std::system_error&) {
      return false;
    }
    ++alive_;
    ++idle_;
  }
  stream->Ref();
  unserved_.push_back(stream);
  assigned_.notify_one();
  return true;
}

void WorkerPool::Loop() {
  pthread_setname_np(pthread_self(), "infinirt-stream");
  const int nice_value = NiceValue();
  int priority = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    while (unserved_.empty() && !stopping_)
      assigned_.wait(lock);
    if (unserved_.empty()) break;
    Stream* stream = unserved_.back();
    unserved_.pop_back();
    --idle_;
    lock.unlock();
    if (stream->priority() != priority) {
      priority = stream->priority();
      SetNiceValue(nice_value + priority);
    }
    stream->Run();
    lock.lock();
    ++idle_;
  }
  --alive_;
  ended_.notify_all();
}

void WorkerPool::Stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  assigned_.notify_all();
  bool all = ended_.wait_for(lock, kStopTimeout, [&] { return alive_ == 0; });
  std::vector<std::thread> threads = std::move(threads_);
  lock.unlock();
  for (std::thread& thread : threads) {
    if (all) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

}  // namespace infini::rt::cpu
