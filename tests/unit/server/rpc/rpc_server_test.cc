// The server's limits, and what becomes of connections on which nothing comes.
#include "server/rpc/rpc_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

// Two endless jobs' worth of devices, whose first steps wait for a gate.
ServerUnderTestOptions Gated(Gate* gate) {
  ServerUnderTestOptions options;
  options.script = [gate](int) { return FakeScript{.on_enqueue = [gate](int, const StepChunk&) { gate->Wait(); }}; };
  return options;
}

class LimitsTest : public RpcTest {
 protected:
  LimitsTest() : LimitsTest(std::make_unique<Gate>()) {}
  ~LimitsTest() override { gate_->Open(); }

  explicit LimitsTest(std::unique_ptr<Gate> gate)
      : RpcTest(Gated(gate.get()), {.limits = {.max_calls_per_client = 2, .max_streams_per_client = 1}}),
        gate_(std::move(gate)) {}

  std::unique_ptr<Gate> gate_;
};

TEST_F(LimitsTest, CallsBeyondTheLimitAreRefusedAtOnce) {
  const std::string id = StartJob(0, 1);
  server_.AwaitState(id, v1::RUNNING);
  std::vector<std::thread> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.emplace_back([&] { EXPECT_TRUE(Stop(id, v1::StopRequest::CHECKPOINT, /*wait=*/true).ok()); });
  }
  const auto stops = [&] {
    int64_t calls = 0;
    for (const RpcMethodCounters& method : rpc_->counters().methods()) {
      if (method.name.method == "Stop") calls += method.in_flight;
    }
    return calls;
  };
  ASSERT_TRUE(Eventually([&] { return stops() == 2; }));
  v1::Job job;
  // A call counts for a moment after its client has the answer.
  const auto is_refused = [&](const std::string& why) {
    const grpc::Status refused = GetJob(id, &job);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    return refused.error_message() == why;
  };
  EXPECT_TRUE(Eventually([&] {
    return is_refused("3 calls of 127.0.0.1 are being answered; the limit is 2 (limits.max_calls_per_client)");
  }));
  rpc_->SetLimits({.max_calls = 2});
  EXPECT_TRUE(Eventually([&] { return is_refused("3 calls are being answered; the limit is 2 (limits.max_calls)"); }));
  rpc_->SetLimits({.max_calls = 3});
  EXPECT_TRUE(Eventually([&] { return GetJob(id, &job).ok(); }));
  gate_->Open();
  for (std::thread& thread : waiting) thread.join();
}

struct GateAndFolder {
  Gate gate;
  TempFolder folder;
};

class UnixLimitsTest : private GateAndFolder, public RpcTest {
 protected:
  UnixLimitsTest()
      : RpcTest(Gated(&gate), {.listen = {absl::StrCat("unix:", (folder / "socket").string())},
                               .limits = {.max_calls_per_client = 1}}) {}
  ~UnixLimitsTest() override { OpenGate(); }

  void OpenGate() { gate.Open(); }
};

TEST_F(UnixLimitsTest, CallsCountForTheirUser) {
  const std::string id = StartJob(0, 1);
  server_.AwaitState(id, v1::RUNNING);
  const auto in_flight = [&] {
    int64_t calls = 0;
    for (const RpcMethodCounters& method : rpc_->counters().methods()) calls += method.in_flight;
    return calls;
  };
  // Each call has room once the one before has left.
  EXPECT_TRUE(Eventually([&] { return in_flight() == 0; }));
  std::thread waiting([&] { EXPECT_TRUE(Stop(id, v1::StopRequest::CHECKPOINT, /*wait=*/true).ok()); });
  EXPECT_TRUE(Eventually([&] { return in_flight() == 1; }));
  v1::Job job;
  EXPECT_EQ(GetJob(id, &job).error_message(),
            absl::StrCat("2 calls of unix:", ::geteuid(),
                         " are being answered; the limit is 1 (limits.max_calls_per_client)"));
  OpenGate();
  waiting.join();
}

