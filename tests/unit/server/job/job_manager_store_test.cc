// What becomes of jobs when the store refuses their changes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/job_manager.h"
#include "server/store/job_state.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RefusingStoreTest : public ::testing::Test {
 protected:
  static ServerUnderTestOptions Options() {
    ServerUnderTestOptions options = Paced();
    options.manager.abort_patience = std::chrono::milliseconds(300);
    return options;
  }

  std::string Start(int64_t max_steps = 0, int ranks = 2) {
    const absl::StatusOr<v1::Job> job = server_.manager().Start(ServerUnderTest::Request(max_steps, ranks));
    EXPECT_TRUE(job.ok()) << job.status();
    return job->id();
  }

  // The next `times` changes to one of these states are refused.
  void Refuse(std::vector<v1::JobState> states, int times, const absl::Status& status) {
    refusals_ = times;
    server_.store().JudgeChanges([this, states = std::move(states), status](const StateUpdate& update) {
      const bool meant = std::find(states.begin(), states.end(), update.to) != states.end();
      return meant && refusals_-- > 0 ? status : absl::OkStatus();
    });
  }

  std::vector<v1::JobState> Changes(const std::string& id) {
    std::vector<v1::JobState> states;
    for (const v1::MetricRecord& record : server_.ReadLog(id)) {
      if (record.has_state_change()) states.push_back(record.state_change().to());
    }
    return states;
  }

  // Reads until the log gives an error.
  absl::Status ReadToError(MetricsReader reader, google::protobuf::RepeatedPtrField<v1::MetricRecord>* records) {
    absl::Status status;
    EXPECT_TRUE(Eventually([&] {
      const absl::StatusOr<MetricsReader::Place> place = reader.Read(1 << 16, records);
      status = place.status();
      return !place.ok() || *place == MetricsReader::Place::kEnd;
    }));
    return status;
  }

  std::atomic<int> refusals_{0};
  ServerUnderTest server_{Options()};
};

TEST_F(RefusingStoreTest, AnEndIsTriedAgainUntilItIsRecorded) {
  Refuse({v1::SUCCEEDED}, 2, absl::ResourceExhaustedError("disk full"));
  const std::string id = Start(20);
  std::atomic<int> succeeded{0};
  server_.manager().WaitForEnd(
      id, [&](const absl::StatusOr<v1::Job>& job) { succeeded += job.ok() && job->state() == v1::SUCCEEDED; });
  EXPECT_EQ(server_.AwaitState(id, v1::SUCCEEDED).reason(), "completed 20 steps");
  EXPECT_TRUE(Eventually([&] { return succeeded == 1; }));
  EXPECT_EQ(server_.ReadLog(id).back().terminal().last_step(), 20);
  EXPECT_LT(refusals_, 0);
}

