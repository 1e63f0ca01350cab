#include "client/client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/unit/client/fake_server.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Job NamedJob(const std::string& id) {
  v1::Job job;
  job.set_id(id);
  job.set_state(v1::RUNNING);
  return job;
}

// A port of this host that is taken: connections are refused, or, if it listens, made and never answered.
class TakenPort {
 public:
  explicit TakenPort(bool listening) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    if (listening) {
      EXPECT_EQ(listen(socket_, 8), 0);
    }
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~TakenPort() { close(socket_); }
  const std::string& address() const { return address_; }

 private:
  const int socket_;
  std::string address_;
};

class ClientTest : public testing::Test {
 protected:
  ClientTest() {
    options_.address = server_->address();
    options_.cancelled = &cancelled_;
  }

  static std::unique_ptr<RecordStream> Stream(const Client& client, const std::string& id, uint64_t from = 0) {
    v1::StreamMetricsRequest request;
    request.set_job_id(id);
    request.set_from_sequence(from);
    return client.StreamMetrics(request);
  }

  // The error that the stream ends with, before another record.
  static absl::Status Error(RecordStream* stream) {
    while (true) {
      const absl::StatusOr<std::optional<v1::MetricRecord>> record = stream->Next(absl::InfiniteFuture());
      if (!record.ok() || record->has_value()) return record.status();
    }
  }

  // The sequences of the records up to the terminal one, or to an error.
  static std::vector<uint64_t> ReadAll(RecordStream* stream, absl::Status* status) {
    std::vector<uint64_t> sequences;
    while (true) {
      absl::StatusOr<std::optional<v1::MetricRecord>> record = stream->Next(absl::Now() + absl::Seconds(30));
      if (!record.ok()) {
        *status = record.status();
        return sequences;
      }
      // Nothing comes when the connection is lost.
      if (!record->has_value()) continue;
      sequences.push_back((*record)->sequence());
    }
  }

  FakeService service_;
  std::unique_ptr<FakeServer> server_ = std::make_unique<FakeServer>(&service_);
  std::atomic<bool> cancelled_{false};
  ClientOptions options_;
};

TEST_F(ClientTest, StartSendsTheRequestAndGivesTheJob) {
  const Client client(options_);
  v1::StartRequest request;
  request.set_request_id("r");
  request.mutable_spec()->set_dataset("mnist");
  request.mutable_spec()->set_epochs(3);
  const absl::StatusOr<v1::Job> job = client.Start(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id(), "job-1");
  ASSERT_EQ(service_.starts().size(), 1u);
  EXPECT_EQ(service_.starts()[0].SerializeAsString(), request.SerializeAsString());
}

TEST_F(ClientTest, AnErrorHasTheServersCodeAndMessage) {
  const Client client(options_);
  const absl::StatusOr<v1::Job> job = client.GetJob("x");
  EXPECT_EQ(job.status(), absl::NotFoundError("no job x"));
  EXPECT_EQ(service_.calls(), 1);
}

TEST_F(ClientTest, StartWithARequestIdIsRepeatedAndMakesOneJob) {
  const Client client(options_);
  service_.FailCalls(2, /*after_effect=*/true);
  v1::StartRequest request;
  request.set_request_id("r");
  const absl::StatusOr<v1::Job> job = client.Start(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(service_.starts().size(), 3u);
  EXPECT_EQ(service_.jobs().size(), 1u);
}

TEST_F(ClientTest, StartWithoutARequestIdIsNotRepeated) {
  const Client client(options_);
  service_.FailCalls(1, /*after_effect=*/true);
  EXPECT_EQ(client.Start(v1::StartRequest()).status(), absl::UnavailableError("draining"));
  EXPECT_EQ(service_.calls(), 1);
}

TEST_F(ClientTest, RepeatsEndWithTheTimeout) {
  options_.timeout = absl::Milliseconds(500);
  const Client client(options_);
  service_.FailCalls(1000, /*after_effect=*/false);
  const absl::Time began = absl::Now();
  EXPECT_EQ(client.GetServerInfo().status(), absl::UnavailableError("draining"));
  EXPECT_LE(absl::Now() - began, absl::Seconds(5));
  EXPECT_GE(service_.calls(), 2);
}

TEST_F(ClientTest, ARefusedConnectionIsUnavailableAtOnce) {
  const TakenPort port(/*listening=*/false);
  options_.address = port.address();
  options_.timeout = absl::Seconds(60);
  const Client client(options_);
  const absl::Time began = absl::Now();
  const absl::Status status = client.GetJob("x").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("refused"));
  const absl::Status stream_status = Stream(client, "x")->Next(absl::InfiniteFuture()).status();
  EXPECT_EQ(stream_status.code(), absl::StatusCode::kUnavailable);
  EXPECT_LE(absl::Now() - began, absl::Seconds(30));
}

