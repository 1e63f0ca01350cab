// The calls that give one answer: what they answer and every status they end with.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/job_state.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using CallsTest = RpcTest;

TEST_F(CallsTest, StartGivesTheJobAndItRuns) {
  v1::StartRequest request = ServerUnderTest::Request(10, 2);
  request.set_name("a job");
  request.set_request_id("once");
  v1::StartResponse response;
  ASSERT_TRUE(Start(request, &response).ok());
  EXPECT_EQ(response.job().name(), "a job");
  EXPECT_EQ(response.job().resolved().total_steps(), 10);
  v1::StartResponse again;
  ASSERT_TRUE(Start(request, &again).ok());
  EXPECT_EQ(again.job().id(), response.job().id());
  request.mutable_spec()->set_seed(2);
  EXPECT_EQ(Start(request, &again).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  StreamAll(response.job().id());
  v1::Job job;
  ASSERT_TRUE(GetJob(response.job().id(), &job).ok());
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
}

TEST_F(CallsTest, StartRefusesEveryBadSpecAndTheServerGoesOn) {
  struct Case {
    grpc::StatusCode code;
    std::string words;
    std::function<void(v1::TrainingSpec*)> edit;
  };
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  const std::vector<Case> cases = {
      {kInvalid, "spec.epochs",
       [](auto* s) {
         s->clear_max_steps();
         s->set_epochs(0);
       }},
      {kInvalid, "spec.max_steps", [](auto* s) { s->set_max_steps(-1); }},
      {kInvalid, "spec.max_steps", [](auto* s) { s->set_max_steps(std::numeric_limits<int64_t>::max()); }},
      {kInvalid, "spec.batch_size", [](auto* s) { s->set_batch_size(0); }},
      {kInvalid, "spec.batch_size", [](auto* s) { s->set_batch_size(1000); }},
      {kInvalid, "spec.batch_size", [](auto* s) { s->set_batch_size(std::numeric_limits<int32_t>::max()); }},
      {kInvalid, "spec.learning_rate", [](auto* s) { s->set_learning_rate(std::nan("")); }},
      {kInvalid, "spec.learning_rate", [](auto* s) { s->set_learning_rate(std::numeric_limits<double>::infinity()); }},
      {grpc::StatusCode::NOT_FOUND, "spec.dataset", [](auto* s) { s->set_dataset("unknown"); }},
      {kInvalid, "spec.dataset", [](auto* s) { s->set_dataset("../x"); }},
      {kInvalid, "spec.dataset", [](auto* s) { s->clear_dataset(); }},
      {grpc::StatusCode::FAILED_PRECONDITION, "damaged", [](auto* s) { s->set_dataset("broken"); }},
      {kInvalid, "spec.ranks", [](auto* s) { s->set_ranks(3); }},
      {kInvalid, "spec.ranks", [](auto* s) { s->set_ranks(std::numeric_limits<int32_t>::min()); }},
      {kInvalid, "spec.device_ids",
       [](auto* s) {
         s->set_ranks(0);
         s->add_device_ids(1);
         s->add_device_ids(1);
       }},
      {kInvalid, "spec.device_ids",
       [](auto* s) {
         s->set_ranks(0);
         s->add_device_ids(2);
       }},
      {kInvalid, "spec.net", [](auto* s) { s->set_net("resnet"); }},
      {kInvalid, "spec.net", [](auto* s) { s->set_dataset("tiny-images"); }},
      {kInvalid, "spec.init.kind", [](auto* s) { s->mutable_init()->set_kind(static_cast<v1::Init::Kind>(50)); }},
      {kInvalid, "spec.optimizer.kind",
       [](auto* s) { s->mutable_optimizer()->set_kind(static_cast<v1::Optimizer::Kind>(50)); }},
      {kInvalid, "spec.schedule.kind",
       [](auto* s) { s->mutable_schedule()->set_kind(static_cast<v1::Schedule::Kind>(50)); }},
      {kInvalid, "spec.nan_policy", [](auto* s) { s->set_nan_policy(static_cast<v1::NanPolicy>(50)); }},
      {kInvalid, "spec.precision", [](auto* s) { s->set_precision(v1::PRECISION_TF32); }},
  };
  for (const Case& bad : cases) {
    v1::StartRequest request = ServerUnderTest::Request(10);
    bad.edit(request.mutable_spec());
    v1::StartResponse response;
    const grpc::Status status = Start(request, &response);
    EXPECT_EQ(status.error_code(), bad.code) << request.ShortDebugString() << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(bad.words));
  }
  v1::StartResponse response;
  EXPECT_EQ(Start({}, &response).error_code(), kInvalid);
  v1::StartRequest named = ServerUnderTest::Request(10);
  named.set_name(std::string(65, 'n'));
  EXPECT_EQ(Start(named, &response).error_code(), kInvalid);
  named = ServerUnderTest::Request(10);
  named.set_request_id(std::string(129, 'r'));
  EXPECT_EQ(Start(named, &response).error_code(), kInvalid);

  v1::Job job;
  ASSERT_TRUE(Stop(StartJob(5), v1::StopRequest::CHECKPOINT, true, &job).ok());
  EXPECT_TRUE(IsTerminal(job.state()));
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(stub_->ListJobs(&context, {}, &jobs).ok());
  EXPECT_EQ(jobs.jobs_size(), 1);
}

