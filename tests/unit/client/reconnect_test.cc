// What becomes of calls and streams whose connection breaks; one that a server restarts under is in client_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/client.h"
#include "tests/unit/client/fake_server.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;

class ReconnectTest : public testing::Test {
 protected:
  ReconnectTest() {
    options_.address = server_.address();
    v1::Job job;
    job.set_id("a");
    job.set_state(v1::RUNNING);
    service_.PutJob(job);
  }

  void AppendSteps(int first, int last, float loss = 0.5f) {
    for (int step = first; step <= last; ++step) service_.Append("a", StepRecord(step, {loss}));
  }

  std::unique_ptr<RecordStream> Stream() {
    v1::StreamMetricsRequest request;
    request.set_job_id("a");
    return client_.StreamMetrics(request);
  }

  // Waits for the next record, which must come, over outages.
  v1::MetricRecord Next(RecordStream* stream) {
    const absl::Time limit = absl::Now() + absl::Seconds(30);
    while (absl::Now() < limit) {
      absl::StatusOr<std::optional<v1::MetricRecord>> record = stream->Next(limit);
      if (!record.ok()) break;
      if (record->has_value()) return **std::move(record);
    }
    ADD_FAILURE() << "no record";
    return v1::MetricRecord();
  }

  // Reads to the end. Gives the sequences; of each outage, the stream must give nothing once.
  std::vector<uint64_t> ReadAll(RecordStream* stream, int* outages) {
    std::vector<uint64_t> sequences;
    *outages = 0;
    while (true) {
      absl::StatusOr<std::optional<v1::MetricRecord>> record = stream->Next(absl::InfiniteFuture());
      if (!record.ok()) {
        EXPECT_EQ(record.status(), absl::OutOfRangeError("the job's log has ended"));
        return sequences;
      }
      EXPECT_EQ(record->has_value(), stream->outage().ok());
      if (record->has_value()) {
        sequences.push_back((*record)->sequence());
      } else {
        ++*outages;
      }
    }
  }

  FakeService service_;
  FakeServer server_{&service_};
  ClientOptions options_;
  const Client client_{{.address = server_.address()}};
};

TEST_F(ReconnectTest, AStreamAsksFromBehindItsLastRecordInTheEpochThatItKnows) {
  AppendSteps(1, 3);
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 3));
  service_.BreakStreamsAfter({2, 1});
  int outages;
  EXPECT_THAT(ReadAll(Stream().get(), &outages), ElementsAre(1, 2, 3, 4));
  const std::vector<v1::StreamMetricsRequest> requests = service_.streams();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].from_sequence(), 1u);
  EXPECT_EQ(requests[0].log_epoch(), 0u);
  EXPECT_EQ(requests[1].from_sequence(), 3u);
  EXPECT_EQ(requests[1].log_epoch(), 1u);
  EXPECT_EQ(requests[2].from_sequence(), 4u);
  EXPECT_EQ(requests[2].log_epoch(), 1u);
}

TEST_F(ReconnectTest, RecordsThatWereLostAreAnnouncedAndOthersTakeTheirPlace) {
  AppendSteps(1, 5);
  service_.BreakStreamsAfter({5, 0});
  const std::unique_ptr<RecordStream> stream = Stream();
  for (uint64_t i = 1; i <= 5; ++i) EXPECT_EQ(Next(stream.get()).sequence(), i);
  service_.Rewind("a", 3);
  AppendSteps(3, 4, 0.25f);
  const v1::MetricRecord rewound = Next(stream.get());
  ASSERT_TRUE(rewound.has_rewound());
  EXPECT_EQ(rewound.sequence(), 2u);
  EXPECT_EQ(rewound.rewound().first_sequence(), 3u);
  EXPECT_EQ(rewound.rewound().log_epoch(), 2u);
  EXPECT_EQ(stream->last_sequence(), 2u);
  const v1::MetricRecord third = Next(stream.get());
  EXPECT_EQ(third.sequence(), 3u);
  EXPECT_EQ(third.step_losses().losses(0), 0.25f);
  EXPECT_EQ(Next(stream.get()).sequence(), 4u);
  EXPECT_EQ(stream->last_sequence(), 4u);
}