TEST_F(ClientTest, AHostThatDoesNotSpeakIsUnavailableAfterTheTimeout) {
  const TakenPort port(/*listening=*/true);
  options_.address = port.address();
  options_.timeout = absl::Milliseconds(300);
  const Client client(options_);
  EXPECT_EQ(client.GetJob("x").status(), absl::UnavailableError("no connection within 300ms"));
  EXPECT_EQ(Stream(client, "x")->Next(absl::InfiniteFuture()).status(),
            absl::UnavailableError("no connection within 300ms"));
}

TEST_F(ClientTest, AVeryShortTimeIsNamedAsOneThatCanBe) {
  const TakenPort port(/*listening=*/true);
  options_.address = port.address();
  options_.timeout = absl::Nanoseconds(1);
  const Client client(options_);
  EXPECT_EQ(client.GetJob("x").status(), absl::UnavailableError("no connection within 1ms"));
}

TEST_F(ClientTest, ASlowAnswerExceedsTheDeadline) {
  options_.timeout = absl::Milliseconds(300);
  const Client client(options_);
  service_.HoldCalls();
  EXPECT_EQ(client.GetJob("x").status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, CancellingEndsACallThatWaits) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  service_.HoldCalls();
  std::thread canceller([&] {
    while (service_.calls() == 0) absl::SleepFor(absl::Milliseconds(1));
    cancelled_ = true;
  });
  EXPECT_EQ(client.Stop("a", v1::StopRequest::CHECKPOINT, absl::InfiniteDuration()).status().code(),
            absl::StatusCode::kCancelled);
  canceller.join();
}

TEST_F(ClientTest, StopSaysWhetherToWait) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  ASSERT_TRUE(client.Stop("a", v1::StopRequest::ABORT).ok());
  ASSERT_TRUE(client.Stop("a", v1::StopRequest::CHECKPOINT, absl::Seconds(20)).ok());
  const std::vector<v1::StopRequest> stops = service_.stops();
  ASSERT_EQ(stops.size(), 2u);
  EXPECT_EQ(stops[0].mode(), v1::StopRequest::ABORT);
  EXPECT_FALSE(stops[0].wait());
  EXPECT_EQ(stops[1].mode(), v1::StopRequest::CHECKPOINT);
  EXPECT_TRUE(stops[1].wait());
}

TEST_F(ClientTest, ARefusalOfAChangeIsTheServers) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  EXPECT_EQ(client.DeleteJob("a"), absl::FailedPreconditionError("job a is RUNNING"));
  EXPECT_EQ(client.Pause("x", absl::Seconds(30)).status(), absl::NotFoundError("no job x"));
  EXPECT_EQ(client.Resume("x").status(), absl::NotFoundError("no job x"));
  EXPECT_EQ(client.ListCheckpoints("x").status(), absl::NotFoundError("no job x"));
}

TEST_F(ClientTest, PauseWaitsAsLongAsItIsToldTo) {
  const Client client(options_);
  service_.HoldCalls();
  const absl::Time began = absl::Now();
  EXPECT_EQ(client.Pause("a", absl::Milliseconds(300)).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(250));
  EXPECT_LE(absl::Now() - began, absl::Seconds(8));
}

TEST_F(ClientTest, ListCheckpoints) {
  const Client client(options_);
  v1::Job job = NamedJob("b");
  job.add_checkpoints()->set_step(100);
  job.add_checkpoints()->set_step(200);
  service_.PutJob(job);
  const absl::StatusOr<std::vector<v1::Checkpoint>> checkpoints = client.ListCheckpoints("b");
  ASSERT_TRUE(checkpoints.ok()) << checkpoints.status();
  ASSERT_EQ(checkpoints->size(), 2u);
  EXPECT_EQ((*checkpoints)[0].step(), 100);
  EXPECT_EQ((*checkpoints)[1].step(), 200);
}

