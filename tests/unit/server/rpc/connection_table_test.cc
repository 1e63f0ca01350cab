#include "server/rpc/connection_table.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;

// The two ends of a connection.
struct Ends {
  UniqueDescriptor client;
  UniqueDescriptor server;
};

Ends Unix() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueDescriptor(Descriptor{ends[0]}), UniqueDescriptor(Descriptor{ends[1]})};
}

// From an address of 127.0.0.0/8.
Ends Tcp(const char* from) {
  const auto socket = [] { return UniqueDescriptor(Descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}); };
  const UniqueDescriptor listener = socket();
  sockaddr_in address = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get().number, generic, size), 0);
  EXPECT_EQ(::listen(listener.get().number, 1), 0);
  EXPECT_EQ(::getsockname(listener.get().number, generic, &size), 0);
  Ends ends;
  ends.client = socket();
  sockaddr_in own = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  EXPECT_EQ(::inet_pton(AF_INET, from, &own.sin_addr), 1);
  EXPECT_EQ(::bind(ends.client.get().number, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
  EXPECT_EQ(::connect(ends.client.get().number, generic, size), 0);
  ends.server.reset(Descriptor{::accept4(listener.get().number, nullptr, nullptr, SOCK_CLOEXEC)});
  return ends;
}

TEST(ConnectionTableTest, HasALimitAndFindsWhatIsClosed) {
  ConnectionTable table({.max_connections = 2, .max_connections_per_client = 0});
  const Ends one = Unix();
  const Ends more = Unix();
  Ends two = Unix();
  ASSERT_TRUE(table.Add(one.server.get()).ok());
  ASSERT_TRUE(table.Add(two.server.get()).ok());
  const absl::Status full = table.Add(more.server.get());
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_EQ(full.message(), "2 are open; the limit is 2 (limits.max_connections)");
  two.server.reset();
  EXPECT_TRUE(Eventually([&] { return table.Add(more.server.get()).ok(); }));
  // Of a number that has become another connection's nothing is left.
  table.SetLimits({.max_connections = 3, .max_connections_per_client = 0});
  const Ends again = Unix();
  EXPECT_TRUE(table.Add(again.server.get()).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(table.Add(Unix().server.get())));
}

TEST(ConnectionTableTest, ANumberThatIsAnotherFilesNowDoesNotCount) {
  ConnectionTable table({.max_connections = 1});
  Ends ends = Unix();
  const int number = ends.server.get().number;
  ASSERT_TRUE(table.Add(ends.server.get()).ok());
  ends.server.reset();
  std::vector<Ends> others;  // one of them gets the number
  bool taken = false;
  while (!taken && others.size() < 100) {
    others.push_back(Unix());
    taken = others.back().server.get().number == number || others.back().client.get().number == number;
  }
  ASSERT_TRUE(taken);
  const Ends next = Unix();
  EXPECT_TRUE(Eventually([&] { return table.Add(next.server.get()).ok(); }));
}

TEST(ConnectionTableTest, AClientHasALimitOfItsOwn) {
  ConnectionTable table({.max_connections_per_client = 2});
  const Ends first = Tcp("127.0.0.1");
  Ends second = Tcp("127.0.0.1");
  const Ends third = Tcp("127.0.0.1");
  const Ends other = Tcp("127.0.0.2");
  const Ends local[] = {Unix(), Unix(), Unix()};
  EXPECT_TRUE(table.Add(first.server.get()).ok());
  EXPECT_TRUE(table.Add(second.server.get()).ok());
  const absl::Status full = table.Add(third.server.get());
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_EQ(full.message(), "127.0.0.1 has 2 open; the limit is 2 (limits.max_connections_per_client)");
  EXPECT_TRUE(table.Add(other.server.get()).ok());
  EXPECT_TRUE(table.Add(local[0].server.get()).ok());
  EXPECT_TRUE(table.Add(local[1].server.get()).ok());
  EXPECT_THAT(std::string(table.Add(local[2].server.get()).message()),
              HasSubstr(absl::StrCat("unix:", ::getuid(), " has 2 open")));
  second.server.reset();
  EXPECT_TRUE(Eventually([&] { return table.Add(third.server.get()).ok(); }));
}

// Whether the server's end has been shut down.
bool IsShut(const Ends& ends) {
  pollfd poll = {.fd = ends.client.get().number, .events = POLLIN, .revents = 0};
  EXPECT_GE(::poll(&poll, 1, 0), 0);
  return (poll.revents & POLLIN) != 0;
}

TEST(ConnectionTableTest, AClientThatTakesBackTooManyCallsLosesItsConnectionsForAWhile) {
  constexpr std::chrono::milliseconds kWindow(500);
  ConnectionTable table({.max_resets_per_client = 2}, kWindow);
  const Ends first = Tcp("127.0.0.1");
  const Ends second = Tcp("127.0.0.1");
  const Ends next = Tcp("127.0.0.1");
  const Ends other = Tcp("127.0.0.2");
  for (const Ends* ends : {&first, &second, &other}) ASSERT_TRUE(table.Add(ends->server.get()).ok());
  const auto count = [&table](const char* client, int times) {
    for (int i = 0; i < times; ++i) table.CountReset(client);
  };
  // Those of one window alone are counted together.
  count("127.0.0.1", 2);
  std::this_thread::sleep_for(kWindow);
  count("127.0.0.1", 2);
  count("127.0.0.2", 2);
  for (const Ends* ends : {&first, &second, &other}) EXPECT_FALSE(IsShut(*ends));
  count("127.0.0.1", 1);
  EXPECT_TRUE(IsShut(first));
  EXPECT_TRUE(IsShut(second));
  EXPECT_FALSE(IsShut(other));
  const absl::Status refused = table.Add(next.server.get());
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "127.0.0.1 took back 3 calls that had just begun; the limit is 2 (limits.max_resets_per_client)");
  EXPECT_FALSE(IsShut(other));
  EXPECT_TRUE(Eventually([&] { return table.Add(next.server.get()).ok(); }));
}

TEST(ConnectionTableTest, AnyNumberOfCallsMayBeTakenBackWithoutALimit) {
  ConnectionTable table({.max_resets_per_client = 1});
  const Ends ends = Tcp("127.0.0.1");
  const Ends more = Tcp("127.0.0.1");
  table.CountReset("127.0.0.1");
  table.CountReset("127.0.0.1");
  EXPECT_FALSE(table.Add(ends.server.get()).ok());
  table.SetLimits({.max_resets_per_client = 0});
  EXPECT_TRUE(table.Add(ends.server.get()).ok());
  for (int i = 0; i < 10; ++i) table.CountReset("127.0.0.1");
  EXPECT_FALSE(IsShut(ends));
  EXPECT_TRUE(table.Add(more.server.get()).ok());
}

}  // namespace
}  // namespace lenet
