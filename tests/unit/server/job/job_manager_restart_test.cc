// What outlives a server, pausing, and making room: jobs of more than one attempt.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/job_manager.h"
#include "tests/support/server_under_test.h"
#include "trainer/base/log.h"

namespace lenet {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RestartTest : public ::testing::Test {
 protected:
  std::string Start(const v1::StartRequest& request) {
    const absl::StatusOr<v1::Job> job = server_.manager().Start(request);
    EXPECT_TRUE(job.ok()) << job.status();
    return job->id();
  }
  std::string Start(int64_t max_steps = 0, int ranks = 2) { return Start(ServerUnderTest::Request(max_steps, ranks)); }

  v1::Job Get(const std::string& id) { return server_.manager().GetJob(id).value(); }

  // Leaves the store as a server leaves it that is killed while the job is in that state.
  std::string LeftIn(v1::JobState state, int64_t max_steps = 20) {
    const std::string id = Start(max_steps);
    server_.DestroyManager();
    v1::JobState from = v1::QUEUED;
    const auto change = [&](v1::JobState to, const std::string& reason) {
      const absl::StatusOr<v1::Job> job =
          server_.store().ChangeState(id, {.from = from, .to = to, .time = absl::Now(), .reason = reason});
      EXPECT_TRUE(job.ok()) << job.status();
      from = to;
    };
    from = server_.store().GetJob(id)->state();
    EXPECT_EQ(from, v1::QUEUED);
    change(v1::STARTING, "setting up");
    if (state == v1::RUNNING || state == v1::STOPPING) change(v1::RUNNING, "training");
    if (state == v1::STOPPING) change(v1::STOPPING, "stopped on request");
    return id;
  }

  absl::StatusOr<v1::Job> Pause(const std::string& id) {
    Gate done;
    absl::StatusOr<v1::Job> result = absl::UnknownError("not called");
    server_.manager().Pause(id, [&](absl::StatusOr<v1::Job> job) {
      result = std::move(job);
      done.Open();
    });
    done.Wait();
    return result;
  }

  std::vector<v1::JobState> Changes(const std::string& id) {
    std::vector<v1::JobState> states;
    for (const v1::MetricRecord& record : server_.ReadLog(id)) {
      if (record.has_state_change()) states.push_back(record.state_change().to());
    }
    return states;
  }

  // Every step of every rank is in the log, each attempt from where it began.
  void ExpectWholeLog(const std::string& id, int64_t steps, int ranks) {
    std::vector<int64_t> newest(static_cast<size_t>(ranks), 0);
    uint64_t sequence = 0;
    for (const v1::MetricRecord& record : server_.ReadLog(id)) {
      EXPECT_EQ(record.sequence(), ++sequence);
      for (int i = 0; i < record.step_losses().steps_size(); ++i) {
        int64_t& last = newest[static_cast<size_t>(record.step_losses().ranks(i))];
        EXPECT_LE(record.step_losses().steps(i), last + 1);
        last = record.step_losses().steps(i);
      }
    }
    EXPECT_EQ(newest, std::vector<int64_t>(static_cast<size_t>(ranks), steps));
  }

  ServerUnderTest server_{Paced()};
};

TEST_F(RestartTest, ARunningJobGoesOnWhereTheDrainSavedIt) {
  const std::string id = Start(150);
  server_.AwaitStep(id, 20);
  server_.Restart();
  const v1::Job job = server_.AwaitState(id, v1::SUCCEEDED);
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
  EXPECT_EQ(job.attempt(), 2u);
  EXPECT_EQ(job.progress().step(), 150);
  EXPECT_THAT(Changes(id),
              ElementsAre(v1::QUEUED, v1::STARTING, v1::RUNNING, v1::QUEUED, v1::STARTING, v1::RUNNING, v1::SUCCEEDED));
  ExpectWholeLog(id, 150, 2);
  const std::vector<Attempt> attempts = server_.store().ListAttempts(id).value();
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].end_state, v1::QUEUED);
  EXPECT_EQ(attempts[1].end_state, v1::SUCCEEDED);
  // A resumed run does no step twice.
  int64_t losses = 0;
  for (const v1::MetricRecord& record : server_.ReadLog(id)) losses += record.step_losses().losses_size();
  EXPECT_EQ(losses, 2 * 150);
}