TEST_F(ClientTest, ListJobsReadsPagesUpToTheLimit) {
  const Client client(options_);
  for (int i = 0; i < 250; ++i) service_.PutJob(NamedJob(std::to_string(1000 + i)));
  v1::Job queued = NamedJob("2000");
  queued.set_state(v1::QUEUED);
  service_.PutJob(queued);
  bool more = true;
  absl::StatusOr<std::vector<v1::Job>> jobs = client.ListJobs({}, 1'000'000, &more);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 251u);
  for (int i = 0; i < 250; ++i) EXPECT_EQ((*jobs)[i].id(), std::to_string(1000 + i));
  EXPECT_FALSE(more);
  jobs = client.ListJobs({}, 130, &more);
  ASSERT_TRUE(jobs.ok());
  EXPECT_EQ(jobs->size(), 130u);
  EXPECT_TRUE(more);
  jobs = client.ListJobs({v1::QUEUED, v1::FAILED}, 130, &more);
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 1u);
  EXPECT_EQ((*jobs)[0].id(), "2000");
  EXPECT_FALSE(more);
}

TEST_F(ClientTest, ListJobsTakesAShortPageWithATokenForOneOfSeveral) {
  const Client client(options_);
  for (int i = 0; i < 20; ++i) service_.PutJob(NamedJob(std::to_string(1000 + i)));
  service_.ShortenPages({3, 0, 1});
  bool more = true;
  absl::StatusOr<std::vector<v1::Job>> jobs = client.ListJobs({}, 100, &more);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ((*jobs)[i].id(), std::to_string(1000 + i));
  EXPECT_FALSE(more);
  EXPECT_EQ(service_.calls(), 4);
  service_.ShortenPages({3, 2});
  jobs = client.ListJobs({}, 5, &more);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_EQ(jobs->size(), 5u);
  EXPECT_TRUE(more);
  EXPECT_EQ(service_.calls(), 6);
}

TEST_F(ClientTest, StreamGivesEachRecordOnceInOrderThenEnds) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  service_.SetBatchSize(3);
  for (int i = 1; i <= 7; ++i) service_.Append("a", StepRecord(i, {0.5f}));
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 7));
  const std::unique_ptr<RecordStream> stream = Stream(client, "a");
  absl::Status status;
  EXPECT_THAT(ReadAll(stream.get(), &status), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(stream->last_sequence(), 8u);
  EXPECT_EQ(stream->Next(absl::InfiniteFuture()).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(ClientTest, StreamPassesItsRequestOn) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  for (int i = 1; i <= 3; ++i) service_.Append("a", StepRecord(i, {0.5f}));
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 3));
  v1::StreamMetricsRequest request;
  request.set_job_id("a");
  request.set_from_sequence(3);
  request.add_ranks(1);
  request.add_kinds(v1::EVALUATION);
  request.set_every_n_steps(5);
  request.set_max_rate(2.5);
  absl::Status status;
  EXPECT_THAT(ReadAll(client.StreamMetrics(request).get(), &status), ElementsAre(3, 4));
  ASSERT_EQ(service_.streams().size(), 1u);
  EXPECT_EQ(service_.streams()[0].SerializeAsString(), request.SerializeAsString());
}

TEST_F(ClientTest, NextGivesNothingWhenItsTimeIsUp) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  const std::unique_ptr<RecordStream> stream = Stream(client, "a");
  absl::StatusOr<std::optional<v1::MetricRecord>> record = stream->Next(absl::Now() + absl::Milliseconds(200));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_FALSE(record->has_value());
  EXPECT_EQ(stream->outage(), absl::OkStatus());
  service_.Append("a", StepRecord(1, {0.5f}));
  record = stream->Next(absl::Now() + absl::Seconds(30));
  ASSERT_TRUE(record.ok()) << record.status();
  ASSERT_TRUE(record->has_value());
  EXPECT_EQ((*record)->sequence(), 1u);
}

TEST_F(ClientTest, StreamGoesOnBehindTheLastRecordWhenTheServerBreaksIt) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  service_.SetBatchSize(2);
  for (int i = 1; i <= 9; ++i) service_.Append("a", StepRecord(i, {0.5f}));
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 9));
  service_.BreakStreamsAfter({3, 0, 4});
  absl::Status status;
  EXPECT_THAT(ReadAll(Stream(client, "a").get(), &status), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  std::vector<uint64_t> from;
  for (const v1::StreamMetricsRequest& request : service_.streams()) from.push_back(request.from_sequence());
  EXPECT_THAT(from, ElementsAre(1, 4, 4, 8));
}