TEST_F(RefusingStoreTest, AStoreThatIsAwayForAWhileCostsNothing) {
  const std::string id = Start(200);
  server_.AwaitStep(id, 1);
  server_.store().down = true;
  // The end of the training is refused twice.
  EXPECT_TRUE(Eventually([this] { return server_.store().lost_reads >= 2; }));
  EXPECT_EQ(server_.manager().Load().running, 1);
  server_.store().down = false;
  EXPECT_EQ(server_.AwaitState(id, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  int64_t losses = 0;
  for (const v1::MetricRecord& record : server_.ReadLog(id)) losses += record.step_losses().losses_size();
  EXPECT_EQ(losses, 2 * 200);
}

TEST_F(RefusingStoreTest, AJobStartsWhenTheStoreTakesIt) {
  Refuse({v1::STARTING}, 2, absl::UnavailableError("store away"));
  const std::string id = Start(5);
  EXPECT_EQ(server_.AwaitState(id, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  EXPECT_EQ(server_.manager().GetJob(id)->attempt(), 1u);
}

TEST_F(RefusingStoreTest, AJobWhoseRunningWasRefusedSucceeds) {
  Refuse({v1::RUNNING}, 1, absl::UnavailableError("store away"));
  const std::string id = Start(5);
  const v1::Job job = server_.AwaitState(id, v1::SUCCEEDED);
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
  EXPECT_EQ(job.resolved().engine(), "fake");
  EXPECT_THAT(Changes(id), ElementsAre(v1::QUEUED, v1::STARTING, v1::RUNNING, v1::SUCCEEDED));
}

TEST_F(RefusingStoreTest, AJobWhoseStopWasRefusedStopsAllTheSame) {
  const std::string id = Start();
  server_.AwaitStep(id, 1);
  Refuse({v1::STOPPING}, 2, absl::UnavailableError("store away"));
  EXPECT_TRUE(absl::IsUnavailable(server_.manager().Stop(id, StopMode::kCheckpoint).status()));
  EXPECT_EQ(server_.AwaitState(id, v1::STOPPED).state(), v1::STOPPED);
  EXPECT_THAT(Changes(id), ElementsAre(v1::QUEUED, v1::STARTING, v1::RUNNING, v1::STOPPING, v1::STOPPED));
}

TEST_F(RefusingStoreTest, AQueuedJobWhoseStopWasRefusedNeverRuns) {
  const std::string running = Start();
  server_.AwaitStep(running, 1);
  const std::string queued = Start(5);
  server_.store().down = true;
  EXPECT_TRUE(absl::IsUnavailable(server_.manager().Stop(queued, StopMode::kCheckpoint).status()));
  server_.store().down = false;
  ASSERT_TRUE(server_.manager().Stop(running, StopMode::kCheckpoint).ok());
  const v1::Job job = server_.AwaitState(queued, v1::STOPPED);
  EXPECT_EQ(job.state(), v1::STOPPED);
  EXPECT_EQ(job.attempt(), 0u);
  EXPECT_THAT(Changes(queued), ElementsAre(v1::QUEUED, v1::STOPPED));
}

TEST_F(RefusingStoreTest, ADrainTriesAgainWhatTheStoreRefuses) {
  const std::string id = Start();
  server_.AwaitStep(id, 1);
  Refuse({v1::QUEUED}, 3, absl::UnavailableError("store away"));
  server_.manager().BeginDrain();
  ASSERT_TRUE(server_.manager().WaitIdle(std::chrono::steady_clock::now() + kPatience));
  EXPECT_EQ(server_.manager().GetJob(id)->state(), v1::QUEUED);
}

TEST_F(RefusingStoreTest, AbortAllGivesUpAnEndThatTheStoreRefuses) {
  constexpr int kAlways = 1'000'000;
  const std::string id = Start();
  server_.AwaitStep(id, 1);
  Refuse({v1::QUEUED}, kAlways, absl::UnavailableError("store away"));
  Mutex mutex;
  absl::Status ended;
  server_.manager().WaitForEnd(id, [&](const absl::StatusOr<v1::Job>& end) {
    MutexLock lock(&mutex);
    ended = end.status();
  });
  MetricsReader reader = server_.manager().ReadMetrics(id, 0, {}).value();
  server_.manager().BeginDrain();
  EXPECT_FALSE(server_.manager().WaitIdle(std::chrono::steady_clock::now() + std::chrono::milliseconds(400)));
  server_.manager().AbortAll();
  ASSERT_TRUE(server_.manager().WaitIdle(std::chrono::steady_clock::now() + kPatience));

  {
    MutexLock lock(&mutex);
    EXPECT_TRUE(absl::IsDataLoss(ended)) << ended;
    EXPECT_THAT(std::string(ended.message()), HasSubstr("store away"));
  }
  // Readers get all that was recorded, and then the error; those that come later too.
  google::protobuf::RepeatedPtrField<v1::MetricRecord> records;
  const absl::Status closed = ReadToError(std::move(reader), &records);
  EXPECT_TRUE(absl::IsDataLoss(closed)) << closed;
  EXPECT_EQ(static_cast<uint64_t>(records.size()), server_.manager().GetJob(id)->last_sequence());
  google::protobuf::RepeatedPtrField<v1::MetricRecord> late_records;
  const absl::Status late = ReadToError(server_.manager().ReadMetrics(id, 0, {}).value(), &late_records);
  EXPECT_TRUE(absl::IsDataLoss(late)) << late;
  EXPECT_EQ(late_records.size(), records.size());
  absl::Status waited;
  server_.manager().WaitForEnd(id, [&](const absl::StatusOr<v1::Job>& end) { waited = end.status(); });
  EXPECT_TRUE(absl::IsDataLoss(waited)) << waited;
}

TEST_F(RefusingStoreTest, ADefectOfTheStoreIsNotTriedAgain) {
  Refuse({v1::SUCCEEDED}, 100, absl::InternalError("corrupt"));
  const std::string id = Start(5);
  google::protobuf::RepeatedPtrField<v1::MetricRecord> records;
  const absl::Status closed = ReadToError(server_.manager().ReadMetrics(id, 0, {}).value(), &records);
  EXPECT_TRUE(absl::IsDataLoss(closed)) << closed;
  EXPECT_THAT(std::string(closed.message()), HasSubstr("corrupt"));
  EXPECT_TRUE(server_.manager().WaitIdle(std::chrono::steady_clock::now() + kPatience));
}

TEST_F(RefusingStoreTest, AJobWhoseMetricsCannotBeStoredFailsThoughTheyStillCannot) {
  ServerUnderTest server;
  v1::StartRequest request = ServerUnderTest::Request(0, 1);
  request.mutable_spec()->set_batch_size(640);  // each step an epoch, with a summary and an evaluation
  const std::string id = server.manager().Start(request)->id();
  server.AwaitStep(id, 1);
  server.store().full = true;
  const v1::Job job = server.AwaitState(id, v1::FAILED);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().phase(), "metrics");
  EXPECT_EQ(job.failure().code(), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(job.failure().rank(), -1);
  EXPECT_THAT(job.reason(), Not(HasSubstr("rank")));
  const std::vector<v1::MetricRecord> records = server.ReadLog(id);
  ASSERT_GE(records.size(), 3u);
  EXPECT_THAT(records[records.size() - 3].warning().message(), HasSubstr("records before the end"));
  EXPECT_EQ(records[records.size() - 2].state_change().to(), v1::FAILED);
  EXPECT_EQ(records.back().terminal().state(), v1::FAILED);
}

// A job that ends between the reading of its record and the answer is shown as it was read, with its progress.
class EndingWhileReadTest : public RefusingStoreTest {
 protected:
  EndingWhileReadTest() : id_(Start()) {
    server_.AwaitStep(id_, 20);
    server_.store().AfterRead([this] {
      ASSERT_TRUE(server_.manager().Stop(id_, StopMode::kAbort).ok());
      ASSERT_TRUE(server_.manager().WaitIdle(std::chrono::steady_clock::now() + kPatience));
    });
  }

  static void ExpectProgress(const v1::Job& job) {
    EXPECT_EQ(job.state(), v1::RUNNING);
    EXPECT_GE(job.progress().step(), 20);
  }

  const std::string id_;
};

TEST_F(EndingWhileReadTest, GetJob) { ExpectProgress(server_.manager().GetJob(id_).value()); }

TEST_F(EndingWhileReadTest, ListJobs) { ExpectProgress(server_.manager().ListJobs({})->jobs.at(0)); }

TEST_F(EndingWhileReadTest, ListChanges) { ExpectProgress(server_.manager().ListChanges(0, 10, 1 << 20)->jobs.at(0)); }

TEST_F(RefusingStoreTest, TheSchedulerIsAwaitedWhileAJobIsPaused) {
  const std::string id = Start();
  server_.AwaitState(id, v1::RUNNING);
  const std::string waiting = Start();
  server_.manager().AwaitScheduler();
  EXPECT_TRUE(server_.manager().MetricsRespond(std::chrono::steady_clock::now() + kPatience));
  // The store is slow in a change that is made under the lock of the queue.
  Gate gate;
  std::atomic<bool> changing{false};
  server_.store().JudgeChanges([&](const StateUpdate& update) {
    if (update.to == v1::PAUSED) {
      changing = true;
      gate.Wait();
    }
    return absl::OkStatus();
  });
  std::thread pausing([&] { server_.manager().Pause(waiting, [](const absl::StatusOr<v1::Job>&) {}); });
  ASSERT_TRUE(Eventually([&] { return changing.load(); }));
  std::atomic<bool> answered{false};
  std::thread asking([&] {
    server_.manager().AwaitScheduler();
    answered = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(answered);
  gate.Open();
  pausing.join();
  asking.join();
}

}  // namespace
}  // namespace lenet
