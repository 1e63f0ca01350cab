// What the server counts of its calls, seen from a client.
#include "server/rpc/call_meter.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "grpcpp/generic/generic_stub.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace lenet {
namespace {

class CallMeterTest : public RpcTest {
 protected:
  const RpcMethodCounters& Of(const std::string& method) {
    for (const RpcMethodCounters& counters : rpc_->counters().methods()) {
      if (counters.name.method == method) return counters;
    }
    ADD_FAILURE() << method << " is not served";
    return rpc_->counters().methods().front();
  }
  uint64_t Handled(const std::string& method, grpc::StatusCode code) {
    return Of(method).handled[static_cast<size_t>(code)].value();
  }
  uint64_t Timed(const std::string& method) {
    const std::vector<uint64_t> counts = Of(method).handling.Get().counts;
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  }
};

TEST_F(CallMeterTest, EveryMethodOfTheServiceIsThere) {
  std::set<std::string> methods;
  for (const RpcMethodName& name : ServedMethods()) methods.insert(name.service + "/" + name.method);
  for (const char* method : {"Start", "Stop", "Pause", "Resume", "GetJob", "ListJobs", "StreamMetrics", "WatchJobs"}) {
    EXPECT_TRUE(methods.contains(std::string("lenet.v1.TrainingService/") + method)) << method;
  }
  EXPECT_TRUE(Of("StreamMetrics").name.streams);
  EXPECT_TRUE(Of("WatchJobs").name.streams);
  EXPECT_FALSE(Of("Start").name.streams);
}

TEST_F(CallMeterTest, UnaryCallsAreCountedByStatusAndTimed) {
  const std::string id = StartJob(5);
  v1::Job job;
  ASSERT_TRUE(GetJob(id, &job).ok());
  ASSERT_TRUE(GetJob(id, &job).ok());
  ASSERT_EQ(GetJob("0000000000000000", &job).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_EQ(GetJob("", &job).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Of("GetJob").started.value(), 4u);
  EXPECT_EQ(Handled("GetJob", grpc::StatusCode::OK), 2u);
  EXPECT_EQ(Handled("GetJob", grpc::StatusCode::NOT_FOUND), 1u);
  EXPECT_EQ(Handled("GetJob", grpc::StatusCode::INVALID_ARGUMENT), 1u);
  EXPECT_EQ(Timed("GetJob"), 4u);
  EXPECT_EQ(Handled("Start", grpc::StatusCode::OK), 1u);
  EXPECT_EQ(Timed("Start"), 1u);
  EXPECT_TRUE(Eventually([&] { return Of("GetJob").in_flight == 0 && Of("Start").in_flight == 0; }));
}

TEST_F(CallMeterTest, AStopThatWaitsIsCountedOnce) {
  const std::string id = StartJob();
  server_.AwaitStep(id, 1);
  ASSERT_TRUE(Stop(id, v1::StopRequest::CHECKPOINT, /*wait=*/true).ok());
  EXPECT_EQ(Handled("Stop", grpc::StatusCode::OK), 1u);
  EXPECT_EQ(Timed("Stop"), 1u);
  EXPECT_TRUE(Eventually([&] { return Of("Stop").in_flight == 0; }));
}

TEST_F(CallMeterTest, StreamsAreInFlightWhileTheyAreOpenAndTheirBytesAreCounted) {
  const std::string id = StartJob();
  v1::StreamMetricsRequest request;
  request.set_job_id(id);
  std::vector<v1::MetricRecord> records;
  uint64_t received = 0;
  int64_t most_in_flight = 0;
  size_t most_open = 0;
  const grpc::Status status = Stream(request, &records, [&](const v1::StreamMetricsResponse& response) {
    received += response.ByteSizeLong();
    most_in_flight = std::max<int64_t>(most_in_flight, Of("StreamMetrics").in_flight);
    most_open = std::max(most_open, rpc_->stream_load().open);
    if (response.records().rbegin()->has_step_losses()) {
      EXPECT_TRUE(Stop(id, v1::StopRequest::CHECKPOINT, false).ok());
    }
    return true;
  });
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(most_in_flight, 1);
  EXPECT_EQ(most_open, 1u);
  EXPECT_TRUE(Eventually([&] { return Of("StreamMetrics").in_flight == 0 && rpc_->stream_load().open == 0; }));
  EXPECT_GT(received, 0u);
  EXPECT_EQ(rpc_->stream_load().sent_bytes, received);
  EXPECT_EQ(rpc_->stream_load().max_lag, 0u);
  EXPECT_EQ(Handled("StreamMetrics", grpc::StatusCode::OK), 1u);
  EXPECT_EQ(Timed("StreamMetrics"), 0u);
}

TEST_F(CallMeterTest, WhatAStreamHasNotReadYetIsItsLag) {
  const std::string id = StartJob();
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::StreamMetricsRequest request;
  request.set_job_id(id);
  const auto reader = stub_->StreamMetrics(&context, request);
  v1::StreamMetricsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  // Between two of its ticks the log grows.
  uint64_t lag = 0;
  EXPECT_TRUE(Eventually([&] { return (lag = rpc_->stream_load().max_lag) > 0; }));
  EXPECT_LT(lag, 1000u);
  context.TryCancel();
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return Handled("StreamMetrics", grpc::StatusCode::CANCELLED) == 1; }));
}

TEST_F(CallMeterTest, MethodsThatDoNotExistAddNoSeries) {
  const size_t methods = rpc_->counters().methods().size();
  grpc::GenericStub stub(grpc::CreateChannel(rpc_->addresses().front(), grpc::InsecureChannelCredentials()));
  for (const char* path : {"/lenet.v1.TrainingService/Nothing", "/other.Service/Nothing"}) {
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, path, grpc::ByteBuffer(), &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    void* tag = nullptr;
    bool ok = false;
    call->Finish(&response, &status, &tag);
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_EQ(rpc_->counters().methods().size(), methods);
  EXPECT_TRUE(Eventually([&] { return Of("unknown").in_flight == 0; }));
}

}  // namespace
}  // namespace lenet