TEST_F(CallsTest, ARequestThatIsTooLargeIsRefused) {
  v1::StartRequest request = ServerUnderTest::Request(10);
  request.set_initial_weights(std::string(5 << 20, 'x'));
  v1::StartResponse response;
  EXPECT_EQ(Start(request, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(StartJob(5).empty());
}

TEST_F(CallsTest, StopAnswersAtOnceOrAtTheEnd) {
  const std::string id = StartJob();
  server_.AwaitStep(id, 1);
  v1::Job job;
  ASSERT_TRUE(Stop(id, v1::StopRequest::MODE_UNSPECIFIED, false, &job).ok());
  EXPECT_TRUE(job.state() == v1::STOPPING || job.state() == v1::STOPPED);
  ASSERT_TRUE(Stop(id, v1::StopRequest::CHECKPOINT, true, &job).ok());
  EXPECT_EQ(job.state(), v1::STOPPED);
  EXPECT_FALSE(job.checkpoint().empty());
  ASSERT_TRUE(Stop(id, v1::StopRequest::ABORT, true, &job).ok());
  EXPECT_EQ(job.state(), v1::STOPPED);
}

TEST_F(CallsTest, StopRefuses) {
  const std::string id = StartJob(5);
  EXPECT_EQ(Stop("", v1::StopRequest::ABORT, false).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Stop("nothing", v1::StopRequest::ABORT, true).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Stop(id, static_cast<v1::StopRequest::Mode>(9), false).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CallsTest, AWaitThatTheClientGivesUpLeavesTheJobStopping) {
  const std::string id = StartJob();
  server_.AwaitStep(id, 1);
  // Many that give up, among one that waits.
  std::thread patient([&] {
    v1::Job job;
    EXPECT_TRUE(Stop(id, v1::StopRequest::CHECKPOINT, true, &job).ok());
    EXPECT_EQ(job.state(), v1::STOPPED);
  });
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    SetDeadline(&context, std::chrono::milliseconds(i));
    v1::StopRequest request;
    request.set_job_id(id);
    request.set_wait(true);
    v1::StopResponse response;
    const grpc::Status status = stub_->Stop(&context, request, &response);
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  }
  patient.join();
}

TEST_F(CallsTest, GetJobRefuses) {
  v1::Job job;
  EXPECT_EQ(GetJob("", &job).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(GetJob("nothing", &job).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(CallsTest, ListJobsPagesNewestFirst) {
  std::vector<std::string> ids(5);
  for (std::string& id : ids) id = StartJob(3);
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::vector<std::string> listed;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    ASSERT_TRUE(stub_->ListJobs(&context, request, &response).ok());
    for (const v1::Job& job : response.jobs()) listed.push_back(job.id());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, std::vector<std::string>(ids.rbegin(), ids.rend()));
}

TEST_F(CallsTest, ListJobsRefuses) {
  const auto list = [this](const std::function<void(v1::ListJobsRequest*)>& edit) {
    v1::ListJobsRequest request;
    edit(&request);
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    return stub_->ListJobs(&context, request, &response).error_code();
  };
  EXPECT_EQ(list([](auto* r) { r->set_page_size(-1); }), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(list([](auto* r) { r->set_page_size(1001); }), grpc::StatusCode::INVALID_ARGUMENT);
  for (const std::string& token : {std::string("/../"), std::string("abc"), std::string(17, '0'), std::string(16, 'A'),
                                   std::string(100'000, '0'), std::string("000000000000000\0", 16)}) {
    EXPECT_EQ(list([&](auto* r) { r->set_page_token(token); }), grpc::StatusCode::INVALID_ARGUMENT) << token;
  }
  EXPECT_EQ(list([](auto* r) { r->set_page_token(std::string(16, '0')); }), grpc::StatusCode::OK);
  EXPECT_EQ(list([](auto* r) { r->add_states(static_cast<v1::JobState>(99)); }), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(list([](auto* r) { r->add_states(v1::JOB_STATE_UNSPECIFIED); }), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(list([](auto* r) { r->add_states(v1::QUEUED); }), grpc::StatusCode::OK);
}

TEST_F(CallsTest, AnExceptionEndsItsCallAlone) {
  const std::string id = StartJob(5);
  server_.store().throws = true;
  v1::StartRequest request = ServerUnderTest::Request(5);
  request.set_request_id("once");
  v1::StartResponse response;
  EXPECT_EQ(Start(request, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext watch_context;
  SetDeadline(&watch_context);
  const auto watch = stub_->WatchJobs(&watch_context, {});
  v1::WatchJobsResponse change;
  EXPECT_FALSE(watch->Read(&change));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext list_context;
  SetDeadline(&list_context);
  v1::ListJobsResponse jobs;
  EXPECT_EQ(stub_->ListJobs(&list_context, {}, &jobs).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  server_.store().throws = false;
  EXPECT_TRUE(StreamAll(id).back().has_terminal());
  EXPECT_TRUE(Start(request, &response).ok());
}

TEST_F(CallsTest, ListDatasetsTellsWhichAreSound) {
  grpc::ClientContext context;
  v1::ListDatasetsResponse response;
  ASSERT_TRUE(stub_->ListDatasets(&context, {}, &response).ok());
  std::vector<std::string> names;
  for (const v1::DatasetInfo& info : response.datasets()) {
    names.push_back(info.name());
    EXPECT_EQ(info.valid(), info.error().empty()) << info.ShortDebugString();
    EXPECT_THAT(info.path(), HasSubstr(info.name()));
    if (info.name() == "small") {
      EXPECT_EQ(info.height(), 28);
      EXPECT_EQ(info.width(), 28);
      EXPECT_EQ(info.channels(), 1);
      EXPECT_EQ(info.train_images(), 640);
      EXPECT_EQ(info.test_images(), 100);
    }
    EXPECT_EQ(info.valid(), info.name() != "broken");
  }
  EXPECT_THAT(names, ElementsAre("bad-labels", "broken", "small", "tiny-images"));
}

TEST_F(CallsTest, GetServerInfoTellsDevicesAndLoad) {
  const std::string id = StartJob(0, 1);
  server_.AwaitStep(id, 1);
  const std::string queued = StartJob(0, 2);
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(stub_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_EQ(info.backend(), "fake");
  EXPECT_EQ(info.backend_reason(), "no GPU here");
  ASSERT_EQ(info.devices_size(), 2);
  EXPECT_EQ(info.devices(0).job_id(), id);
  EXPECT_EQ(info.devices(1).job_id(), "");
  EXPECT_EQ(info.devices(1).id(), 1);
  EXPECT_EQ(info.devices(1).name(), "Fake");
  EXPECT_EQ(info.devices(1).memory_bytes(), 1 << 30);
  EXPECT_EQ(info.library_versions().at("fakelib"), "1.0");
  EXPECT_EQ(info.queued_jobs(), 1);
  EXPECT_EQ(info.running_jobs(), 1);
  EXPECT_FALSE(info.draining());
  EXPECT_TRUE(info.has_started_at());
  EXPECT_THAT(info.nets(), ::testing::Contains("lenet"));
}

TEST_F(CallsTest, AnAddressInUseIsAClearError) {
  const auto second = RpcServer::Start({.listen = rpc_->addresses()}, {.started_at = absl::Now()}, &server_.manager(),
                                       &server_.backend(), &server_.catalog());
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(rpc_->addresses().front()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("Address already in use"));
  for (const char* listen : {"", "50051", ":50051", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"}) {
    const auto bad = RpcServer::Start({.listen = {listen}}, {.started_at = absl::Now()}, &server_.manager(),
                                      &server_.backend(), &server_.catalog());
    EXPECT_TRUE(absl::IsInvalidArgument(bad.status())) << listen << ": " << bad.status();
  }
  EXPECT_FALSE(StartJob(5).empty());  // the first one is as it was
}

class ColdTest : public RpcTest {
 protected:
  static ServerUnderTestOptions Cold() {
    ServerUnderTestOptions options;
    options.serve = false;
    return options;
  }
  ColdTest() : RpcTest(Cold()) {}
};

TEST_F(ColdTest, StartIsUnavailableUntilTheServerServes) {
  v1::StartResponse response;
  EXPECT_EQ(Start(ServerUnderTest::Request(5), &response).error_code(), grpc::StatusCode::UNAVAILABLE);
  server_.manager().Serve();
  EXPECT_TRUE(Start(ServerUnderTest::Request(5), &response).ok());
}

size_t OpenDescriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST_F(CallsTest, ItsThreadsRespond) {
  using std::chrono::steady_clock;
  const size_t descriptors = OpenDescriptors();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(rpc_->AcceptResponds(steady_clock::now() + kPatience));
    ASSERT_TRUE(rpc_->ExecutorResponds(steady_clock::now() + kPatience));
    ASSERT_TRUE(rpc_->StreamsRespond(steady_clock::now() + kPatience));
    ASSERT_TRUE(rpc_->CallsRespond(steady_clock::now() + kPatience));
  }
  // The connections of its own are closed, if not at once.
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() < descriptors + 10; }));
  rpc_->SetServing(false);
  EXPECT_TRUE(rpc_->CallsRespond(steady_clock::now() + kPatience));  // an answer all the same
  rpc_->Shutdown(steady_clock::now());
  const auto begin = steady_clock::now();
  EXPECT_FALSE(rpc_->CallsRespond(begin + std::chrono::milliseconds(100)));
  EXPECT_FALSE(rpc_->AcceptResponds(begin + std::chrono::milliseconds(100)));
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace lenet
