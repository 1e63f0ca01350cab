// The endpoint over HTTP.
#include "server/monitoring/exporter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"
#include "trainer/base/descriptor.h"

namespace lenet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class ExporterTest : public ::testing::Test {
 protected:
  MonitorSources Sources() {
    return {.version = "1.2.3",
            .backend = &server_.backend(),
            .manager = &server_.manager(),
            .store = &store_,
            .calls = &calls_,
            .streams = [] { return StreamLoad{}; }};
  }

  static int PortOf(const Exporter& exporter) {
    const std::string& url = exporter.url();
    const size_t colon = url.rfind(':');
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(url.substr(colon + 1, url.rfind('/') - colon - 1), &port)) << url;
    return port;
  }

  static int Connect(const Exporter& exporter) {
    sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(PortOf(exporter)))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int number = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::connect(number, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return number;
  }

  static std::string Get(const Exporter& exporter, const std::string& path) {
    const int number = Connect(exporter);
    const UniqueDescriptor owner(Descriptor{number});
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(::send(number, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string answer;
    std::array<char, 4096> buffer;
    ssize_t got = 0;
    while ((got = ::recv(number, buffer.data(), buffer.size(), 0)) > 0) {
      answer.append(buffer.data(), static_cast<size_t>(got));
    }
    return answer;
  }

  ServerUnderTest server_;
  CountingStore store_{&server_.store()};
  RpcCounters calls_{{}};
};

TEST_F(ExporterTest, ServesMetricsAndNothingElse) {
  const auto exporter = Exporter::Start("127.0.0.1", 0, Sources());
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  EXPECT_THAT((*exporter)->url(), MatchesRegex("http://127\\.0\\.0\\.1:[1-9][0-9]*/metrics"));
  EXPECT_TRUE((*exporter)->loopback());
  const std::string answer = Get(**exporter, "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain"));
  EXPECT_THAT(answer, HasSubstr("lenet_build_info{version=\"1.2.3\",backend=\"fake\"} 1\n"));
  for (const char* path : {"/", "/etc/passwd", "/../etc/passwd"}) {
    EXPECT_THAT(Get(**exporter, path), Not(StartsWith("HTTP/1.1 200"))) << path;
  }
}

TEST_F(ExporterTest, AddressesThatCannotBeHadAreErrorsWithTheReason) {
  const auto first = Exporter::Start("127.0.0.1", 0, Sources());
  ASSERT_TRUE(first.ok()) << first.status();
  const int port = PortOf(**first);
  const auto second = Exporter::Start("127.0.0.1", port, Sources());
  EXPECT_TRUE(absl::IsUnavailable(second.status()));
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr("127.0.0.1:" + std::to_string(port)), HasSubstr("Address already in use")));
  // Of a network for documentation: no address of this machine.
  const auto foreign = Exporter::Start("192.0.2.1", 0, Sources());
  EXPECT_THAT(std::string(foreign.status().message()), HasSubstr("Cannot assign requested address"));
  const auto nameless = Exporter::Start("no-such-host.invalid", 0, Sources());
  EXPECT_THAT(std::string(nameless.status().message()), HasSubstr("cannot listen on no-such-host.invalid:0: "));
}

TEST_F(ExporterTest, TellsAddressesThatOthersReach) {
  const auto all = Exporter::Start("0.0.0.0", 0, Sources());
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_FALSE((*all)->loopback());
  EXPECT_THAT(Get(**all, "/metrics"), HasSubstr("lenet_jobs{"));
  const auto named = Exporter::Start("localhost", 0, Sources());
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_TRUE((*named)->loopback());
}

TEST_F(ExporterTest, EndsSoonThoughAClientSaysNothing) {
  auto exporter = Exporter::Start("127.0.0.1", 0, Sources());
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  Get(**exporter, "/metrics");
  const UniqueDescriptor silent(Descriptor{Connect(**exporter)});
  const auto begin = std::chrono::steady_clock::now();
  exporter->reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(ExporterTest, ScrapesGoOnWhileJobsRun) {
  const auto exporter = Exporter::Start("127.0.0.1", 0, Sources());
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 2; ++i) {
    scrapers.emplace_back([&] {
      for (int n = 0; n < 20; ++n) EXPECT_THAT(Get(**exporter, "/metrics"), HasSubstr("process_open_fds"));
    });
  }
  for (int i = 0; i < 10; ++i) {
    const std::string id = server_.manager().Start(ServerUnderTest::Request(20, 2)).value().id();
    EXPECT_EQ(server_.AwaitState(id, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  }
  for (std::thread& scraper : scrapers) scraper.join();
}

}  // namespace
}  // namespace lenet
