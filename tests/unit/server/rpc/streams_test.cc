// StreamMetrics and WatchJobs: order, joining late, reconnecting, cancelling, many and slow readers.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/job_state.h"
#include "tests/support/sanitized.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

using StreamsTest = RpcTest;

v1::StreamMetricsRequest For(const std::string& id) {
  v1::StreamMetricsRequest request;
  request.set_job_id(id);
  return request;
}

TEST_F(StreamsTest, GivesTheWholeLogAndEnds) {
  const std::string id = StartJob(100);
  const std::vector<v1::MetricRecord> live = StreamAll(id);
  ASSERT_FALSE(live.empty());
  ExpectSequences(live, 1, live.size());
  EXPECT_EQ(live.back().terminal().state(), v1::SUCCEEDED);
  std::map<int, int64_t> steps;
  for (const v1::MetricRecord& record : live) {
    for (int i = 0; i < record.step_losses().steps_size(); ++i) {
      EXPECT_EQ(record.step_losses().steps(i), ++steps[record.step_losses().ranks(i)]);
    }
  }
  EXPECT_EQ(steps[0], 100);
  EXPECT_EQ(steps[1], 100);
  // The terminal record is not sent before the job is at its end.
  v1::Job job;
  ASSERT_TRUE(GetJob(id, &job).ok());
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
  EXPECT_EQ(job.last_sequence(), live.size());

  // The same, afterwards.
  const std::vector<v1::MetricRecord> late = StreamAll(id);
  ASSERT_EQ(late.size(), live.size());
  for (size_t i = 0; i < late.size(); ++i) EXPECT_EQ(late[i].SerializeAsString(), live[i].SerializeAsString());
}

TEST_F(StreamsTest, TheFirstLossComesQuickly) {
  StreamAll(StartJob(3));  // everything is warm
  const auto begin = steady_clock::now();
  const std::string id = StartJob();
  milliseconds first(0);
  std::vector<v1::MetricRecord> records;
  const grpc::Status status = Stream(For(id), &records, [&](const v1::StreamMetricsResponse& response) {
    for (const v1::MetricRecord& record : response.records()) {
      if (record.has_step_losses() && first.count() == 0) {
        first = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
        return false;
      }
    }
    return true;
  });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  RecordProperty("first_loss_ms", static_cast<int>(first.count()));
  EXPECT_LT(first, milliseconds(5000));
}

TEST_F(StreamsTest, ReconnectingWithTheNextSequenceMissesAndRepeatsNothing) {
  const std::string id = StartJob(1000);
  std::vector<v1::MetricRecord> records;
  int connections = 0;
  while (records.empty() || !records.back().has_terminal()) {
    v1::StreamMetricsRequest request = For(id);
    request.set_from_sequence(records.empty() ? 0 : records.back().sequence() + 1);
    int responses = 0;
    // Each connection is broken after its second message.
    grpc::ClientContext context;
    const auto reader = stub_->StreamMetrics(&context, request);
    v1::StreamMetricsResponse response;
    while (responses < 2 && reader->Read(&response)) {
      records.insert(records.end(), response.records().begin(), response.records().end());
      ++responses;
    }
    context.TryCancel();
    (void)reader->Finish();
    ++connections;
    ASSERT_LT(connections, 1000);
  }
  EXPECT_GT(connections, 3);
  ExpectSequences(records, 1, records.size());
}

TEST_F(StreamsTest, AnEndedLogFromItsEndOn) {
  const std::string id = StartJob(5);
  const uint64_t last = StreamAll(id).size();
  EXPECT_EQ(StreamAll(id, last).size(), 1u);
  EXPECT_TRUE(StreamAll(id, last + 1).empty());
  EXPECT_TRUE(StreamAll(id, ~uint64_t{0}).empty());
}

TEST_F(StreamsTest, FiltersAreAppliedInReading) {
  const std::string id = StartJob(100);
  const size_t whole = StreamAll(id).size();
  v1::StreamMetricsRequest request = For(id);
  request.add_ranks(1);
  request.set_every_n_steps(10);
  request.add_kinds(v1::STEP_LOSSES);
  std::vector<v1::MetricRecord> records;
  ASSERT_TRUE(Stream(request, &records).ok());
  EXPECT_LT(records.size(), whole);
  std::vector<int64_t> steps;
  for (const v1::MetricRecord& record : records) {
    EXPECT_TRUE(record.has_step_losses() || record.has_terminal());
    for (int rank : record.step_losses().ranks()) EXPECT_EQ(rank, 1);
    steps.insert(steps.end(), record.step_losses().steps().begin(), record.step_losses().steps().end());
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100));
  EXPECT_TRUE(records.back().has_terminal());
}

