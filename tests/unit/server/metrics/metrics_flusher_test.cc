#include "server/metrics/metrics_flusher.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "tests/support/failing_store.h"
#include "tests/support/new_job.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;
using Clock = MetricsLog::Clock;

constexpr Clock::duration kNever = std::chrono::hours(1);
constexpr Clock::duration kSoon = milliseconds(5);

class CountingStore : public FailingStore {
 public:
  std::atomic<int> appends{0};
  std::function<void()> during_append;

  absl::StatusOr<uint64_t> AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) override {
    ++appends;
    if (during_append) during_append();
    return FailingStore::AppendRecords(id, records);
  }
};

class MetricsFlusherTest : public ::testing::Test {
 protected:
  std::shared_ptr<MetricsLog> NewLog(const std::string& id, MetricsFlusher* flusher, Clock::duration patience,
                                     Clock::duration reader_patience) {
    EXPECT_TRUE(store_.CreateJob(NewJob(id), {}).ok());
    auto log =
        std::make_shared<MetricsLog>(&store_, id, 0, MetricsLog::Hooks{.wake = [flusher] { flusher->Wake(); }},
                                     MetricsLog::Options{.patience = patience, .reader_patience = reader_patience});
    flusher->Add(log);
    return log;
  }

  static void AddLoss(MetricsLog* log, int64_t step) { log->AddLosses(0, step, std::vector<float>{1}); }

