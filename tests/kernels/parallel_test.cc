#include "infini_train/kernels/cpu/parallel.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace infini_train::cpu {
namespace {

/// Runs a scope with a number of OpenMP threads.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : previous_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~ThreadCount() { omp_set_num_threads(previous_); }

 private:
  int previous_;
};

TEST(ParallelForTest, CoversTheRangeOnce) {
  for (int threads : {1, 2, 3, 7}) {
    const ThreadCount guard(threads);
    for (std::int64_t count : {0, 1, 5, 100, 101}) {
      std::vector<int> visits(200, 0);
      ParallelFor(17, 17 + count, 3, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          ++visits[static_cast<std::size_t>(i)];
      });
      for (std::int64_t i = 0; i < 200; ++i)
        EXPECT_EQ(visits[static_cast<std::size_t>(i)], i >= 17 && i < 17 + count) << i;
    }
  }
}

TEST(ParallelForTest, RunsInlineUpToTheGrain) {
  const ThreadCount guard(4);
  int calls = 0;
  ParallelFor(0, 64, 64, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 64);
    EXPECT_FALSE(omp_in_parallel());
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST(ParallelForTest, NestedLoopsRunInline) {
  const ThreadCount guard(2);
  std::atomic<int> calls = 0;
  ParallelFor(0, 2, 1, [&](std::int64_t, std::int64_t) {
    ParallelFor(0, 100, 1, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(end - begin, 100);
      ++calls;
    });
  });
  EXPECT_EQ(calls, 2);
}

TEST(ParallelForTest, RethrowsTheFirstChunksException) {
  const ThreadCount guard(4);
  for (int repeat = 0; repeat < 20; ++repeat) {
    try {
      ParallelFor(0, 4, 1, [](std::int64_t begin, std::int64_t) {
        throw std::runtime_error(std::to_string(begin));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "0");
    }
  }
}

TEST(ParallelTasksTest, RunsEachTaskOnce) {
  for (int threads : {1, 3}) {
    const ThreadCount guard(threads);
    for (std::int64_t count : {0, 1, 2, 50}) {
      std::vector<std::atomic<int>> visits(50);
      ParallelTasks(count, [&](std::int64_t task) { ++visits[static_cast<std::size_t>(task)]; });
      for (std::int64_t i = 0; i < 50; ++i)
        EXPECT_EQ(visits[static_cast<std::size_t>(i)], i < count) << i;
    }
  }
}

TEST(ParallelTasksTest, Rethrows) {
  const ThreadCount guard(2);
  EXPECT_THROW(ParallelTasks(9,
                             [](std::int64_t task) {
                               if (task == 7) throw std::out_of_range("7");
                             }),
               std::out_of_range);
}

TEST(RowGrainTest, IsAtLeastOneRow) {
  EXPECT_EQ(RowGrain(1), kElementGrain);
  EXPECT_EQ(RowGrain(kElementGrain * 2), 1);
  EXPECT_EQ(RowGrain(0), 1);
}

}  // namespace
}  // namespace infini_train::cpu
