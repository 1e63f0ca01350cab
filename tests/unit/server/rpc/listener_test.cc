#include "server/rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"
#include "tests/support/temp_folder.h"
#include "trainer/base/log.h"
#include "trainer/base/mutex.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What is sent on a connection comes back by it.
class Echo {
 public:
  static absl::StatusOr<std::unique_ptr<Echo>> Start(const std::string& address) {
    absl::StatusOr<ListenAddress> parsed = ParseListenAddress(address);
    if (!parsed.ok()) return parsed.status();
    absl::StatusOr<std::unique_ptr<Listener>> listener = Listener::Bind(*parsed);
    if (!listener.ok()) return listener.status();
    return std::unique_ptr<Echo>(new Echo(*std::move(listener)));
  }

  Listener& listener() { return *listener_; }
  const std::string& address() const { return listener_->address(); }
  int taken() const { return taken_; }
  int last_nodelay() const { return nodelay_; }
  int last_user_timeout() const { return user_timeout_; }
  int last_flags() const { return flags_; }

 private:
  explicit Echo(std::unique_ptr<Listener> listener) : listener_(std::move(listener)) {
    listener_->Start([this](int, UniqueDescriptor connection) {
      const int fd = connection.get().number;
      int value = 0;
      socklen_t size = sizeof(value);
      if (::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size) == 0) nodelay_ = value;
      if (::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size) == 0) user_timeout_ = value;
      flags_ = ::fcntl(fd, F_GETFL) | (::fcntl(fd, F_GETFD) << 24);
      ::send(fd, "hello", 5, MSG_NOSIGNAL);
      ++taken_;
      return absl::OkStatus();
    });
  }

  std::atomic<int> taken_{0};
  std::atomic<int> nodelay_{-1};
  std::atomic<int> user_timeout_{-1};
  std::atomic<int> flags_{0};
  std::unique_ptr<Listener> listener_;
};

int PortOf(const std::string& address) {
  int port = -1;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
  return port;
}

// Connects to an IP address or a unix socket of this machine; null, with errno, if that fails.
UniqueDescriptor Connect(const std::string& address) {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  const std::string host = address.substr(0, address.rfind(':'));
  if (host == "unix") {
    auto* const name = reinterpret_cast<sockaddr_un*>(&storage);
    name->sun_family = AF_UNIX;
    std::strncpy(name->sun_path, address.c_str() + 5, sizeof(name->sun_path) - 1);
    size = sizeof(*name);
  } else if (host[0] == '[') {
    auto* const name = reinterpret_cast<sockaddr_in6*>(&storage);
    name->sin6_family = AF_INET6;
    name->sin6_port = htons(static_cast<in_port_t>(PortOf(address)));
    ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &name->sin6_addr);
    size = sizeof(*name);
  } else {
    auto* const name = reinterpret_cast<sockaddr_in*>(&storage);
    name->sin_family = AF_INET;
    name->sin_port = htons(static_cast<in_port_t>(PortOf(address)));
    ::inet_pton(AF_INET, host.c_str(), &name->sin_addr);
    size = sizeof(*name);
  }
  UniqueDescriptor socket(Descriptor{::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)});
  if (!socket) return socket;
  const timeval patience = {.tv_sec = kPatience.count(), .tv_usec = 0};
  ::setsockopt(socket.get().number, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (::connect(socket.get().number, reinterpret_cast<const sockaddr*>(&storage), size) != 0) socket.reset();
  return socket;
}

// What the server sends until it closes.
std::string ReadAll(const UniqueDescriptor& socket) {
  std::string all;
  char buffer[64];
  ssize_t got = 0;
  while ((got = ::recv(socket.get().number, buffer, sizeof(buffer), 0)) > 0)
    all.append(buffer, static_cast<size_t>(got));
  return all;
}

std::string Greeting(const std::string& address) {
  const UniqueDescriptor socket = Connect(address);
  return socket ? ReadAll(socket) : std::generic_category().message(errno);
}