TEST_F(ClientTest, AStreamThatEndsBeforeTheJobIsOpenedAgain) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  service_.Append("a", StepRecord(1, {0.5f}));
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 1));
  service_.EndStreamAfter(1);
  absl::Status status;
  EXPECT_THAT(ReadAll(Stream(client, "a").get(), &status), ElementsAre(1, 2));
  EXPECT_EQ(service_.streams().size(), 2u);
}

TEST_F(ClientTest, AStreamFromBeyondTheEndOfAnEndedJobHasEnded) {
  const Client client(options_);
  for (const v1::JobState state : {v1::SUCCEEDED, v1::FAILED, v1::STOPPED}) {
    v1::Job job = NamedJob(v1::JobState_Name(state));
    job.set_state(state);
    service_.PutJob(job);
    service_.Append(job.id(), StepRecord(1, {0.5f}));
    service_.Append(job.id(), TerminalRecord(state, 1));
    for (const uint64_t from : {3, 100}) {
      const std::unique_ptr<RecordStream> stream = Stream(client, job.id(), from);
      const absl::Time began = absl::Now();
      EXPECT_EQ(stream->Next(absl::InfiniteFuture()).status(), absl::OutOfRangeError("the job's log has ended"));
      EXPECT_LE(absl::Now() - began, absl::Seconds(20));
      EXPECT_EQ(stream->Next(absl::InfiniteFuture()).status().code(), absl::StatusCode::kOutOfRange);
      EXPECT_EQ(stream->outage(), absl::OkStatus());
      EXPECT_EQ(stream->last_sequence(), from - 1);
    }
  }
  EXPECT_EQ(service_.streams().size(), 6u);
  EXPECT_EQ(service_.calls(), 6);
}

TEST_F(ClientTest, AStreamThatEndsAsTheJobDoesStillGivesTheLastRecords) {
  const Client client(options_);
  v1::Job job = NamedJob("a");
  job.set_state(v1::SUCCEEDED);
  service_.PutJob(job);
  service_.Append("a", StepRecord(1, {0.5f}));
  service_.Append("a", StepRecord(2, {0.5f}));
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 2));
  service_.EndStreamAfter(1);
  absl::Status status;
  EXPECT_THAT(ReadAll(Stream(client, "a").get(), &status), ElementsAre(1, 2, 3));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
}

TEST_F(ClientTest, AskingForTheStateOfAJobWhoseStreamEndedKeepsToTheTimeOfNext) {
  options_.timeout = absl::Milliseconds(400);
  options_.reconnect_timeout = absl::Milliseconds(700);
  const Client client(options_);
  v1::Job job = NamedJob("a");
  job.set_state(v1::SUCCEEDED);
  service_.PutJob(job);
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 1));
  service_.HoldCalls();
  const std::unique_ptr<RecordStream> stream = Stream(client, "a", 2);
  const absl::Time began = absl::Now();
  while (service_.calls() == 0) {
    const absl::StatusOr<std::optional<v1::MetricRecord>> record = stream->Next(absl::Now() + absl::Milliseconds(20));
    ASSERT_TRUE(record.ok()) << record.status();
    ASSERT_FALSE(record->has_value());
    ASSERT_LE(absl::Now() - began, absl::Seconds(30));
  }
  // Each answer takes longer than the time of a call, so in the end there is no server that serves.
  EXPECT_EQ(Error(stream.get()).code(), absl::StatusCode::kUnavailable);
  EXPECT_LE(absl::Now() - began, absl::Seconds(30));
}

TEST_F(ClientTest, AStreamWhoseJobIsForgottenIsNotFound) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  service_.Append("a", StepRecord(1, {0.5f}));
  service_.EndStreamAfter(1);
  const std::unique_ptr<RecordStream> stream = Stream(client, "a");
  ASSERT_TRUE(stream->Next(absl::InfiniteFuture()).ok());
  service_.RemoveJob("a");
  EXPECT_EQ(stream->Next(absl::InfiniteFuture()).status(), absl::NotFoundError("no job a"));
}

