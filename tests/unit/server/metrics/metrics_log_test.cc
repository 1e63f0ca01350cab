#include "server/metrics/metrics_log.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/timestamp.h"
#include "tests/support/failing_store.h"

namespace lenet {
namespace {

using Clock = MetricsLog::Clock;

class MetricsLogTest : public ::testing::Test {
 protected:
  MetricsLogTest() {
    v1::Job job;
    job.set_id("a");
    job.set_state(v1::QUEUED);
    EXPECT_TRUE(store_.CreateJob(job, {}).ok());
  }

  std::vector<RecordPtr> Records() { return store_.ReadRecords("a", 1, 1 << 30)->records; }

  static v1::MetricRecord Epoch(int64_t epoch) {
    v1::MetricRecord record;
    record.mutable_epoch_summary()->set_epoch(epoch);
    return record;
  }

  static std::vector<float> Losses(int64_t first_step, size_t count) {
    std::vector<float> losses(count);
    std::iota(losses.begin(), losses.end(), static_cast<float>(first_step));
    return losses;
  }

  FailingStore store_;
  int wakes_ = 0;
  std::vector<absl::Status> stuck_;
  MetricsLog log_{&store_,
                  "a",
                  0,
                  {.wake = [this] { ++wakes_; }, .stuck = [this](const absl::Status& why) { stuck_.push_back(why); }}};
};

TEST_F(MetricsLogTest, GathersLossesInTheirOrderUntilAFlush) {
  log_.AddLosses(1, 1, std::vector<float>{1.5f, 1.25f});
  log_.AddLosses(0, 1, std::vector<float>{2.5f});
  log_.AddLosses(1, 3, std::vector<float>{1});
  EXPECT_TRUE(Records().empty());
  EXPECT_EQ(log_.last_sequence(), 0u);
  ASSERT_TRUE(log_.Flush().ok());
  const std::vector<RecordPtr> records = Records();
  ASSERT_EQ(records.size(), 1u);
  const v1::StepLosses& batch = records[0]->step_losses();
  EXPECT_THAT(batch.steps(), ::testing::ElementsAre(1, 2, 1, 3));
  EXPECT_THAT(batch.ranks(), ::testing::ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(batch.losses(), ::testing::ElementsAre(1.5f, 1.25f, 2.5f, 1.0f));
  EXPECT_LT(absl::Now() - FromTimestamp(records[0]->time()), absl::Seconds(10));
  EXPECT_EQ(log_.last_sequence(), 1u);
  ASSERT_TRUE(log_.Flush().ok());
  EXPECT_EQ(Records().size(), 1u);  // nothing new
}

TEST_F(MetricsLogTest, SplitsAtTheMostLossesOfARecord) {
  const size_t count = 2 * MetricsLog::kMaxLosses + 10;
  log_.AddLosses(0, 1, Losses(1, count));
  ASSERT_TRUE(log_.Flush().ok());
  const std::vector<RecordPtr> records = Records();
  ASSERT_EQ(records.size(), 3u);
  int64_t step = 1;
  for (const RecordPtr& record : records) {
    EXPECT_LE(record->step_losses().losses_size(), static_cast<int>(MetricsLog::kMaxLosses));
    for (int i = 0; i < record->step_losses().losses_size(); ++i, ++step) {
      EXPECT_EQ(record->step_losses().steps(i), step);
      EXPECT_EQ(record->step_losses().losses(i), static_cast<float>(step));
    }
  }
  EXPECT_EQ(step, static_cast<int64_t>(count) + 1);
}

TEST_F(MetricsLogTest, IsDueAWhileAfterTheFirstLossesAndAtOnceWithAFullRecord) {
  log_.AddLosses(0, 1, {});
  EXPECT_EQ(wakes_, 0);
  EXPECT_EQ(log_.due(), Clock::time_point::max());
  const Clock::time_point before = Clock::now();
  log_.AddLosses(0, 1, Losses(1, 1));
  EXPECT_EQ(wakes_, 1);
  EXPECT_GE(log_.due(), before + std::chrono::milliseconds(100));
  EXPECT_LE(log_.due(), Clock::now() + std::chrono::milliseconds(100));
  const Clock::time_point due = log_.due();
  log_.AddLosses(1, 1, Losses(1, 100));
  log_.Add(Epoch(1));
  EXPECT_EQ(log_.due(), due);
  EXPECT_EQ(wakes_, 1);
  ASSERT_TRUE(log_.Flush().ok());
  EXPECT_EQ(log_.due(), Clock::time_point::max());
  log_.Add(Epoch(2));
  EXPECT_EQ(wakes_, 2);
  log_.AddLosses(0, 102, Losses(102, MetricsLog::kMaxLosses));
  EXPECT_EQ(wakes_, 3);
  EXPECT_LE(log_.due(), Clock::now());
}

TEST_F(MetricsLogTest, AReaderThatWaitsMakesItDueSoonAfterTheLastWrite) {
  log_.AwaitMore();
  EXPECT_EQ(wakes_, 0);
  log_.AddLosses(0, 1, Losses(1, 1));  // the first: at once
  EXPECT_EQ(wakes_, 1);
  EXPECT_LE(log_.due(), Clock::now());
  const Clock::time_point before = Clock::now();
  ASSERT_TRUE(log_.Flush().ok());
  const Clock::time_point after = Clock::now();

  log_.AddLosses(0, 2, Losses(2, 1));
  EXPECT_GE(log_.due(), after + std::chrono::milliseconds(50));  // nobody waits any more
  EXPECT_EQ(wakes_, 2);
  log_.AwaitMore();
  EXPECT_EQ(wakes_, 3);
  EXPECT_GE(log_.due(), before + std::chrono::milliseconds(5));
  EXPECT_LE(log_.due(), after + std::chrono::milliseconds(5));
  log_.AwaitMore();
  log_.AddLosses(0, 3, Losses(3, 1));
  EXPECT_EQ(wakes_, 3);
}

TEST_F(MetricsLogTest, WhatIsRefusedIsDueAgain) {
  store_.full = true;
  log_.Add(Epoch(1));
  const Clock::time_point before = Clock::now();
  EXPECT_FALSE(log_.Flush().ok());
  EXPECT_GE(log_.due(), before + std::chrono::milliseconds(100));
  EXPECT_LE(log_.due(), Clock::now() + std::chrono::milliseconds(100));
}

TEST_F(MetricsLogTest, TheNewestRecordsAreInMemoryOnceTheyAreWritten) {
  log_.Add(Epoch(1));
  EXPECT_TRUE(log_.Recent(1, 1000).empty());
  store_.full = true;
  EXPECT_FALSE(log_.Flush().ok());
  EXPECT_TRUE(log_.Recent(1, 1000).empty());
  store_.full = false;
  ASSERT_TRUE(log_.Flush().ok());
  ASSERT_TRUE(log_.ChangeState({.from = v1::QUEUED, .to = v1::STARTING, .time = absl::Now(), .reason = "go"}).ok());
  log_.AddLosses(0, 1, Losses(1, MetricsLog::kMaxLosses + 1));
  ASSERT_TRUE(log_.Flush().ok());
  const std::vector<RecordPtr> stored = Records();
  const std::vector<RecordPtr> recent = log_.Recent(1, 1 << 20);
  ASSERT_EQ(stored.size(), 4u);
  ASSERT_EQ(recent.size(), 4u);
  for (size_t i = 0; i < recent.size(); ++i) {
    EXPECT_EQ(recent[i]->SerializeAsString(), stored[i]->SerializeAsString()) << i;
  }
  EXPECT_EQ(recent[1]->attempt(), 1u);

  // Of a job that does not run nothing is kept.
  ASSERT_TRUE(log_.ChangeState({.from = v1::STARTING, .to = v1::PAUSED, .time = absl::Now()}).ok());
  EXPECT_TRUE(log_.Recent(1, 1000).empty());
  EXPECT_TRUE(log_.Recent(5, 1000).empty());
}

TEST_F(MetricsLogTest, OtherRecordsStandAfterTheLossesAddedBefore) {
  log_.AddLosses(0, 1, Losses(1, 3));
  log_.Add(Epoch(1));
  log_.AddLosses(0, 4, Losses(4, 3));
  log_.Add(Epoch(2));
  log_.Add(Epoch(3));
  ASSERT_TRUE(log_.Flush().ok());
  const std::vector<RecordPtr> records = Records();
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0]->step_losses().steps(2), 3);
  EXPECT_EQ(records[1]->epoch_summary().epoch(), 1);
  EXPECT_EQ(records[2]->step_losses().steps(0), 4);
  EXPECT_EQ(records[3]->epoch_summary().epoch(), 2);
  EXPECT_EQ(records[4]->epoch_summary().epoch(), 3);
  for (const RecordPtr& record : records) EXPECT_TRUE(record->has_time());
}

TEST_F(MetricsLogTest, AChangeOfStateStandsAfterAllAddedBefore) {
  ASSERT_TRUE(log_.ChangeState({.from = v1::QUEUED, .to = v1::STARTING, .time = absl::Now(), .reason = "go"}).ok());
  log_.AddLosses(0, 1, Losses(1, 3));
  ASSERT_TRUE(log_.ChangeState({.from = v1::STARTING, .to = v1::FAILED, .time = absl::Now(), .reason = "bad"},
                               [] {
                                 v1::Terminal terminal;
                                 terminal.set_state(v1::FAILED);
                                 terminal.set_last_step(3);
                                 return terminal;
                               }())
                  .ok());
  const std::vector<RecordPtr> records = Records();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0]->state_change().from(), v1::QUEUED);
  EXPECT_EQ(records[0]->state_change().to(), v1::STARTING);
  EXPECT_EQ(records[0]->state_change().reason(), "go");
  EXPECT_TRUE(records[1]->has_step_losses());
  EXPECT_EQ(records[2]->state_change().to(), v1::FAILED);
  EXPECT_EQ(records[3]->terminal().last_step(), 3);
  EXPECT_EQ(records[3]->attempt(), 1u);
  EXPECT_TRUE(log_.ended());
  EXPECT_EQ(log_.last_sequence(), 4u);
}