TEST_F(ReconnectTest, AnOutageOfSeveralAttemptsIsOneAndTheAttemptsBecomeRarer) {
  AppendSteps(1, 2);
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 2));
  service_.BreakStreamsAfter({1, 0, 0, 0, 1});
  const absl::Time began = absl::Now();
  int outages;
  EXPECT_THAT(ReadAll(Stream().get(), &outages), ElementsAre(1, 2, 3));
  EXPECT_EQ(outages, 2);
  EXPECT_EQ(service_.streams().size(), 6u);
  // 50, 100, 200 and 400 ms, then 50 anew.
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(800));
}

TEST_F(ReconnectTest, TheOutageHasTheServersWords) {
  AppendSteps(1, 1);
  service_.BreakStreamsAfter({1}, {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
  const std::unique_ptr<RecordStream> stream = Stream();
  EXPECT_TRUE(stream->outage().ok());
  Next(stream.get());
  const absl::StatusOr<std::optional<v1::MetricRecord>> nothing = stream->Next(absl::InfiniteFuture());
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_FALSE(nothing->has_value());
  EXPECT_EQ(stream->outage(), absl::UnavailableError("the server is shutting down"));
  AppendSteps(2, 2);
  EXPECT_EQ(Next(stream.get()).sequence(), 2u);
  EXPECT_TRUE(stream->outage().ok());
}

TEST_F(ReconnectTest, EveryWayInWhichACallCanBreakOffCounts) {
  AppendSteps(1, 2);
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 2));
  for (const grpc::Status& status : {grpc::Status(grpc::StatusCode::CANCELLED, ""),
                                     grpc::Status(grpc::StatusCode::INTERNAL, "Received RST_STREAM with error code 2"),
                                     grpc::Status(grpc::StatusCode::UNKNOWN, "Stream removed")}) {
    service_.BreakStreamsAfter({1}, status);
    int outages;
    EXPECT_THAT(ReadAll(Stream().get(), &outages), ElementsAre(1, 2, 3)) << status.error_message();
  }
}

TEST_F(ReconnectTest, WhatTheServerRefusesIsNotAskedAgain) {
  AppendSteps(1, 1);
  for (const grpc::Status& status : {grpc::Status(grpc::StatusCode::INTERNAL, "exception: broken"),
                                     grpc::Status(grpc::StatusCode::DATA_LOSS, "its end is not recorded")}) {
    const size_t calls = service_.streams().size();
    service_.BreakStreamsAfter({1}, status);
    const std::unique_ptr<RecordStream> stream = Stream();
    Next(stream.get());
    const absl::Status error = stream->Next(absl::InfiniteFuture()).status();
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(status.error_code()));
    EXPECT_EQ(std::string(error.message()), status.error_message());
    EXPECT_EQ(service_.streams().size(), calls + 1);
  }
}

TEST_F(ReconnectTest, WithoutAReconnectTimeNothingIsRepeated) {
  options_.reconnect_timeout = absl::ZeroDuration();
  const Client client(options_);
  AppendSteps(1, 1);
  service_.BreakStreamsAfter({1});
  v1::StreamMetricsRequest request;
  request.set_job_id("a");
  const std::unique_ptr<RecordStream> stream = client.StreamMetrics(request);
  Next(stream.get());
  EXPECT_EQ(stream->Next(absl::InfiniteFuture()).status(), absl::UnavailableError("draining"));
  EXPECT_EQ(service_.streams().size(), 1u);
  service_.FailCalls(1, /*after_effect=*/false);
  EXPECT_EQ(client.GetJob("a").status(), absl::UnavailableError("draining"));
  EXPECT_EQ(service_.calls(), 1);
}

TEST_F(ReconnectTest, CallsThatChangeAJobMayBeRepeated) {
  service_.FailCalls(1, /*after_effect=*/true);
  absl::StatusOr<v1::Job> job = client_.Pause("a", absl::Seconds(30));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::PAUSED);
  service_.FailCalls(1, /*after_effect=*/true);
  job = client_.Resume("a");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::QUEUED);
  service_.FailCalls(1, /*after_effect=*/true);
  EXPECT_EQ(client_.DeleteJob("a"), absl::OkStatus());
  EXPECT_THAT(service_.controls(), ElementsAre("pause a", "pause a", "resume a", "resume a", "rm a", "rm a"));
  // One that was not there to begin with.
  EXPECT_EQ(client_.DeleteJob("a"), absl::NotFoundError("no job a"));
}

}  // namespace
}  // namespace lenet