TEST_F(ClientTest, StreamOutlivesARestartOfTheServer) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  for (int i = 1; i <= 3; ++i) service_.Append("a", StepRecord(i, {0.5f}));
  const std::unique_ptr<RecordStream> stream = Stream(client, "a");
  for (uint64_t i = 1; i <= 3; ++i) {
    absl::StatusOr<std::optional<v1::MetricRecord>> record = stream->Next(absl::Now() + absl::Seconds(30));
    ASSERT_TRUE(record.ok() && record->has_value()) << record.status();
    EXPECT_EQ((*record)->sequence(), i);
  }
  const int port = server_->port();
  server_.reset();
  const absl::Time down_until = absl::Now() + absl::Milliseconds(400);
  while (stream->outage().ok() || absl::Now() < down_until) {
    absl::StatusOr<std::optional<v1::MetricRecord>> record = stream->Next(absl::Now() + absl::Milliseconds(50));
    ASSERT_TRUE(record.ok()) << record.status();
    ASSERT_FALSE(record->has_value());
  }
  const absl::Time up = absl::Now();
  server_ = std::make_unique<FakeServer>(&service_, port);
  ASSERT_EQ(server_->port(), port);
  service_.Append("a", StepRecord(4, {0.5f}));
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 4));
  absl::Status status;
  EXPECT_THAT(ReadAll(stream.get(), &status), ElementsAre(4, 5));
  EXPECT_EQ(stream->outage(), absl::OkStatus());
  // Pauses are some hundred milliseconds by then.
  EXPECT_LE(absl::Now() - up, absl::Seconds(4));
}

TEST_F(ClientTest, AQuietStreamCountsAsConnectedAgain) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  service_.Append("a", StepRecord(1, {0.5f}));
  service_.BreakStreamsAfter({1});
  const std::unique_ptr<RecordStream> stream = Stream(client, "a");
  ASSERT_TRUE(stream->Next(absl::Now() + absl::Seconds(30)).ok());
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  bool was_lost = false;
  while (absl::Now() < limit && !(was_lost && stream->outage().ok())) {
    ASSERT_TRUE(stream->Next(absl::Now() + absl::Milliseconds(10)).ok());
    was_lost = was_lost || !stream->outage().ok();
  }
  EXPECT_TRUE(was_lost);
  EXPECT_EQ(stream->outage(), absl::OkStatus());
}

TEST_F(ClientTest, StreamGivesUpAfterTheReconnectTimeout) {
  options_.reconnect_timeout = absl::Milliseconds(700);
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  service_.Append("a", StepRecord(1, {0.5f}));
  const std::unique_ptr<RecordStream> stream = Stream(client, "a");
  ASSERT_TRUE(stream->Next(absl::Now() + absl::Seconds(30)).ok());
  server_.reset();
  const absl::Time began = absl::Now();
  const absl::Status status = Error(stream.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("700ms"));
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(600));
  EXPECT_LE(absl::Now() - began, absl::Seconds(20));
  EXPECT_EQ(stream->Next(absl::InfiniteFuture()).status(), status);
}

TEST_F(ClientTest, StreamOfAnUnknownJobIsNotFoundAndStaysSo) {
  const Client client(options_);
  const std::unique_ptr<RecordStream> stream = Stream(client, "x");
  EXPECT_EQ(stream->Next(absl::InfiniteFuture()).status(), absl::NotFoundError("no job x"));
  EXPECT_EQ(stream->Next(absl::InfiniteFuture()).status(), absl::NotFoundError("no job x"));
  EXPECT_EQ(service_.streams().size(), 1u);
}

TEST_F(ClientTest, CancellingEndsAStreamThatWaits) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  const std::unique_ptr<RecordStream> stream = Stream(client, "a");
  std::thread canceller([&] {
    while (service_.streams().empty()) absl::SleepFor(absl::Milliseconds(1));
    cancelled_ = true;
  });
  EXPECT_EQ(stream->Next(absl::InfiniteFuture()).status().code(), absl::StatusCode::kCancelled);
  canceller.join();
}

TEST_F(ClientTest, AStreamMayBeDroppedInTheMiddle) {
  const Client client(options_);
  service_.PutJob(NamedJob("a"));
  for (int i = 1; i <= 1000; ++i) service_.Append("a", StepRecord(i, {0.5f}));
  { const std::unique_ptr<RecordStream> never_used = Stream(client, "a"); }
  const std::unique_ptr<RecordStream> stream = Stream(client, "a");
  ASSERT_TRUE(stream->Next(absl::Now() + absl::Seconds(30)).ok());
}

}  // namespace
}  // namespace lenet
