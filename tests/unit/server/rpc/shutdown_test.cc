// The end of the server, and its health on the way.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class ShutdownTest : public RpcTest {
 protected:
  // What a SIGTERM does.
  void ShutDown() {
    rpc_->SetServing(false);
    server_.manager().BeginDrain();
    EXPECT_TRUE(server_.manager().WaitIdle(steady_clock::now() + kPatience));
    rpc_->Shutdown(steady_clock::now() + std::chrono::seconds(5));
  }

  // grpc.health.v1.Health/Check by hand: the request's field 1 is the service's name (as StringValue's), the answer's
  // field 1 the status (as Int32Value's): 1 SERVING, 2 NOT_SERVING.
  int Health(const std::string& service, grpc::StatusCode* code = nullptr) {
    const auto channel = grpc::CreateChannel(rpc_->addresses().front(), grpc::InsecureChannelCredentials());
    grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value> stub(channel);
    grpc::ClientContext context;
    SetDeadline(&context);
    google::protobuf::StringValue request;
    request.set_value(service);
    google::protobuf::Int32Value response;
    std::atomic<bool> done{false};
    grpc::Status status;
    stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response, [&](grpc::Status result) {
      status = std::move(result);
      done = true;
    });
    EXPECT_TRUE(Eventually([&] { return done.load(); }));
    if (code != nullptr) *code = status.error_code();
    return response.value();
  }
};

TEST_F(ShutdownTest, HealthFollowsTheServer) {
  for (const char* service : {"", "lenet.v1.TrainingService"}) {
    EXPECT_EQ(Health(service), 1);
    rpc_->SetServing(false);
    EXPECT_EQ(Health(service), 2);
    rpc_->SetServing(true);
  }
  grpc::StatusCode code = grpc::StatusCode::OK;
  Health("unknown.Service", &code);
  EXPECT_EQ(code, grpc::StatusCode::NOT_FOUND);
}

TEST_F(ShutdownTest, StreamsGetAllRecordsAndAClearEnd) {
  const std::string running = StartJob();
  server_.AwaitStep(running, 1);
  const std::string queued = StartJob();
  std::vector<std::thread> threads;
  std::vector<std::vector<v1::MetricRecord>> logs(10);
  for (size_t i = 0; i < logs.size(); ++i) {
    threads.emplace_back([&, i] {
      v1::StreamMetricsRequest request;
      request.set_job_id(i % 2 == 0 ? running : queued);
      const grpc::Status status = Stream(request, &logs[i]);
      // The one has ended, the other goes on with the next server.
      EXPECT_EQ(status.error_code(), i % 2 == 0 ? grpc::StatusCode::OK : grpc::StatusCode::UNAVAILABLE);
    });
  }
  std::atomic<bool> watching{false};
  v1::JobState watched = v1::JOB_STATE_UNSPECIFIED;
  threads.emplace_back([&] {
    grpc::ClientContext context;
    const auto reader = stub_->WatchJobs(&context, {});
    v1::WatchJobsResponse response;
    while (reader->Read(&response)) {
      watching = true;
      for (const v1::Job& job : response.jobs()) {
        if (job.id() == running) watched = job.state();
      }
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  });
  std::atomic<bool> waiting{false};
  threads.emplace_back([&] {
    waiting = true;
    v1::Job job;
    EXPECT_TRUE(Stop(running, v1::StopRequest::CHECKPOINT, true, &job).ok());
    EXPECT_EQ(job.state(), v1::STOPPED);
  });
  ASSERT_TRUE(Eventually([&] { return watching && waiting; }));
  std::this_thread::sleep_for(milliseconds(50));
  ShutDown();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(watched, v1::STOPPED);
  for (size_t i = 0; i < logs.size(); ++i) {
    ASSERT_FALSE(logs[i].empty());
    ExpectSequences(logs[i], 1, logs[i].size());
    if (i % 2 == 0) {
      EXPECT_EQ(logs[i].back().terminal().state(), v1::STOPPED);
    } else {
      EXPECT_EQ(logs[i].back().state_change().to(), v1::QUEUED);
    }
  }
}

TEST_F(ShutdownTest, WhileDrainingStartIsUnavailableAndTheRestAnswers) {
  const std::string id = StartJob(5);
  StreamAll(id);
  server_.manager().BeginDrain();
  v1::StartResponse response;
  EXPECT_EQ(Start(ServerUnderTest::Request(5), &response).error_code(), grpc::StatusCode::UNAVAILABLE);
  v1::Job job;
  EXPECT_TRUE(GetJob(id, &job).ok());
  EXPECT_TRUE(StreamAll(id).back().has_terminal());
  ShutDown();
  EXPECT_EQ(GetJob(id, &job).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ShutdownTest, AClientThatDoesNotReadDelaysItByNoMoreThanTheGrace) {
  const std::string id = StartJob();
  // More than what the connection holds, and nobody reads it.
  server_.AwaitStep(id, 1);
  std::vector<v1::MetricRecord> warnings(100);
  for (v1::MetricRecord& warning : warnings) warning.mutable_warning()->set_message(std::string(100000, 'x'));
  ASSERT_TRUE(server_.store().AppendRecords(id, warnings).ok());
  grpc::ClientContext context;
  v1::StreamMetricsRequest request;
  request.set_job_id(id);
  const auto reader = stub_->StreamMetrics(&context, request);
  reader->WaitForInitialMetadata();
  std::this_thread::sleep_for(milliseconds(300));
  rpc_->SetServing(false);
  server_.manager().BeginDrain();
  EXPECT_TRUE(server_.manager().WaitIdle(steady_clock::now() + kPatience));
  const auto begin = steady_clock::now();
  rpc_->Shutdown(begin + milliseconds(500));
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(20));
  v1::StreamMetricsResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(ShutdownTest, WithoutCallsItIsQuick) {
  const auto begin = steady_clock::now();
  ShutDown();
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace lenet