bool HasIpv6() { return Echo::Start("[::1]:0").ok(); }

TEST(ParseListenAddressTest, TakesEveryForm) {
  struct Case {
    const char* text;
    const char* host;
    int port;
    const char* unix_path;
  };
  const Case cases[] = {
      {"127.0.0.1:50051", "127.0.0.1", 50051, ""},
      {"localhost:0", "localhost", 0, ""},
      {"host.example:65535", "host.example", 65535, ""},
      {"[::1]:0", "::1", 0, ""},
      {"[fe80::1%eth0]:7", "fe80::1%eth0", 7, ""},
      {"unix:/run/lenetd.sock", "", 0, "/run/lenetd.sock"},
      {"unix:here", "", 0, "here"},
      {"unix:///run/x", "", 0, "///run/x"},
  };
  for (const Case& good : cases) {
    const absl::StatusOr<ListenAddress> address = ParseListenAddress(good.text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->host, good.host);
    EXPECT_EQ(address->port, good.port);
    EXPECT_EQ(address->unix_path, good.unix_path);
  }
}

TEST(ParseListenAddressTest, RefusesOtherForms) {
  const std::string long_path = "unix:/" + std::string(107, 'x');
  const std::pair<const char*, const char*> cases[] = {
      {"", "host:port"},
      {"foo", "host:port"},
      {"50051", "host:port"},
      {":5", "host is empty"},
      {"[]:5", "host is empty"},
      {"1.2.3.4:99999", "99999"},
      {"a:", "port"},
      {"a:x", "port"},
      {"a:-1", "port"},
      {"a:+1", "port"},
      {"a: 1", "port"},
      {"a:5000000000", "port"},
      {"::1:0", "brackets"},
      {"[::1:0", "brackets"},
      {"[localhost]:1", "brackets"},
      {"[::1]", "port"},
      {"unix:", "path is empty"},
      {long_path.c_str(), "107"},
  };
  for (const auto& [text, words] : cases) {
    const absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
    EXPECT_TRUE(absl::IsInvalidArgument(address.status())) << text << ": " << address.status();
    EXPECT_THAT(std::string(address.status().message()), ::testing::AllOf(HasSubstr(text), HasSubstr(words)));
  }
}

TEST(ListenerTest, HandsOverConnectionsAsGrpcWantsThem) {
  const std::unique_ptr<Echo> echo = Echo::Start("127.0.0.1:0").value();
  EXPECT_THAT(echo->address(), StartsWith("127.0.0.1:"));
  EXPECT_GT(PortOf(echo->address()), 0);
  EXPECT_EQ(Greeting(echo->address()), "hello");
  EXPECT_EQ(echo->last_nodelay(), 1);
  EXPECT_EQ(echo->last_user_timeout(), ListenerOptions{}.peer_timeout.count());
  EXPECT_NE(echo->last_flags() & O_NONBLOCK, 0);
  EXPECT_NE(echo->last_flags() & (FD_CLOEXEC << 24), 0);
}

TEST(ListenerTest, ListensOnAllAddressesOfAHostWithOnePort) {
  const std::unique_ptr<Echo> echo = Echo::Start("localhost:0").value();
  EXPECT_THAT(echo->address(), StartsWith("localhost:"));
  EXPECT_EQ(Greeting(absl::StrCat("127.0.0.1:", PortOf(echo->address()))), "hello");
}

TEST(ListenerTest, Ipv6) {
  if (!HasIpv6()) GTEST_SKIP() << "this machine has no IPv6";
  const std::unique_ptr<Echo> echo = Echo::Start("[::1]:0").value();
  EXPECT_THAT(echo->address(), StartsWith("[::1]:"));
  EXPECT_EQ(Greeting(echo->address()), "hello");
  EXPECT_EQ(Greeting(absl::StrCat("127.0.0.1:", PortOf(echo->address()))), "Connection refused");
  const std::unique_ptr<Echo> any = Echo::Start("[::]:0").value();
  EXPECT_EQ(Greeting(absl::StrCat("[::1]:", PortOf(any->address()))), "hello");
  EXPECT_EQ(Greeting(absl::StrCat("127.0.0.1:", PortOf(any->address()))), "hello");
}