TEST_F(LimitsTest, StreamsOfAClientHaveALimit) {
  grpc::ClientContext first_context;
  SetDeadline(&first_context);
  const auto first = stub_->WatchJobs(&first_context, {});
  v1::WatchJobsResponse response;
  ASSERT_TRUE(first->Read(&response));
  const auto watch = [&] {
    grpc::ClientContext context;
    SetDeadline(&context);
    const auto stream = stub_->WatchJobs(&context, {});
    if (stream->Read(&response)) context.TryCancel();
    return stream->Finish();
  };
  const grpc::Status refused = watch();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.error_message(),
            "client \"127.0.0.1\" has 1 streams open; the limit is 1 (limits.max_streams_per_client)");
  rpc_->SetLimits({.max_streams = 1});
  EXPECT_EQ(watch().error_message(), "1 streams are open; the limit is 1 (limits.max_streams)");
  rpc_->SetLimits({});
  EXPECT_EQ(watch().error_code(), grpc::StatusCode::CANCELLED);
  first_context.TryCancel();
}

// A client that speaks no more HTTP/2 than it is told to.
class RawClient {
 public:
  explicit RawClient(const std::string& address)
      : socket_(Descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}) {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    sockaddr_in to = {.sin_family = AF_INET,
                      .sin_port = htons(static_cast<in_port_t>(port)),
                      .sin_addr = {htonl(INADDR_LOOPBACK)},
                      .sin_zero = {}};
    EXPECT_EQ(::connect(socket_.get().number, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }

  // The preface, and settings that change nothing.
  void Greet() {
    const absl::string_view preface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
    EXPECT_EQ(::send(socket_.get().number, preface.data(), preface.size(), MSG_NOSIGNAL), 33);
  }

  // Reads, and answers nothing, until the server closes the connection; false if it does not in so long.
  bool ClosedWithin(milliseconds time) {
    const auto deadline = steady_clock::now() + time;
    for (;;) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
      pollfd wait = {.fd = socket_.get().number, .events = POLLIN, .revents = 0};
      if (left.count() < 0 || ::poll(&wait, 1, static_cast<int>(left.count())) == 0) return false;
      char bytes[512];
      if (::recv(socket_.get().number, bytes, sizeof(bytes), 0) <= 0) return true;
    }
  }

 private:
  UniqueDescriptor socket_;
};

constexpr milliseconds kSoon(200);

class QuietTest : public RpcTest {
 protected:
  // `timeout`: for the answer to the server's question; a busy machine's clients may need long.
  explicit QuietTest(milliseconds timeout = kSoon)
      : RpcTest(Paced(), {.keepalive = kSoon, .keepalive_timeout = timeout, .min_client_ping = kSoon / 2}) {}
};

class PatientQuietTest : public QuietTest {
 protected:
  PatientQuietTest() : QuietTest(kPatience) {}
};

TEST_F(QuietTest, AClientThatGivesNoSignOfLifeLosesItsConnection) {
  RawClient client(rpc_->addresses().front());
  client.Greet();
  const auto begin = steady_clock::now();
  EXPECT_TRUE(client.ClosedWithin(kPatience));
  EXPECT_GE(steady_clock::now() - begin, kSoon);
}

TEST_F(PatientQuietTest, ClientsThatAskForOneKeepTheirs) {
  // One that asks at half the rate that is allowed, and one that never does, as is gRPC's default.
  for (const int every : {static_cast<int>(kSoon.count()), 0}) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    if (every != 0) {
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, every);
      arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
      arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    }
    const auto channel =
        grpc::CreateCustomChannel(rpc_->addresses().front(), grpc::InsecureChannelCredentials(), arguments);
    const auto stub = v1::TrainingService::NewStub(channel);
    grpc::ClientContext context;
    SetDeadline(&context);
    // Of which nothing comes.
    const auto watch = stub->WatchJobs(&context, {});
    v1::WatchJobsResponse response;
    ASSERT_TRUE(watch->Read(&response));
    EXPECT_FALSE(channel->WaitForStateChange(GRPC_CHANNEL_READY, std::chrono::system_clock::now() + 10 * kSoon));
    const std::string id = StartJob(1);
    const auto has_job = [&] {
      return std::any_of(response.jobs().begin(), response.jobs().end(),
                         [&](const v1::Job& job) { return job.id() == id; });
    };
    while (!has_job()) ASSERT_TRUE(watch->Read(&response));
    context.TryCancel();
  }
}