TEST_F(StreamsTest, Refuses) {
  const std::string id = StartJob(5);
  const auto code = [&](const std::function<void(v1::StreamMetricsRequest*)>& edit) {
    v1::StreamMetricsRequest request = For(id);
    edit(&request);
    std::vector<v1::MetricRecord> records;
    return Stream(request, &records).error_code();
  };
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  EXPECT_EQ(code([](auto* r) { r->set_job_id("nothing"); }), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code([](auto* r) { r->clear_job_id(); }), kInvalid);
  EXPECT_EQ(code([](auto* r) { r->add_ranks(2); }), kInvalid);
  EXPECT_EQ(code([](auto* r) { r->add_ranks(-1); }), kInvalid);
  EXPECT_EQ(code([](auto* r) { r->add_kinds(v1::RECORD_KIND_UNSPECIFIED); }), kInvalid);
  EXPECT_EQ(code([](auto* r) { r->add_kinds(static_cast<v1::RecordKind>(77)); }), kInvalid);
  EXPECT_EQ(code([](auto* r) { r->set_every_n_steps(-1); }), kInvalid);
  EXPECT_EQ(code([](auto* r) { r->set_max_rate(-1); }), kInvalid);
  EXPECT_EQ(code([](auto* r) { r->set_max_rate(1.1e9); }), kInvalid);
  EXPECT_EQ(code([](auto* r) {
              for (int i = 0; i <= 1024; ++i) r->add_ranks(0);
            }),
            kInvalid);
  EXPECT_EQ(code([](auto* r) { r->set_max_rate(std::nan("")); }), kInvalid);
  EXPECT_EQ(code([](auto* r) { r->set_max_rate(std::numeric_limits<double>::infinity()); }), kInvalid);
  EXPECT_EQ(code([](auto*) {}), grpc::StatusCode::OK);
}

TEST_F(StreamsTest, AnOpenStreamIsAcceptedBeforeItHasRecords) {
  const std::string id = StartJob();
  v1::StreamMetricsRequest request = For(id);
  request.add_kinds(v1::EVALUATION);
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto reader = stub_->StreamMetrics(&context, request);
  reader->WaitForInitialMetadata();
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(StreamsTest, ManyStreamsComeAndGo) {
  const std::string id = StartJob();
  server_.AwaitStep(id, 1);
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        // Half of them run into their deadline, half are cancelled.
        const bool cancels = (t + i) % 2 == 0;
        grpc::ClientContext context;
        if (!cancels) SetDeadline(&context, milliseconds(5 * i));
        const auto reader = stub_->StreamMetrics(&context, For(id));
        v1::StreamMetricsResponse response;
        for (int reads = 0; reads < (t + i) % 3 && reader->Read(&response);) ++reads;
        if (cancels) {
          context.TryCancel();
        } else {
          while (reader->Read(&response)) {
          }
        }
        const grpc::StatusCode end = reader->Finish().error_code();
        EXPECT_EQ(end, cancels ? grpc::StatusCode::CANCELLED : grpc::StatusCode::DEADLINE_EXCEEDED);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(StartJob(3, 1).empty());
  v1::Job job;
  ASSERT_TRUE(Stop(id, v1::StopRequest::ABORT, true, &job).ok());
}

TEST_F(StreamsTest, AHundredSubscribersKeepOtherCallsQuick) {
  const std::string id = StartJob();
  server_.AwaitStep(id, 1);
  constexpr int kSubscribers = 100;
  std::vector<std::unique_ptr<v1::TrainingService::Stub>> stubs(10);
  for (auto& stub : stubs) stub = NewStub();
  std::vector<std::vector<v1::MetricRecord>> records(kSubscribers);
  std::vector<std::thread> threads;
  threads.reserve(kSubscribers);
  for (int i = 0; i < kSubscribers; ++i) {
    threads.emplace_back([&, i] {
      grpc::ClientContext context;
      const auto reader = stubs[static_cast<size_t>(i % 10)]->StreamMetrics(&context, For(id));
      v1::StreamMetricsResponse response;
      auto& mine = records[static_cast<size_t>(i)];
      while (reader->Read(&response)) mine.insert(mine.end(), response.records().begin(), response.records().end());
      EXPECT_TRUE(reader->Finish().ok());
    });
  }
  std::vector<milliseconds> times;
  for (int i = 0; i < 200; ++i) {
    const auto begin = steady_clock::now();
    v1::Job job;
    EXPECT_TRUE(GetJob(id, &job).ok());
    times.push_back(std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin));
    std::this_thread::sleep_for(milliseconds(5));
  }
  std::sort(times.begin(), times.end());
  RecordProperty("median_ms", static_cast<int>(times[100].count()));
  RecordProperty("p99_ms", static_cast<int>(times[198].count()));
  EXPECT_LT(times[190], milliseconds(50));
  ASSERT_TRUE(Stop(id, v1::StopRequest::CHECKPOINT, true).ok());
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : records) {
    ASSERT_FALSE(mine.empty());
    ExpectSequences(mine, 1, records[0].size());
    EXPECT_TRUE(mine.back().has_terminal());
  }
}

class SmallLogTest : public RpcTest {
 protected:
  static constexpr size_t kRecordBytes = 100000;
#ifdef LENET_SANITIZED
  static constexpr bool kMemoryTells = false;  // freed memory is kept back
#else
  static constexpr bool kMemoryTells = true;
#endif