TEST(ListenerTest, APortIsOneListenersAloneUntilItStops) {
  const std::unique_ptr<Echo> first = Echo::Start("127.0.0.1:0").value();
  const std::string address = first->address();
  for (const std::string& same : {address, absl::StrCat("0.0.0.0:", PortOf(address))}) {
    const absl::Status second = Echo::Start(same).status();
    EXPECT_TRUE(absl::IsUnavailable(second)) << second;
    EXPECT_THAT(std::string(second.message()), ::testing::AllOf(HasSubstr(same), HasSubstr("Address already in use")));
  }
  EXPECT_EQ(Greeting(address), "hello");
  first->listener().Stop();
  EXPECT_EQ(Greeting(address), "Connection refused");
  const std::unique_ptr<Echo> next = Echo::Start(address).value();
  EXPECT_EQ(next->address(), address);
  EXPECT_EQ(Greeting(address), "hello");
}

TEST(ListenerTest, AHostThatIsNoneOrElsewhereIsAnError) {
  const absl::Status unknown = Echo::Start("no-such-host.invalid:0").status();
  EXPECT_TRUE(absl::IsUnavailable(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("no-such-host.invalid"));
  const absl::Status elsewhere = Echo::Start("192.0.2.1:0").status();  // reserved for documents
  EXPECT_TRUE(absl::IsUnavailable(elsewhere)) << elsewhere;
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("Cannot assign requested address"));
}

TEST(ListenerTest, AClientThatIsEarlyWaits) {
  const std::unique_ptr<Listener> listener = Listener::Bind(ParseListenAddress("127.0.0.1:0").value()).value();
  const UniqueDescriptor early = Connect(listener->address());
  ASSERT_TRUE(static_cast<bool>(early));
  std::atomic<int> taken{0};
  listener->Start([&](int, UniqueDescriptor connection) {
    connection.reset();
    ++taken;
    return absl::OkStatus();
  });
  EXPECT_EQ(ReadAll(early), "");
  EXPECT_TRUE(Eventually([&] { return taken == 1; }));
}

class UnixListenerTest : public ::testing::Test {
 protected:
  // Without a listener; whoever closes it leaves the file.
  UniqueDescriptor BoundSocket() const {
    UniqueDescriptor socket(Descriptor{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)});
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path_.c_str(), sizeof(name.sun_path) - 1);
    EXPECT_EQ(::bind(socket.get().number, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    return socket;
  }

  const TempFolder folder_;
  const fs::path path_ = folder_ / "socket";
  const std::string address_ = "unix:" + path_.string();
};

TEST_F(UnixListenerTest, ServesAndRemovesItsFile) {
  const mode_t before = ::umask(0);
  const std::unique_ptr<Echo> echo = Echo::Start(address_).value();
  ::umask(before);
  EXPECT_EQ(echo->address(), address_);
  EXPECT_EQ(Greeting(address_), "hello");
  EXPECT_EQ(Greeting(address_), "hello");
  struct stat info;
  ASSERT_EQ(::lstat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFSOCK | 0660u);
  echo->listener().Stop();
  EXPECT_FALSE(fs::exists(fs::symlink_status(path_)));
  EXPECT_TRUE(fs::is_empty(folder_.path()));  // nothing else is left
}

TEST_F(UnixListenerTest, TheUmaskNarrowsItsMode) {
  const mode_t before = ::umask(0077);
  const std::unique_ptr<Echo> echo = Echo::Start(address_).value();
  ::umask(before);
  struct stat info;
  ASSERT_EQ(::lstat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFSOCK | 0600u);
}