TEST_F(MetricsLogTest, AnAbortedChangeLeavesTheLossesInTheLog) {
  log_.AddLosses(0, 1, Losses(1, 3));
  EXPECT_TRUE(
      absl::IsAborted(log_.ChangeState({.from = v1::RUNNING, .to = v1::SUCCEEDED, .time = absl::Now()}).status()));
  EXPECT_FALSE(log_.ended());
  ASSERT_EQ(Records().size(), 1u);
  EXPECT_EQ(Records()[0]->step_losses().losses_size(), 3);
}

TEST_F(MetricsLogTest, NanAndInfinityTravelAsTheyAre) {
  const float inf = std::numeric_limits<float>::infinity();
  log_.AddLosses(0, 1, std::vector<float>{std::nanf(""), inf, -inf});
  ASSERT_TRUE(log_.Flush().ok());
  const v1::StepLosses& batch = Records()[0]->step_losses();
  EXPECT_TRUE(std::isnan(batch.losses(0)));
  EXPECT_EQ(batch.losses(1), inf);
  EXPECT_EQ(batch.losses(2), -inf);
}

TEST_F(MetricsLogTest, WhatTheStoreRefusesIsKeptInOrder) {
  store_.full = true;
  log_.AddLosses(0, 1, Losses(1, 2));
  EXPECT_TRUE(absl::IsResourceExhausted(log_.Flush()));
  log_.Add(Epoch(1));
  log_.AddLosses(0, 3, Losses(3, 2));
  EXPECT_TRUE(absl::IsResourceExhausted(log_.Flush()));
  EXPECT_TRUE(absl::IsResourceExhausted(
      log_.ChangeState({.from = v1::QUEUED, .to = v1::STARTING, .time = absl::Now()}).status()));
  EXPECT_EQ(store_.GetJob("a")->state(), v1::QUEUED);
  store_.full = false;
  ASSERT_TRUE(log_.Flush().ok());
  const std::vector<RecordPtr> records = Records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0]->step_losses().steps(0), 1);
  EXPECT_TRUE(records[1]->has_epoch_summary());
  EXPECT_EQ(records[2]->step_losses().steps(0), 3);
  EXPECT_TRUE(stuck_.empty());
}