TEST_F(RestartTest, QueuedJobsStayInTheirOrder) {
  const std::string running = Start(0);
  server_.AwaitStep(running, 1);
  const std::vector<std::string> queued = {Start(5), Start(5), Start(5)};
  server_.Restart();
  // The one that ran is the oldest.
  server_.AwaitStep(running, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Get(queued[static_cast<size_t>(i)]).queue_position(), i + 1);
  ASSERT_TRUE(server_.manager().Stop(running, StopMode::kCheckpoint).ok());
  absl::Time before;
  for (const std::string& id : queued) {
    const v1::Job job = server_.AwaitState(id, v1::SUCCEEDED);
    EXPECT_EQ(job.state(), v1::SUCCEEDED);
    const absl::Time started =
        absl::TimeFromTimeval({.tv_sec = job.started_at().seconds(), .tv_usec = job.started_at().nanos() / 1000});
    EXPECT_GT(started, before);
    before = started;
  }
}

TEST_F(RestartTest, AnAttemptThatWasCutShortIsFollowedByAnother) {
  for (v1::JobState state : {v1::STARTING, v1::RUNNING}) {
    const std::string id = LeftIn(state);
    server_.Restart();
    const v1::Job job = server_.AwaitState(id, v1::SUCCEEDED);
    EXPECT_EQ(job.state(), v1::SUCCEEDED);
    EXPECT_EQ(job.progress().step(), 20);
    bool said = false;
    for (const v1::MetricRecord& record : server_.ReadLog(id)) {
      said |= record.state_change().reason().find("the server ended in attempt") != std::string::npos;
    }
    EXPECT_TRUE(said);
  }
}

TEST_F(RestartTest, AStopThatWasAskedForHolds) {
  const std::string id = LeftIn(v1::STOPPING);
  server_.Restart();
  const v1::Job job = Get(id);
  EXPECT_EQ(job.state(), v1::STOPPED);
  EXPECT_THAT(job.reason(), AllOf(HasSubstr("stopped on request"), HasSubstr("the server ended in attempt")));
  EXPECT_TRUE(server_.ReadLog(id).back().has_terminal());
}

TEST_F(RestartTest, RunningJobsFailIfTheyAreNotToGoOn) {
  const std::string id = LeftIn(v1::RUNNING);
  const v1::Job before = server_.store().GetJob(id).value();
  server_.Restart(/*running_go_on=*/false);
  const v1::Job job = Get(id);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().phase(), "restart");
  EXPECT_EQ(job.failure().rank(), -1);
  EXPECT_EQ(job.reason(), absl::StrCat("in restart: ABORTED: the server ended in attempt ", before.attempt()));
  EXPECT_EQ(job.attempt(), before.attempt());
  EXPECT_TRUE(server_.ReadLog(id).back().has_terminal());
}

TEST_F(RestartTest, AJobThatIsNotToGoOnTellsTheStepThatEveryRankHadDone) {
  const std::string id = LeftIn(v1::RUNNING, 50);
  for (const int step : {10, 30}) {
    std::vector<v1::MetricRecord> records(1);
    records[0].set_attempt(1);
    v1::StepLosses* losses = records[0].mutable_step_losses();
    for (int rank = 0; rank < 2; ++rank) {
      losses->add_steps(step + rank);
      losses->add_ranks(rank);
      losses->add_losses(0.5f);
    }
    ASSERT_TRUE(server_.store().AppendRecords(id, records).ok());
  }
  server_.Restart(/*running_go_on=*/false);
  const v1::Job job = Get(id);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().step(), 30);
  EXPECT_EQ(job.reason(),
            absl::StrCat("after step 30, in restart: ABORTED: the server ended in attempt ", job.attempt()));
  EXPECT_EQ(job.progress().step(), 30);
  EXPECT_EQ(job.progress().loss(), 0.5);
  EXPECT_EQ(job.progress().images_per_second(), 0);
  const v1::Terminal terminal = server_.ReadLog(id).back().terminal();
  EXPECT_EQ(terminal.last_step(), 30);
  EXPECT_THAT(terminal.rank_steps(), ElementsAre(30, 30));
}