TEST_F(UnixListenerTest, AGroupReachesItWhateverTheUmask) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files to any group";
  const mode_t before = ::umask(0077);
  const auto listener = Listener::Bind(*ParseListenAddress(address_), {.unix_group = 12345});
  ::umask(before);
  ASSERT_TRUE(listener.ok()) << listener.status();
  struct stat info;
  ASSERT_EQ(::lstat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFSOCK | 0660u);
  EXPECT_EQ(info.st_uid, 0u);
  EXPECT_EQ(info.st_gid, 12345u);
}

TEST_F(UnixListenerTest, ALiveOneIsNotReplaced) {
  std::unique_ptr<Echo> first = Echo::Start(address_).value();
  for (int i = 0; i < 3; ++i) {
    const absl::Status second = Echo::Start(address_).status();
    EXPECT_TRUE(absl::IsUnavailable(second)) << second;
    EXPECT_THAT(std::string(second.message()),
                ::testing::AllOf(HasSubstr(address_), HasSubstr("Address already in use")));
  }
  EXPECT_EQ(Greeting(address_), "hello");
}

TEST_F(UnixListenerTest, OneWhoseQueueIsFullIsNotReplaced) {
  const UniqueDescriptor busy = BoundSocket();
  ASSERT_EQ(::listen(busy.get().number, 0), 0);
  const UniqueDescriptor waiting = Connect(address_);
  ASSERT_TRUE(static_cast<bool>(waiting));
  const absl::Status second = Echo::Start(address_).status();
  EXPECT_THAT(std::string(second.message()), HasSubstr("Address already in use"));
  EXPECT_TRUE(fs::is_socket(path_));
}

TEST_F(UnixListenerTest, OneThatIsLeftFromADeadProcessIsReplaced) {
  ASSERT_EQ(::listen(BoundSocket().get().number, 1), 0);
  ASSERT_TRUE(fs::is_socket(path_));
  const std::unique_ptr<Echo> echo = Echo::Start(address_).value();
  EXPECT_EQ(Greeting(address_), "hello");
}

TEST_F(UnixListenerTest, AFileThatIsNoSocketIsLeftAlone) {
  std::ofstream(path_) << "mine";
  const absl::Status status = Echo::Start(address_).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::AllOf(HasSubstr(address_), HasSubstr("no socket")));
  EXPECT_EQ(fs::file_size(path_), 4u);
  fs::remove(path_);
  const std::unique_ptr<Echo> target = Echo::Start("unix:" + (folder_ / "target").string()).value();
  fs::create_symlink(folder_ / "target", path_);
  EXPECT_TRUE(absl::IsUnavailable(Echo::Start(address_).status()));
  EXPECT_TRUE(fs::is_symlink(path_));
}

TEST_F(UnixListenerTest, AFileThatAnotherPutThereIsNotRemoved) {
  const std::unique_ptr<Echo> first = Echo::Start(address_).value();
  fs::remove(path_);
  const std::unique_ptr<Echo> second = Echo::Start(address_).value();
  first->listener().Stop();
  EXPECT_EQ(Greeting(address_), "hello");
  EXPECT_EQ(second->taken(), 1);
}

TEST_F(UnixListenerTest, OfManyThatStartAtOnceOneServes) {
  for (int round = 0; round < 20; ++round) {
    std::vector<absl::StatusOr<std::unique_ptr<Listener>>> results(4);
    std::vector<std::thread> threads;
    threads.reserve(results.size());
    for (auto& result : results) {
      threads.emplace_back([&] { result = Listener::Bind({.unix_path = path_}); });
    }
    for (std::thread& thread : threads) thread.join();
    int serving = 0;
    for (const auto& result : results) serving += result.ok() ? 1 : 0;
    EXPECT_EQ(serving, 1);
    EXPECT_TRUE(fs::is_socket(path_));
  }
}

TEST_F(UnixListenerTest, AFolderThatIsMissingIsAnError) {
  const absl::Status status = Echo::Start("unix:" + (folder_ / "missing" / "socket").string()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("No such file or directory"));
}

// The process has few descriptors.
class DescriptorLimitTest : public ::testing::Test {
 protected:
  static constexpr rlim_t kLimit = 200;

