#include "server/metrics/metrics_flusher.h"

#include <chrono>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "tests/support/failing_store.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;

class MetricsFlusherTest : public ::testing::Test {
 protected:
  std::shared_ptr<MetricsLog> NewLog(const std::string& id, MetricsFlusher* flusher) {
    v1::Job job;
    job.set_id(id);
    job.set_state(v1::QUEUED);
    EXPECT_TRUE(store_.CreateJob(job, {}).ok());
    return std::make_shared<MetricsLog>(&store_, id, 0, MetricsLog::Hooks{.wake = [flusher] { flusher->Wake(); }});
  }

  static void AddLoss(MetricsLog* log, int64_t step) { log->AddLosses(0, step, std::vector<float>{1}); }

  // How long it takes until the log has that record; a minute at most.
  static milliseconds TimeUntil(const MetricsLog& log, uint64_t sequence) {
    const auto begin = std::chrono::steady_clock::now();
    while (log.last_sequence() < sequence && std::chrono::steady_clock::now() - begin < std::chrono::minutes(1)) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
  }

  FailingStore store_;
};

TEST_F(MetricsFlusherTest, WritesTheFirstLossAtOnce) {
  MetricsFlusher flusher(std::chrono::minutes(2));
  const std::shared_ptr<MetricsLog> log = NewLog("a", &flusher);
  flusher.Add(log);
  AddLoss(log.get(), 1);
  EXPECT_LT(TimeUntil(*log, 1), std::chrono::seconds(10));
}

TEST_F(MetricsFlusherTest, WritesTheRestRegularly) {
  MetricsFlusher flusher(milliseconds(20));
  const std::shared_ptr<MetricsLog> a = NewLog("a", &flusher);
  const std::shared_ptr<MetricsLog> b = NewLog("b", &flusher);
  flusher.Add(a);
  flusher.Add(b);
  for (MetricsLog* log : {a.get(), b.get()}) {
    AddLoss(log, 1);
    EXPECT_LT(TimeUntil(*log, 1), std::chrono::seconds(10));
    AddLoss(log, 2);
    EXPECT_LT(TimeUntil(*log, 2), std::chrono::seconds(10));
  }
}

TEST_F(MetricsFlusherTest, LeavesARemovedLogAlone) {
  MetricsFlusher flusher(milliseconds(5));
  const std::shared_ptr<MetricsLog> log = NewLog("a", &flusher);
  flusher.Add(log);
  flusher.Remove(log.get());
  std::this_thread::sleep_for(milliseconds(20));  // a flush under way may end
  AddLoss(log.get(), 1);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(log->last_sequence(), 0u);
}

TEST_F(MetricsFlusherTest, TriesAgainWhatTheStoreRefused) {
  MetricsFlusher flusher(milliseconds(5));
  const std::shared_ptr<MetricsLog> log = NewLog("a", &flusher);
  store_.full = true;
  flusher.Add(log);
  AddLoss(log.get(), 1);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(log->last_sequence(), 0u);
  store_.full = false;
  EXPECT_LT(TimeUntil(*log, 1), std::chrono::seconds(10));
}

}  // namespace
}  // namespace lenet
