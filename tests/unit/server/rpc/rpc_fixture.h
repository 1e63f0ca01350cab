// A gRPC server in this process, on a fake backend, and a client of it.
#ifndef LENET_TESTS_UNIT_SERVER_RPC_RPC_FIXTURE_H_
#define LENET_TESTS_UNIT_SERVER_RPC_RPC_FIXTURE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "lenet/v1/training_service.grpc.pb.h"
#include "server/rpc/rpc_server.h"
#include "tests/support/server_under_test.h"

namespace lenet {

class RpcTest : public ::testing::Test {
 protected:
  explicit RpcTest(ServerUnderTestOptions options = Paced(), RpcServerOptions rpc = {})
      : server_(std::move(options)),
        rpc_(RpcServer::Start(OnAnyPort(std::move(rpc)),
                              {.version = "1.2.3", .backend_reason = "no GPU here", .started_at = absl::Now()},
                              &server_.manager(), &server_.backend(), &server_.catalog())
                 .value()) {
    rpc_->SetServing(true);
    stub_ = NewStub();
  }

  // Unless they say where.
  static RpcServerOptions OnAnyPort(RpcServerOptions options) {
    if (options.listen.empty()) options.listen = {"127.0.0.1:0"};
    return options;
  }

  std::unique_ptr<v1::TrainingService::Stub> NewStub() {
    grpc::ChannelArguments arguments;
    arguments.SetInt("grpc.use_local_subchannel_pool", 1);  // a connection of its own
    return v1::TrainingService::NewStub(
        grpc::CreateCustomChannel(rpc_->addresses().front(), grpc::InsecureChannelCredentials(), arguments));
  }

  static void SetDeadline(grpc::ClientContext* context, std::chrono::milliseconds timeout = kPatience) {
    context->set_deadline(std::chrono::system_clock::now() + timeout);
  }

  grpc::Status Start(const v1::StartRequest& request, v1::StartResponse* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    return stub_->Start(&context, request, response);
  }

  std::string StartJob(int64_t max_steps = 0, int ranks = 2) {
    v1::StartResponse response;
    const grpc::Status status = Start(ServerUnderTest::Request(max_steps, ranks), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job().id();
  }

  grpc::Status Stop(const std::string& id, v1::StopRequest::Mode mode, bool wait, v1::Job* job = nullptr) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::StopRequest request;
    request.set_job_id(id);
    request.set_mode(mode);
    request.set_wait(wait);
    v1::StopResponse response;
    grpc::Status status = stub_->Stop(&context, request, &response);
    if (job != nullptr) *job = response.job();
    return status;
  }

  grpc::Status GetJob(const std::string& id, v1::Job* job) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::GetJobRequest request;
    request.set_job_id(id);
    v1::GetJobResponse response;
    grpc::Status status = stub_->GetJob(&context, request, &response);
    *job = response.job();
    return status;
  }

  // The whole stream; `each` may end it early by false.
  grpc::Status Stream(const v1::StreamMetricsRequest& request, std::vector<v1::MetricRecord>* records,
                      const std::function<bool(const v1::StreamMetricsResponse&)>& each = nullptr) {
    grpc::ClientContext context;
    SetDeadline(&context);
    const auto reader = stub_->StreamMetrics(&context, request);
    v1::StreamMetricsResponse response;
    while (reader->Read(&response)) {
      records->insert(records->end(), response.records().begin(), response.records().end());
      if (each && !each(response)) context.TryCancel();
    }
    return reader->Finish();
  }

  std::vector<v1::MetricRecord> StreamAll(const std::string& id, uint64_t from_sequence = 0) {
    v1::StreamMetricsRequest request;
    request.set_job_id(id);
    request.set_from_sequence(from_sequence);
    std::vector<v1::MetricRecord> records;
    const grpc::Status status = Stream(request, &records);
    EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
    return records;
  }

  ServerUnderTest server_;
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<v1::TrainingService::Stub> stub_;
};

// `records` are those with the sequences first .. last, each once.
inline void ExpectSequences(const std::vector<v1::MetricRecord>& records, uint64_t first, uint64_t last) {
  ASSERT_EQ(records.size(), last - first + 1);
  for (size_t i = 0; i < records.size(); ++i) ASSERT_EQ(records[i].sequence(), first + i);
}

}  // namespace lenet

#endif  // LENET_TESTS_UNIT_SERVER_RPC_RPC_FIXTURE_H_