  DescriptorLimitTest() {
    SetLogSink([this](LogLevel, absl::string_view line) {
      MutexLock lock(&mutex_);
      lines_.emplace_back(line);
    });
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = kLimit;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~DescriptorLimitTest() override {
    ::setrlimit(RLIMIT_NOFILE, &before_);
    SetLogSink(nullptr);
  }

  std::vector<std::string> lines() {
    MutexLock lock(&mutex_);
    return lines_;
  }

  // All that there are.
  static std::vector<UniqueDescriptor> TakeAllDescriptors() {
    std::vector<UniqueDescriptor> taken;
    for (;;) {
      UniqueDescriptor next(Descriptor{::open("/dev/null", O_RDONLY | O_CLOEXEC)});
      if (!next) return taken;
      taken.push_back(std::move(next));
    }
  }

 private:
  rlimit before_ = {};
  Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(DescriptorLimitTest, AConnectionWaitsWhileThereAreNone) {
  const std::unique_ptr<Echo> echo = Echo::Start("127.0.0.1:0").value();
  std::vector<UniqueDescriptor> taken = TakeAllDescriptors();
  ASSERT_GT(taken.size(), 10u);
  taken.pop_back();
  const UniqueDescriptor client = Connect(echo->address());  // with the last one
  ASSERT_TRUE(static_cast<bool>(client));
  ASSERT_TRUE(Eventually([&] { return !lines().empty(); }));
  EXPECT_THAT(lines().front(), HasSubstr("Too many open files"));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // several attempts
  EXPECT_EQ(lines().size(), 1u);
  EXPECT_EQ(echo->taken(), 0);
  taken.clear();
  EXPECT_EQ(ReadAll(client), "hello");
  EXPECT_EQ(Greeting(echo->address()), "hello");
}

TEST_F(DescriptorLimitTest, SomeAreKeptForOtherWork) {
  const std::unique_ptr<Listener> listener = Listener::Bind(ParseListenAddress("127.0.0.1:0").value()).value();
  Mutex mutex;
  std::vector<UniqueDescriptor> connections;
  listener->Start([&](int, UniqueDescriptor connection) {
    MutexLock lock(&mutex);
    connections.push_back(std::move(connection));
    return absl::OkStatus();
  });
  // Each takes two, here and there.
  std::vector<UniqueDescriptor> clients;
  while (lines().empty()) {
    UniqueDescriptor client = Connect(listener->address());
    ASSERT_TRUE(static_cast<bool>(client)) << std::generic_category().message(errno);
    clients.push_back(std::move(client));
    ASSERT_TRUE(Eventually([&] {
      MutexLock lock(&mutex);
      return connections.size() == clients.size() || !lines().empty();
    }));
  }
  EXPECT_THAT(lines().front(), HasSubstr("descriptors are left"));
  EXPECT_EQ(ReadAll(clients.back()), "");  // closed at once
  // The client has one of them, or not.
  EXPECT_THAT(TakeAllDescriptors().size(), ::testing::AnyOf(kLimit / 4, kLimit / 4 - 1));
  listener->Stop();
}

TEST_F(DescriptorLimitTest, TheEndDoesNotWaitForThem) {
  std::unique_ptr<Echo> echo = Echo::Start("127.0.0.1:0").value();
  std::vector<UniqueDescriptor> taken = TakeAllDescriptors();
  taken.pop_back();
  const UniqueDescriptor client = Connect(echo->address());
  ASSERT_TRUE(Eventually([&] { return !lines().empty(); }));
  const auto begin = std::chrono::steady_clock::now();
  echo.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(ListenerTest, RespondsUnlessAHandlerHoldsItUp) {
  using std::chrono::steady_clock;
  Gate gate;
  std::atomic<int> taken{0};
  const std::unique_ptr<Listener> listener = Listener::Bind(*ParseListenAddress("127.0.0.1:0")).value();
  listener->Start([&](int, UniqueDescriptor) {
    ++taken;
    gate.Wait();
    return absl::OkStatus();
  });
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(listener->Responds(steady_clock::now() + kPatience));
  const UniqueDescriptor client = Connect(listener->address());
  ASSERT_TRUE(Eventually([&] { return taken == 1; }));
  EXPECT_FALSE(listener->Responds(steady_clock::now() + std::chrono::milliseconds(20)));
  gate.Open();
  EXPECT_TRUE(listener->Responds(steady_clock::now() + kPatience));
  listener->Stop();
}

// A socket that listens on `address`, as a service manager makes one: it blocks, and has no options.
UniqueDescriptor Listening(int family, const sockaddr* address, socklen_t size) {
  UniqueDescriptor socket(Descriptor{::socket(family, SOCK_STREAM, 0)});
  EXPECT_EQ(::bind(socket.get().number, address, size), 0) << std::generic_category().message(errno);
  EXPECT_EQ(::listen(socket.get().number, 5), 0);
  return socket;
}

UniqueDescriptor ListeningTcp() {
  const sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  return Listening(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

TEST(AdoptTest, ServesOnATcpSocketWithItsOptions) {
  const std::unique_ptr<Listener> listener = Listener::Adopt(ListeningTcp()).value();
  EXPECT_THAT(listener->address(), StartsWith("127.0.0.1:"));
  EXPECT_GT(PortOf(listener->address()), 0);
  std::atomic<int> nodelay{-1};
  listener->Start([&nodelay](int, UniqueDescriptor connection) {
    const int fd = connection.get().number;
    int value = 0;
    socklen_t size = sizeof(value);
    if (::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size) == 0) nodelay = value;
    ::send(fd, "hello", 5, MSG_NOSIGNAL);
    return absl::OkStatus();
  });
  EXPECT_EQ(Greeting(listener->address()), "hello");
  EXPECT_EQ(nodelay, 1);
  // It does not block in accept(2).
  EXPECT_TRUE(listener->Responds(std::chrono::steady_clock::now() + kPatience));
}

TEST(AdoptTest, TheFileOfAUnixSocketStaysForTheNextServer) {
  const TempFolder folder;
  sockaddr_un address = {.sun_family = AF_UNIX};
  const std::string path = (folder / "socket").string();
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const UniqueDescriptor socket = Listening(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  for (int server = 0; server < 2; ++server) {
    const std::unique_ptr<Listener> listener =
        Listener::Adopt(UniqueDescriptor(Descriptor{::dup(socket.get().number)})).value();
    EXPECT_EQ(listener->address(), "unix:" + path);
    EXPECT_EQ(*AddressOfSocket(socket.get()), "unix:" + path);
    // Who comes in between waits.
    const UniqueDescriptor early = Connect(listener->address());
    listener->Start([](int, UniqueDescriptor connection) {
      ::send(connection.get().number, "hello", 5, MSG_NOSIGNAL);
      return absl::OkStatus();
    });
    EXPECT_EQ(ReadAll(early), "hello");
    listener->Stop();
    EXPECT_TRUE(fs::exists(path));
  }
}

TEST(AdoptTest, WhatDoesNotListenIsRefused) {
  const auto refusal = [](int fd) {
    const absl::Status status = Listener::Adopt(UniqueDescriptor(Descriptor{fd})).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(::socket(AF_INET, SOCK_STREAM, 0)), HasSubstr("is no socket that listens for connections"));
  EXPECT_THAT(refusal(::socket(AF_UNIX, SOCK_DGRAM, 0)), HasSubstr("is no socket that listens for connections"));
  EXPECT_THAT(refusal(::open("/dev/null", O_RDONLY)), HasSubstr("Socket operation on non-socket"));
  // Linux gives a name in the abstract namespace.
  const sockaddr_un unnamed = {.sun_family = AF_UNIX};
  EXPECT_THAT(
      refusal(Listening(AF_UNIX, reinterpret_cast<const sockaddr*>(&unnamed), sizeof(sa_family_t)).release().number),
      HasSubstr("is a unix socket without a path"));
}

}  // namespace
}  // namespace lenet