TEST_F(RestartTest, AJobWhoseDataIsGoneFailsAndSaysSo) {
  const std::string id = LeftIn(v1::RUNNING);
  std::filesystem::remove_all(server_.folder() / "data" / "small");
  server_.Restart();
  const v1::Job job = server_.AwaitState(id, v1::FAILED);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().phase(), "load");
  EXPECT_THAT(job.failure().message(), HasSubstr("small"));
}

TEST_F(RestartTest, ADamagedCheckpointGivesWayToTheOneBefore) {
  v1::StartRequest request = ServerUnderTest::Request(200, 2);
  request.mutable_spec()->mutable_checkpoints()->set_every_steps(10);
  const std::string id = Start(request);
  server_.AwaitStep(id, 60);
  server_.Drain();
  const v1::Job left = server_.store().GetJob(id).value();
  ASSERT_GE(left.checkpoints_size(), 2);
  const v1::Checkpoint& newest = *left.checkpoints().rbegin();
  std::filesystem::resize_file(newest.path(), 100);
  server_.Restart();
  EXPECT_EQ(server_.AwaitState(id, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  bool warned = false;
  for (const v1::MetricRecord& record : server_.ReadLog(id)) {
    warned |=
        record.warning().message().find(absl::StrCat("the checkpoint of step ", newest.step(), " cannot be read")) == 0;
  }
  EXPECT_TRUE(warned);
  ExpectWholeLog(id, 200, 2);
}

TEST_F(RestartTest, APausedJobGivesUpItsDevicesAndGoesOnWhenResumed) {
  const std::string id = Start(150);
  server_.AwaitStep(id, 20);
  const absl::StatusOr<v1::Job> paused = Pause(id);
  ASSERT_TRUE(paused.ok()) << paused.status();
  EXPECT_EQ(paused->state(), v1::PAUSED);
  EXPECT_THAT(paused->reason(), StartsWith("paused on request; goes on from step "));
  EXPECT_TRUE(std::filesystem::exists(paused->checkpoint()));
  EXPECT_EQ(server_.AwaitState(Start(5), v1::SUCCEEDED).state(), v1::SUCCEEDED);
  EXPECT_EQ(Pause(id)->state(), v1::PAUSED);  // again
  server_.Restart();
  EXPECT_EQ(Get(id).state(), v1::PAUSED);
  EXPECT_EQ(Get(id).progress().step(), paused->progress().step());
  EXPECT_TRUE(server_.manager().Resume(id).ok());
  EXPECT_TRUE(server_.manager().Resume(id).ok());  // again
  EXPECT_EQ(server_.AwaitState(id, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  ExpectWholeLog(id, 150, 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(Pause(id).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(server_.manager().Resume(id).status()));
  EXPECT_TRUE(absl::IsNotFound(Pause("nothing").status()));
}

TEST_F(RestartTest, AQueuedJobCanBePausedAndAPausedOneStopped) {
  const std::string running = Start();
  server_.AwaitStep(running, 1);
  const std::string id = Start(5);
  EXPECT_EQ(Pause(id)->state(), v1::PAUSED);
  EXPECT_EQ(server_.manager().Load().queued, 0);
  const absl::StatusOr<v1::Job> stopped = server_.manager().Stop(id, StopMode::kCheckpoint);
  EXPECT_EQ(stopped->state(), v1::STOPPED);
  EXPECT_EQ(server_.ReadLog(id).back().terminal().last_step(), 0);
  // One that ran ends with the steps that it has saved.
  const v1::Job paused = Pause(running).value();
  EXPECT_EQ(server_.manager().Stop(running, StopMode::kAbort)->state(), v1::STOPPED);
  EXPECT_EQ(server_.ReadLog(running).back().terminal().last_step(), paused.progress().step());
  EXPECT_EQ(Get(running).weights_checksums_size(), 2);
}

TEST_F(RestartTest, APausedHeadLetsThoseBehindItStart) {
  const std::string running = Start(0, 1);
  server_.AwaitStep(running, 1);
  const std::string head = Start(5, 2);
  const std::string behind = Start(5, 1);
  EXPECT_EQ(Get(behind).state(), v1::QUEUED);
  EXPECT_EQ(Pause(head)->state(), v1::PAUSED);
  EXPECT_EQ(server_.AwaitState(behind, v1::SUCCEEDED).state(), v1::SUCCEEDED);
}

// The pause is recorded by the job's thread, which ends a little later.
TEST_F(RestartTest, AResumeRightAfterThePauseIsRecordedIsNotLost) {
  for (int round = 0; round < 30; ++round) {
    const std::string id = Start(0);
    server_.AwaitStep(id, 1);
    std::thread pausing([&] { (void)Pause(id); });
    EXPECT_TRUE(Eventually([&] { return server_.store().GetJob(id)->state() == v1::PAUSED; }));
    ASSERT_TRUE(server_.manager().Resume(id).ok());
    pausing.join();
    EXPECT_EQ(server_.AwaitState(id, v1::RUNNING).state(), v1::RUNNING);
    ASSERT_TRUE(server_.manager().Stop(id, StopMode::kAbort).ok());
    EXPECT_EQ(server_.AwaitState(id, v1::STOPPED).state(), v1::STOPPED);
  }
}

// The thread of a job that was paused is held at its end, when the pause is recorded.
class PauseWindowTest : public ::testing::Test {
 protected:
  PauseWindowTest() {
    SetLogSink([this](LogLevel, absl::string_view line) {
      if (!absl::StrContains(line, "PAUSED: ") || passed_.exchange(true)) return;
      held_.Open();
      go_on_.Wait();
    });
    server_ = std::make_unique<ServerUnderTest>(Paced());
    id_ = server_->manager().Start(ServerUnderTest::Request(0, 2))->id();
    server_->AwaitStep(id_, 1);
    Pause(&first_);
    held_.Wait();
  }
  ~PauseWindowTest() override {
    go_on_.Open();
    server_.reset();
    SetLogSink(nullptr);
  }

  uint64_t Pause(std::atomic<v1::JobState>* state) {
    return server_->manager().Pause(id_, [state](const absl::StatusOr<v1::Job>& job) {
      *state = job.ok() ? job->state() : v1::JOB_STATE_UNSPECIFIED;
    });
  }
  v1::Job Get() { return server_->manager().GetJob(id_).value(); }

  std::atomic<bool> passed_{false};
  Gate held_;
  Gate go_on_;
  std::unique_ptr<ServerUnderTest> server_;
  std::string id_;
  std::atomic<v1::JobState> first_{v1::QUEUED};
  std::atomic<v1::JobState> second_{v1::QUEUED};
};

TEST_F(PauseWindowTest, AResumeAnswersThePauseAndTheJobRunsOn) {
  EXPECT_EQ(server_->manager().Resume(id_)->state(), v1::QUEUED);
  EXPECT_EQ(first_, v1::PAUSED);
  go_on_.Open();
  EXPECT_EQ(server_->AwaitState(id_, v1::RUNNING).state(), v1::RUNNING);
  EXPECT_EQ(Get().attempt(), 2u);
}

TEST_F(PauseWindowTest, APauseAfterTheResumeHolds) {
  EXPECT_EQ(server_->manager().Resume(id_)->state(), v1::QUEUED);
  EXPECT_NE(Pause(&second_), 0u);
  EXPECT_EQ(Get().state(), v1::QUEUED);
  EXPECT_EQ(second_, v1::QUEUED);
  go_on_.Open();
  EXPECT_TRUE(Eventually([this] { return second_ != v1::QUEUED; }));
  EXPECT_EQ(second_, v1::PAUSED);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(Get().state(), v1::PAUSED);
  EXPECT_EQ(Get().attempt(), 1u);
  ASSERT_TRUE(server_->manager().Resume(id_).ok());
  EXPECT_EQ(server_->AwaitState(id_, v1::RUNNING).state(), v1::RUNNING);
}

TEST_F(PauseWindowTest, APauseWhoseClientGivesUpHoldsAllTheSame) {
  ASSERT_TRUE(server_->manager().Resume(id_).ok());
  const uint64_t token = Pause(&second_);
  EXPECT_TRUE(server_->manager().StopWaiting(id_, token));
  go_on_.Open();
  EXPECT_EQ(server_->AwaitState(id_, v1::PAUSED).state(), v1::PAUSED);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(Get().state(), v1::PAUSED);
  EXPECT_EQ(Get().attempt(), 1u);
  EXPECT_EQ(second_, v1::QUEUED);  // not called
}

TEST_F(PauseWindowTest, AStopInBetweenEndsAll) {
  ASSERT_TRUE(server_->manager().Resume(id_).ok());
  Pause(&second_);
  EXPECT_EQ(server_->manager().Stop(id_, StopMode::kCheckpoint)->state(), v1::STOPPED);
  EXPECT_EQ(second_, v1::JOB_STATE_UNSPECIFIED);
  go_on_.Open();
  EXPECT_TRUE(Eventually([this] { return server_->manager().Load().running == 0; }));
  EXPECT_EQ(Get().state(), v1::STOPPED);
}

TEST_F(RestartTest, APauseWhoseStateIsNotSavedSaysSo) {
  const std::string id = Start();
  server_.AwaitStep(id, 1);
  std::ofstream(server_.folder() / "jobs" / id) << "in the way";
  EXPECT_THAT(Pause(id)->reason(), StartsWith("paused on request; begins again; the last state was not saved: "));
}

TEST_F(RestartTest, PausesResumesAndStopsAtOnceAllEnd) {
  for (int round = 0; round < 10; ++round) {
    const std::string id = Start(0);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 5; ++i) {
          if ((t + i) % 2 == 0) {
            (void)Pause(id);
          } else {
            (void)server_.manager().Resume(id);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(server_.manager().Stop(id, StopMode::kAbort).ok());
    EXPECT_EQ(server_.AwaitState(id, v1::STOPPED).state(), v1::STOPPED);
  }
  EXPECT_TRUE(server_.manager().WaitIdle(std::chrono::steady_clock::now() + kPatience));
}

TEST_F(RestartTest, APreemptibleJobMakesRoomAndComesBack) {
  v1::StartRequest low = ServerUnderTest::Request(300, 2);
  low.mutable_spec()->set_preemptible(true);
  const std::string victim = Start(low);
  server_.AwaitStep(victim, 10);
  v1::StartRequest high = ServerUnderTest::Request(20, 2);
  high.mutable_spec()->set_priority(1);
  const std::string urgent = Start(high);
  EXPECT_EQ(server_.AwaitState(urgent, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  const v1::Job job = server_.AwaitState(victim, v1::SUCCEEDED);
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
  EXPECT_EQ(job.attempt(), 2u);
  EXPECT_EQ(Get(urgent).attempt(), 1u);
  ExpectWholeLog(victim, 300, 2);
}

TEST_F(RestartTest, AJobGoesOnFromAnothersCheckpoint) {
  v1::StartRequest request = ServerUnderTest::Request(100, 2);
  request.mutable_spec()->mutable_checkpoints()->set_every_steps(40);
  request.mutable_spec()->mutable_schedule()->set_kind(v1::Schedule::CONSTANT);
  const std::string source = Start(request);
  ASSERT_EQ(server_.AwaitState(source, v1::SUCCEEDED).state(), v1::SUCCEEDED);

  v1::StartRequest longer = request;
  longer.mutable_spec()->set_max_steps(160);
  longer.set_request_id("once");
  longer.mutable_resume_from()->set_job_id(source);
  const std::string id = Start(longer);
  EXPECT_EQ(Start(longer), id);
  EXPECT_EQ(Get(id).resumed_from().step(), 100);
  ASSERT_EQ(server_.AwaitState(id, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  EXPECT_EQ(Get(id).progress().step(), 160);
  int64_t first = 0;
  for (const v1::MetricRecord& record : server_.ReadLog(id)) {
    if (first == 0 && record.has_step_losses()) first = record.step_losses().steps(0);
  }
  EXPECT_EQ(first, 101);

  const auto refused = [&](auto change) {
    v1::StartRequest bad = longer;
    bad.clear_request_id();
    change(&bad);
    return server_.manager().Start(bad).status();
  };
  const absl::Status seed = refused([](v1::StartRequest* bad) { bad->mutable_spec()->set_seed(7); });
  EXPECT_TRUE(absl::IsInvalidArgument(seed));
  EXPECT_THAT(std::string(seed.message()), StartsWith("spec.seed = 7: must be 1, as in job"));
  EXPECT_TRUE(absl::IsInvalidArgument(refused([](v1::StartRequest* bad) { bad->mutable_spec()->set_max_steps(50); })));
  EXPECT_TRUE(absl::IsInvalidArgument(refused([](v1::StartRequest* bad) { bad->mutable_spec()->set_batch_size(8); })));
  EXPECT_TRUE(absl::IsNotFound(refused([](v1::StartRequest* bad) { bad->mutable_resume_from()->set_step(7); })));
  EXPECT_TRUE(absl::IsNotFound(refused([](v1::StartRequest* bad) { bad->mutable_resume_from()->set_job_id("x"); })));
  // A request with the id of one that went on from elsewhere is another.
  v1::StartRequest other = longer;
  other.clear_resume_from();
  EXPECT_TRUE(absl::IsAlreadyExists(server_.manager().Start(other).status()));
}

TEST_F(RestartTest, WeightsThatAreNoSafetensorsFileAreRefused) {
  v1::StartRequest request = ServerUnderTest::Request(5, 1);
  request.set_initial_weights("not a file of tensors");
  EXPECT_TRUE(absl::IsInvalidArgument(server_.manager().Start(request).status()));
}

TEST(ClientLimitTest, AClientHoldsSoManyJobsAndNoMore) {
  ServerUnderTestOptions options = Paced();
  options.manager.limits.max_jobs_per_client = 2;
  ServerUnderTest server(options);
  const std::string first = server.manager().Start(ServerUnderTest::Request(0, 2), "10.0.0.1")->id();
  ASSERT_TRUE(server.manager().Start(ServerUnderTest::Request(0, 2), "10.0.0.1").ok());
  const absl::Status refused = server.manager().Start(ServerUnderTest::Request(0, 2), "10.0.0.1").status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("10.0.0.1"), HasSubstr("the limit is 2")));
  EXPECT_TRUE(server.manager().Start(ServerUnderTest::Request(0, 2), "10.0.0.2").ok());
  ASSERT_TRUE(server.manager().Stop(first, StopMode::kAbort).ok());
  EXPECT_EQ(server.AwaitState(first, v1::STOPPED).state(), v1::STOPPED);
  EXPECT_TRUE(Eventually([&] { return server.manager().Start(ServerUnderTest::Request(0, 2), "10.0.0.1").ok(); }));
}

}  // namespace
}  // namespace lenet