  static ServerUnderTestOptions SmallLog() {
    ServerUnderTestOptions options = Paced();
    options.store.max_log_bytes = 1 << 20;
    return options;
  }

  static int64_t ResidentBytes() {
    std::ifstream statm("/proc/self/statm");
    int64_t pages = 0;
    statm >> pages >> pages;
    return pages * 4096;
  }

  // Megabytes of records, more than the log keeps.
  void Fill(const std::string& id, int megabytes) {
    for (int i = 0; i < megabytes; ++i) {
      std::vector<v1::MetricRecord> records(10);
      for (v1::MetricRecord& record : records) record.mutable_warning()->set_message(std::string(kRecordBytes, 'x'));
      ASSERT_TRUE(server_.store().AppendRecords(id, records).ok());
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  SmallLogTest() : RpcTest(SmallLog()) {}
};

TEST_F(SmallLogTest, AReaderThatStandsStillCostsNothingAndIsToldOfWhatItMissed) {
  const std::string id = StartJob();
  grpc::ClientContext context;
  const auto reader = stub_->StreamMetrics(&context, For(id));
  v1::StreamMetricsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  const uint64_t last_read = response.records(response.records_size() - 1).sequence();
  Fill(id, 40);  // what the connection holds, and then some
  const int64_t before = ResidentBytes();
  Fill(id, 80);
  if (kMemoryTells) {
    EXPECT_LT(ResidentBytes() - before, 20 << 20);
  }
  ASSERT_TRUE(Stop(id, v1::StopRequest::ABORT, true).ok());

  uint64_t next = last_read + 1;
  uint64_t truncated = 0;
  bool ended = false;
  while (reader->Read(&response)) {
    for (const v1::MetricRecord& record : response.records()) {
      if (record.has_truncated()) {
        truncated += record.truncated().count();
        next += record.truncated().count();
        EXPECT_EQ(record.sequence() + 1, next);
      } else {
        EXPECT_EQ(record.sequence(), next++);
      }
      ended = record.has_terminal();
    }
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(ended);
  EXPECT_GT(truncated, 0u);
}

class FewStreamsTest : public RpcTest {
 protected:
  FewStreamsTest() : RpcTest(Paced(), {.limits = {.max_streams = 2}}) {}
};

TEST_F(FewStreamsTest, TheNumberOfStreamsHasALimit) {
  const std::string id = StartJob();
  grpc::ClientContext contexts[3];
  std::unique_ptr<grpc::ClientReader<v1::StreamMetricsResponse>> readers[3];
  v1::StreamMetricsResponse response;
  for (int i : {0, 1}) {
    readers[i] = stub_->StreamMetrics(&contexts[i], For(id));
    ASSERT_TRUE(readers[i]->Read(&response));
  }
  readers[2] = stub_->StreamMetrics(&contexts[2], For(id));
  EXPECT_FALSE(readers[2]->Read(&response));
  const grpc::Status refused = readers[2]->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), ::testing::HasSubstr("limit is 2"));
  contexts[0].TryCancel();
  EXPECT_EQ(readers[0]->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // There is room again, as soon as the server has seen the end.
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext context;
    const auto reader = stub_->StreamMetrics(&context, For(id));
    const bool accepted = reader->Read(&response);
    context.TryCancel();
    (void)reader->Finish();
    return accepted;
  }));
  contexts[1].TryCancel();
  (void)readers[1]->Finish();
}

TEST_F(StreamsTest, WatchJobsGivesAllThenEachChange) {
  std::set<std::string> known;
  for (int i = 0; i < 3; ++i) known.insert(StartJob(3));
  ASSERT_TRUE(server_.manager().WaitIdle(steady_clock::now() + kPatience));

  grpc::ClientContext context;
  SetDeadline(&context);
  const auto reader = stub_->WatchJobs(&context, {});
  v1::WatchJobsResponse response;
  std::set<std::string> snapshot;
  do {
    ASSERT_TRUE(reader->Read(&response));
    for (const v1::Job& job : response.jobs()) snapshot.insert(job.id());
  } while (!response.snapshot_complete());
  EXPECT_EQ(snapshot, known);

  const std::string id = StartJob(200);
  std::vector<v1::JobState> states;
  while (states.empty() || !IsTerminal(states.back())) {
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_FALSE(response.snapshot_complete());
    for (const v1::Job& job : response.jobs()) {
      EXPECT_EQ(job.id(), id);
      states.push_back(job.state());
    }
  }
  EXPECT_GE(states.size(), 2u);
  EXPECT_EQ(states.back(), v1::SUCCEEDED);
  EXPECT_TRUE(std::is_sorted(states.begin(), states.end()));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(StreamsTest, WatchJobsOfNoJobsCompletesItsSnapshotAtOnce) {
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto reader = stub_->WatchJobs(&context, {});
  v1::WatchJobsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_TRUE(response.snapshot_complete());
  EXPECT_EQ(response.jobs_size(), 0);
  context.TryCancel();
  (void)reader->Finish();
}

}  // namespace
}  // namespace lenet
