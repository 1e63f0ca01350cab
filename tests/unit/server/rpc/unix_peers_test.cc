#include "server/rpc/unix_peers.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kFirstUser = 10'000;

// Answers every call with whose it is.
class WhoAmI : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    class Answer : public grpc::ServerGenericBidiReactor {
     public:
      explicit Answer(const std::string& text) {
        const grpc::Slice slice(text);
        answer_ = grpc::ByteBuffer(&slice, 1);
        StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
      }
      void OnDone() override { delete this; }

     private:
      grpc::ByteBuffer answer_;
    };
    return new Answer(CountedClient(*context));
  }
};

// The two ends of a connection.
struct Ends {
  UniqueDescriptor client;
  UniqueDescriptor server;
};

Ends Connected() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {UniqueDescriptor(Descriptor{ends[0]}), UniqueDescriptor(Descriptor{ends[1]})};
}

// As that user makes it, which takes root.
Ends ConnectedAs(uid_t user) {
  Ends ends;
  // The system call is for its thread alone, unlike the library's function.
  std::thread([&] {
    EXPECT_EQ(::syscall(SYS_setresuid, -1, user, -1), 0);
    ends = Connected();
  }).join();
  return ends;
}

class UnixPeersTest : public ::testing::Test {
 protected:
  UnixPeersTest() {
    grpc::ServerBuilder builder;
    peers_ = std::make_unique<UnixPeers>(&builder, &users_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~UnixPeersTest() override {
    look_up_waits_.Open();
    peers_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  // What the server takes the connection's user for.
  static std::string Ask(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    grpc::CompletionQueue queue;
    const grpc::Slice empty;
    const auto call = stub.PrepareUnaryCall(&context, "/any/Call", grpc::ByteBuffer(&empty, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    grpc::Slice slice;
    if (!queue.Next(&tag, &ok) || !status.ok()) return absl::StrCat("error: ", status.error_message());
    if (!answer.DumpToSingleSlice(&slice).ok()) return "no answer";
    return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
  }

  std::shared_ptr<grpc::Channel> Open(Ends ends) {
    const absl::Status taken = peers_->HandOver(-1, std::move(ends.server));
    EXPECT_TRUE(taken.ok()) << taken;
    return grpc::CreateInsecureChannelFromFd("test", ends.client.release().number);
  }

  std::atomic<bool> look_up_fails_{false};
  uid_t slow_user_ = 0;  // whose look-up waits; 0: nobody's
  Gate look_up_waits_;
  Users users_{[this](uid_t id) -> absl::StatusOr<User> {
    if (slow_user_ != 0 && id == slow_user_) look_up_waits_.Wait();
    if (look_up_fails_) return absl::UnavailableError("the directory is away");
    return User{.id = id};
  }};
  WhoAmI service_;
  std::unique_ptr<UnixPeers> peers_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(UnixPeersTest, ACallIsTheUsersWhoseConnectionItHas) {
  EXPECT_EQ(Ask(Open(Connected())), absl::StrCat("unix:", ::geteuid()));
}

TEST_F(UnixPeersTest, ManyUsersAtOnceAreToldApart) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to connect as others";
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int connection = 0; connection < 32; ++connection) {
    threads.emplace_back([this, user = kFirstUser + static_cast<uid_t>(connection % 8), &wrong] {
      const std::string name = absl::StrCat("unix:", user);
      for (int i = 0; i < 8; ++i) {
        const std::shared_ptr<grpc::Channel> channel = Open(ConnectedAs(user));
        // The first calls of a connection come together.
        std::vector<std::thread> calls;
        for (int call = 0; call < 4; ++call) {
          calls.emplace_back([&] {
            for (int again = 0; again < 5; ++again) wrong += Ask(channel) == name ? 0 : 1;
          });
        }
        for (std::thread& call : calls) call.join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(UnixPeersTest, OneUserTooManyIsRefusedAndTheOthersGoOn) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to connect as others";
  for (uid_t i = 0; i < UnixPeers::kMaxUsers; ++i) {
    ASSERT_TRUE(peers_->HandOver(-1, ConnectedAs(kFirstUser + i).server).ok()) << i;
    ASSERT_TRUE(Eventually([&] { return users_.Knows(kFirstUser + i); }));
  }
  const Ends ends = ConnectedAs(kFirstUser + UnixPeers::kMaxUsers);
  const absl::Status refused = peers_->HandOver(-1, UniqueDescriptor(Descriptor{::dup(ends.server.get().number)}));
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("unix:10256 is one user too many: 256 others"));
  for (const uid_t user : {kFirstUser, kFirstUser + 255}) {
    EXPECT_EQ(Ask(Open(ConnectedAs(user))), absl::StrCat("unix:", user));
  }
}

TEST_F(UnixPeersTest, WhoCannotBeLookedUpIsTurnedAwayUntilTheNextAttempt) {
  look_up_fails_ = true;
  Ends ends = Connected();
  ASSERT_TRUE(peers_->HandOver(-1, std::move(ends.server)).ok());
  pollfd closed = {.fd = ends.client.get().number, .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&closed, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())), 1);
  char byte = 0;
  EXPECT_EQ(::recv(closed.fd, &byte, 1, 0), 0);
  look_up_fails_ = false;
  EXPECT_EQ(Ask(Open(Connected())), absl::StrCat("unix:", ::geteuid()));
}

TEST_F(UnixPeersTest, WhoIsKnownDoesNotWaitForTheLookUpOfAnother) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to connect as others";
  const std::shared_ptr<grpc::Channel> before = Open(Connected());
  EXPECT_EQ(Ask(before), "unix:0");
  slow_user_ = kFirstUser;
  // One whose look-up has begun, if not yet ended, and as many as may wait behind it.
  int waiting = 0;
  absl::Status refused;
  while ((refused = peers_->HandOver(-1, ConnectedAs(kFirstUser).server)).ok() && waiting < 200) ++waiting;
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("100 wait for their users"));
  EXPECT_THAT(waiting, ::testing::AnyOf(100, 101));
  EXPECT_EQ(Ask(Open(Connected())), "unix:0");
  look_up_waits_.Open();
  EXPECT_TRUE(Eventually([&] { return users_.Knows(kFirstUser); }));
  EXPECT_EQ(Ask(Open(ConnectedAs(kFirstUser))), "unix:10000");
}

}  // namespace
}  // namespace lenet
