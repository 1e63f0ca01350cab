#include "server/service_manager.h"

#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/notify_socket.h"
#include "tests/support/temp_folder.h"

namespace lenet {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kSoon(0);  // what was sent is there

TEST(ServiceManagerTest, OneMessageIsOneDatagramByPathAndByAbstractName) {
  const TempFolder folder;
  for (const std::string& name : {(folder / "notify").string(), absl::StrCat("@lenet-test-", ::getpid())}) {
    const NotifySocket socket(name);
    const absl::StatusOr<ServiceManager> manager = ServiceManager::At(name);
    ASSERT_TRUE(manager.ok()) << manager.status();
    EXPECT_TRUE(manager->present());
    EXPECT_TRUE(manager->Notify("READY=1\nSTATUS=serving").ok());
    EXPECT_TRUE(manager->Notify("WATCHDOG=1").ok());
    EXPECT_EQ(socket.Receive(kSoon), "READY=1\nSTATUS=serving");
    EXPECT_EQ(socket.Receive(kSoon), "WATCHDOG=1");
    EXPECT_EQ(socket.Receive(kSoon), std::nullopt);
  }
}

TEST(ServiceManagerTest, WithoutOneNothingIsSent) {
  const ServiceManager manager;
  EXPECT_FALSE(manager.present());
  EXPECT_TRUE(manager.Notify("READY=1").ok());
}

TEST(ServiceManagerTest, ANameIsAnAbsolutePathOrAbstractAndFitsAnAddress) {
  const std::string longest(107, 'x');
  for (const std::string& name : {"/" + longest.substr(1), "@" + longest.substr(1)}) {
    EXPECT_TRUE(ServiceManager::At(name).ok()) << name;
  }
  for (const std::string& name : {std::string(""), std::string("/"), std::string("@"), std::string("run/notify"),
                                  std::string("vsock:2:1234"), "/" + longest, "@" + longest}) {
    const absl::Status status = ServiceManager::At(name).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("\"", name, "\" must be a path")));
    EXPECT_THAT(std::string(status.message()), HasSubstr("of at most 107 bytes"));
  }
}

TEST(ServiceManagerTest, AManagerThatIsNotThereIsAnError) {
  const TempFolder folder;
  const std::string name = (folder / "notify").string();
  const absl::Status status = ServiceManager::At(name)->Notify("READY=1");
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(std::string(status.message()),
            absl::StrCat("the service manager's socket '", name, "': No such file or directory"));
}

TEST(ServiceManagerTest, AManagerThatReadsNothingIsWaitedForAFewSecondsOnly) {
  const TempFolder folder;
  const NotifySocket socket((folder / "notify").string());
  const ServiceManager manager = *ServiceManager::At(socket.name());
  const auto begin = std::chrono::steady_clock::now();
  absl::Status status;
  // The kernel keeps a few hundred datagrams at most.
  for (int i = 0; i < 100'000 && status.ok(); ++i) status = manager.Notify("WATCHDOG=1");
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(WatchdogTimeoutTest, IsForTheProcessThatIsNamed) {
  EXPECT_EQ(*WatchdogTimeout("", "", 7), std::nullopt);
  EXPECT_EQ(*WatchdogTimeout("", "7", 7), std::nullopt);
  EXPECT_EQ(*WatchdogTimeout("30000000", "", 7), microseconds(30'000'000));
  EXPECT_EQ(*WatchdogTimeout("1", "7", 7), microseconds(1));
  EXPECT_EQ(*WatchdogTimeout("30000000", "8", 7), std::nullopt);
}

TEST(WatchdogTimeoutTest, ABadNumberIsNamed) {
  for (const char* bad : {"0", "-1", "x", "1s", "9223372036854775808", "1.5"}) {
    const absl::Status usec = WatchdogTimeout(bad, "7", 7).status();
    EXPECT_TRUE(absl::IsInvalidArgument(usec)) << bad;
    EXPECT_THAT(std::string(usec.message()), HasSubstr(absl::StrCat("$WATCHDOG_USEC: \"", bad, "\" must be a number")));
    const absl::Status pid = WatchdogTimeout("1", bad, 7).status();
    EXPECT_TRUE(absl::IsInvalidArgument(pid)) << bad;
    EXPECT_THAT(std::string(pid.message()), HasSubstr(absl::StrCat("$WATCHDOG_PID: \"", bad, "\" must be a number")));
  }
}

TEST(PassedSocketsTest, IsForTheProcessThatIsNamed) {
  EXPECT_THAT(*PassedSockets("", "", 7), ElementsAre());
  EXPECT_THAT(*PassedSockets("", "1", 7), ElementsAre());
  EXPECT_THAT(*PassedSockets("7", "", 7), ElementsAre());
  EXPECT_THAT(*PassedSockets("8", "1", 7), ElementsAre());
  EXPECT_THAT(*PassedSockets("8", "2", 7), ElementsAre());
  EXPECT_THAT(*PassedSockets("7", "1", 7), ElementsAre(Descriptor{3}));
  EXPECT_THAT(*PassedSockets("7", "2", 7), ElementsAre(Descriptor{3}, Descriptor{4}));
}

TEST(PassedSocketsTest, TooManyAndBadNumbersAreErrors) {
  EXPECT_EQ(PassedSockets("7", "64", 7)->size(), 64u);
  EXPECT_EQ(PassedSockets("7", "65", 7).status(),
            absl::InvalidArgumentError("$LISTEN_FDS: 65 sockets were passed to serve on; must be at most 64"));
  EXPECT_THAT(std::string(PassedSockets("7", "0", 7).status().message()), HasSubstr("$LISTEN_FDS: \"0\""));
  EXPECT_THAT(std::string(PassedSockets("x", "1", 7).status().message()), HasSubstr("$LISTEN_PID: \"x\""));
}

}  // namespace
}  // namespace lenet
