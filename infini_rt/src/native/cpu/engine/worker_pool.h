#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

namespace infini::rt::cpu {

class Stream;

/// The threads that run streams, one per stream with work; a thread whose stream was destroyed
/// serves the next one. A thread of its own per stream is what lets a function in one stream wait
/// for a function in another.
class WorkerPool {
 public:
  /// Gives the stream a thread and takes a reference to it for that thread; false if the system has
  /// no more threads.
  bool Serve(Stream* stream);

  /// Waits until all threads have ended, at most for a while: a function that never returns must
  /// not keep the process from exiting.
  void Stop();

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable assigned_;
  std::condition_variable ended_;
  std::vector<std::thread> threads_;
  std::vector<Stream*> unserved_;
  std::size_t idle_ = 0;
  std::size_t alive_ = 0;
  bool stopping_ = false;
};

}  // namespace infini::rt::cpu