TEST_F(MetricsLogTest, TellsOnceThatItIsStuck) {
  store_.full = true;
  for (size_t i = 0; i <= MetricsLog::kMaxUnsaved + 10; ++i) {
    log_.Add(Epoch(static_cast<int64_t>(i)));
    EXPECT_FALSE(log_.Flush().ok());
  }
  ASSERT_EQ(stuck_.size(), 1u);
  EXPECT_EQ(stuck_[0].message(), "disk full");
}

// What may follow from being stuck must not wait for the log's own lock.
TEST_F(MetricsLogTest, TheHookMayUseTheLog) {
  std::vector<absl::Status> flushed;
  MetricsLog* self = nullptr;
  MetricsLog log(&store_, "a", 0, {.stuck = [&](const absl::Status&) { flushed.push_back(self->Flush()); }});
  self = &log;
  store_.full = true;
  for (size_t i = 0; i <= MetricsLog::kMaxUnsaved; ++i) log.Add(Epoch(static_cast<int64_t>(i)));
  EXPECT_FALSE(log.Flush().ok());
  ASSERT_EQ(flushed.size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(flushed[0]));
}

TEST_F(MetricsLogTest, TheEndOfAStuckLogDropsWhatIsRefusedAndSaysSo) {
  store_.full = true;
  for (size_t i = 0; i <= MetricsLog::kMaxUnsaved; ++i) log_.Add(Epoch(static_cast<int64_t>(i)));
  const StateUpdate end = {.from = v1::QUEUED, .to = v1::STOPPED, .time = absl::Now(), .reason = "end"};
  EXPECT_TRUE(absl::IsResourceExhausted(log_.ChangeState(end).status()));  // it becomes stuck by this
  EXPECT_EQ(stuck_.size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(
      log_.ChangeState({.from = v1::QUEUED, .to = v1::STARTING, .time = absl::Now()}).status()));  // no end
  ASSERT_TRUE(log_.ChangeState(end).ok());
  EXPECT_TRUE(log_.ended());
  const std::vector<RecordPtr> records = Records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0]->warning().message(),
            "2001 records before the end could not be stored: RESOURCE_EXHAUSTED: disk full");
  EXPECT_EQ(records[1]->state_change().to(), v1::STOPPED);
  EXPECT_TRUE(records[2]->has_terminal());
  EXPECT_EQ(log_.last_sequence(), 3u);
  EXPECT_TRUE(log_.Flush().ok());  // nothing is left
}