class ConnectionsTest : public RpcTest {};

TEST_F(ConnectionsTest, ThoseBeyondAClientsLimitAreClosedAtOnce) {
  rpc_->SetLimits({.max_connections_per_client = 2});
  StartJob(1);  // the first connection
  RawClient second(rpc_->addresses().front());
  ASSERT_TRUE(rpc_->AcceptResponds(steady_clock::now() + kPatience));
  RawClient third(rpc_->addresses().front());
  EXPECT_TRUE(third.ClosedWithin(kPatience));
  rpc_->SetLimits({.max_connections_per_client = 3});
  RawClient fourth(rpc_->addresses().front());
  EXPECT_FALSE(fourth.ClosedWithin(kSoon / 2));
}

TEST_F(ConnectionsTest, AClientThatCancelsTooManyCallsAtOnceLosesItsConnection) {
  rpc_->SetLimits({.max_resets_per_client = 10});
  const auto connected = [&] {
    RawClient client(rpc_->addresses().front());
    return !client.ClosedWithin(kSoon / 2);
  };
  const auto cancel_some = [&](milliseconds after) {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchJobsResponse>>> watches;
    for (int i = 0; i < 11; ++i) {
      SetDeadline(contexts.emplace_back(std::make_unique<grpc::ClientContext>()).get());
      watches.push_back(stub_->WatchJobs(contexts.back().get(), {}));
      v1::WatchJobsResponse response;
      EXPECT_TRUE(watches.back()->Read(&response));
    }
    std::this_thread::sleep_for(after);
    for (const auto& context : contexts) context->TryCancel();
    for (const auto& watch : watches) EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
  };
  cancel_some(milliseconds(1100));  // which is not at once
  EXPECT_TRUE(connected());
  cancel_some(milliseconds(0));
  EXPECT_TRUE(Eventually([&] { return !connected(); }));
}

class IdleTest : public RpcTest {
 protected:
  IdleTest() : RpcTest(Paced(), {.limits = {.max_idle_time = kSoon}}) {}
};

TEST_F(IdleTest, AConnectionWithoutACallIsClosedAndOneWithAStreamIsNot) {
  const auto channel = [&] {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(rpc_->addresses().front(), grpc::InsecureChannelCredentials(), arguments);
  };
  const auto watching = channel();
  const auto stub = v1::TrainingService::NewStub(watching);
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto watch = stub->WatchJobs(&context, {});
  v1::WatchJobsResponse response;
  ASSERT_TRUE(watch->Read(&response));

  const auto idle = channel();
  const auto deadline = std::chrono::system_clock::now() + kPatience;
  ASSERT_TRUE(idle->WaitForConnected(deadline));
  EXPECT_TRUE(idle->WaitForStateChange(GRPC_CHANNEL_READY, deadline));
  EXPECT_FALSE(watching->WaitForStateChange(GRPC_CHANNEL_READY, std::chrono::system_clock::now() + 5 * kSoon));
  context.TryCancel();
}

class SmallRequestsTest : public RpcTest {
 protected:
  SmallRequestsTest() : RpcTest(Paced(), {.limits = {.max_request_bytes = 1 << 16}}) {}
};

TEST_F(SmallRequestsTest, TheErrorHasTheSizeAndTheBound) {
  v1::StartRequest request = ServerUnderTest::Request(10);
  request.set_initial_weights(std::string(1 << 16, 'x'));
  v1::StartResponse response;
  const grpc::Status refused = Start(request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("vs. 65536"));
}

}  // namespace
}  // namespace lenet