  // Whether the log gets that record; waits a minute at most.
  static bool Gets(const MetricsLog& log, uint64_t sequence) {
    const auto deadline = Clock::now() + std::chrono::minutes(1);
    while (log.last_sequence() < sequence) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  CountingStore store_;
};

TEST_F(MetricsFlusherTest, WritesWhatHasWaitedLongEnough) {
  MetricsFlusher flusher;
  const std::shared_ptr<MetricsLog> a = NewLog("a", &flusher, milliseconds(20), kNever);
  const std::shared_ptr<MetricsLog> b = NewLog("b", &flusher, milliseconds(20), kNever);
  for (int64_t step = 1; step <= 3; ++step) {
    for (MetricsLog* log : {a.get(), b.get()}) {
      AddLoss(log, step);
      EXPECT_TRUE(Gets(*log, static_cast<uint64_t>(step)));
    }
  }
}

TEST_F(MetricsFlusherTest, AReaderThatWaitsGetsTheFirstLossAtOnce) {
  MetricsFlusher flusher;
  const std::shared_ptr<MetricsLog> before = NewLog("a", &flusher, kNever, kSoon);
  before->AwaitMore();
  AddLoss(before.get(), 1);
  EXPECT_TRUE(Gets(*before, 1));
  const std::shared_ptr<MetricsLog> after = NewLog("b", &flusher, kNever, kSoon);
  AddLoss(after.get(), 1);
  after->AwaitMore();
  EXPECT_TRUE(Gets(*after, 1));
}

TEST_F(MetricsFlusherTest, AFullRecordDoesNotWait) {
  MetricsFlusher flusher;
  const std::shared_ptr<MetricsLog> log = NewLog("a", &flusher, kNever, kNever);
  log->AddLosses(0, 1, std::vector<float>(MetricsLog::kMaxLosses));
  EXPECT_TRUE(Gets(*log, 1));
}

TEST_F(MetricsFlusherTest, WithoutReadersWritesAreRare) {
  MetricsFlusher flusher;
  const std::shared_ptr<MetricsLog> log = NewLog("a", &flusher, milliseconds(100), kSoon);
  const auto begin = Clock::now();
  for (int64_t step = 1; Clock::now() < begin + milliseconds(400); ++step) {
    AddLoss(log.get(), step);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(store_.appends, 1);
  EXPECT_LE(store_.appends, (Clock::now() - begin) / milliseconds(100) + 1);
}

TEST_F(MetricsFlusherTest, WritesForAReaderAreSpaced) {
  MetricsFlusher flusher;
  const std::shared_ptr<MetricsLog> log = NewLog("a", &flusher, kNever, milliseconds(20));
  const auto begin = Clock::now();
  for (int64_t step = 1; Clock::now() < begin + milliseconds(300); ++step) {
    log->AwaitMore();
    AddLoss(log.get(), step);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(store_.appends, 2);
  EXPECT_LE(store_.appends, (Clock::now() - begin) / milliseconds(20) + 2);
}

TEST_F(MetricsFlusherTest, WhatAReaderWaitsForDuringAWriteIsSpacedFromIt) {
  ASSERT_TRUE(store_.CreateJob(NewJob("a"), {}).ok());
  MetricsLog log(&store_, "a", 0, {}, {.patience = kNever, .reader_patience = std::chrono::minutes(1)});
  store_.during_append = [&log] {
    log.AwaitMore();
    AddLoss(&log, 2);
  };
  AddLoss(&log, 1);
  const Clock::time_point begin = Clock::now();
  ASSERT_TRUE(log.Flush().ok());
  EXPECT_GE(log.due(), begin + std::chrono::minutes(1));
  EXPECT_LE(log.due(), Clock::now() + std::chrono::minutes(1));
}

TEST_F(MetricsFlusherTest, ALogWithAReaderDoesNotKeepAnotherWaiting) {
  MetricsFlusher flusher;
  const std::shared_ptr<MetricsLog> busy = NewLog("a", &flusher, kNever, milliseconds(1));
  const std::shared_ptr<MetricsLog> quiet = NewLog("b", &flusher, milliseconds(50), kNever);
  std::atomic<bool> done{false};
  std::thread rank([&] {
    for (int64_t step = 1; !done; ++step) {
      busy->AwaitMore();
      AddLoss(busy.get(), step);
    }
  });
  AddLoss(quiet.get(), 1);
  EXPECT_TRUE(Gets(*quiet, 1));
  done = true;
  rank.join();
}

TEST_F(MetricsFlusherTest, LeavesARemovedLogAlone) {
  MetricsFlusher flusher;
  const std::shared_ptr<MetricsLog> log = NewLog("a", &flusher, kSoon, kSoon);
  flusher.Remove(log.get());
  std::this_thread::sleep_for(milliseconds(20));  // a flush under way may end
  AddLoss(log.get(), 1);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(log->last_sequence(), 0u);
  // One that is added with something to write.
  flusher.Add(log);
  EXPECT_TRUE(Gets(*log, 1));
}

TEST_F(MetricsFlusherTest, TriesAgainWhatTheStoreRefused) {
  MetricsFlusher flusher;
  const std::shared_ptr<MetricsLog> log = NewLog("a", &flusher, kSoon, kSoon);
  store_.full = true;
  AddLoss(log.get(), 1);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(log->last_sequence(), 0u);
  EXPECT_GE(store_.appends, 2);
  store_.full = false;
  EXPECT_TRUE(Gets(*log, 1));
}

class SlowStore : public FailingStore {
 public:
  absl::StatusOr<uint64_t> AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) override {
    begun = true;
    while (slow) std::this_thread::sleep_for(milliseconds(1));
    return FailingStore::AppendRecords(id, records);
  }
  std::atomic<bool> slow{true};
  std::atomic<bool> begun{false};
};

TEST_F(MetricsFlusherTest, RespondsUnlessTheStoreHoldsItUp) {
  SlowStore store;
  MetricsFlusher flusher;
  EXPECT_TRUE(flusher.Responds(Clock::now() + std::chrono::minutes(1)));
  EXPECT_TRUE(store.CreateJob(NewJob("a"), {}).ok());
  const auto log =
      std::make_shared<MetricsLog>(&store, "a", 0, MetricsLog::Hooks{.wake = [&flusher] { flusher.Wake(); }},
                                   MetricsLog::Options{.patience = kSoon, .reader_patience = kSoon});
  flusher.Add(log);
  AddLoss(log.get(), 1);
  while (!store.begun) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(flusher.Responds(Clock::now() + milliseconds(20)));
  store.slow = false;
  EXPECT_TRUE(flusher.Responds(Clock::now() + std::chrono::minutes(1)));
}

}  // namespace
}  // namespace lenet