TEST_F(MetricsLogTest, TheEndOfAStuckLogKeepsWhatIsTaken) {
  log_.GiveUpUnsaved();
  log_.Add(Epoch(1));
  ASSERT_TRUE(log_.ChangeState({.from = v1::QUEUED, .to = v1::STOPPED, .time = absl::Now()}).ok());
  ASSERT_EQ(Records().size(), 3u);
  EXPECT_EQ(Records()[0]->epoch_summary().epoch(), 1);
  EXPECT_TRUE(stuck_.empty());
}

TEST_F(MetricsLogTest, ManyRanksAddWhileAThreadFlushesAndOthersRead) {
  constexpr int kRanks = 4;
  constexpr int64_t kChunks = 200;
  constexpr int64_t kChunk = 25;
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  threads.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (int64_t c = 0; c < kChunks; ++c) log_.AddLosses(rank, c * kChunk + 1, Losses(c * kChunk + 1, kChunk));
    });
  }
  std::thread flusher([&] {
    while (!done) ASSERT_TRUE(log_.Flush().ok());
  });
  constexpr int kReaders = 4;
  std::vector<std::thread> readers;
  readers.reserve(kReaders);
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&] {
      uint64_t next = 1;
      while (!done) {
        const RecordPage page = store_.ReadRecords("a", next, 1 << 16).value();
        for (const RecordPtr& record : page.records) {
          ASSERT_EQ(record->sequence(), next++);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  flusher.join();
  for (std::thread& reader : readers) reader.join();
  ASSERT_TRUE(log_.Flush().ok());

  // Each rank's steps are complete and in order.
  std::vector<int64_t> steps(kRanks, 0);
  for (const RecordPtr& record : Records()) {
    const v1::StepLosses& batch = record->step_losses();
    ASSERT_EQ(batch.steps_size(), batch.losses_size());
    ASSERT_EQ(batch.ranks_size(), batch.losses_size());
    for (int i = 0; i < batch.losses_size(); ++i) {
      EXPECT_EQ(batch.steps(i), ++steps[static_cast<size_t>(batch.ranks(i))]);
      EXPECT_EQ(batch.losses(i), static_cast<float>(batch.steps(i)));
    }
  }
  EXPECT_THAT(steps, ::testing::Each(kChunks * kChunk));
}

}  // namespace
}  // namespace lenet
