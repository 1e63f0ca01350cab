#include "server/supervision.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/notify_socket.h"
#include "tests/support/server_under_test.h"
#include "tests/support/temp_folder.h"
#include "trainer/base/log.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;
using Clock = Supervision::Clock;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr milliseconds kStatusInterval(10);

class SupervisionTest : public ::testing::Test {
 protected:
  SupervisionTest() {
    SetLogSink([this](LogLevel, absl::string_view line) {
      MutexLock lock(&mutex_);
      absl::StrAppend(&log_, line, "\n");
    });
  }
  ~SupervisionTest() override { SetLogSink(nullptr); }

  std::unique_ptr<Supervision> New(std::optional<milliseconds> watchdog, std::vector<ProgressWatch::Part> parts = {}) {
    return std::make_unique<Supervision>(*ServiceManager::At(socket_.name()),
                                         SupervisionOptions{.watchdog = watchdog, .status_interval = kStatusInterval},
                                         std::move(parts));
  }

  static Supervision::Phase Serving(std::string text) {
    return {.state = "READY=1", .status = [text = std::move(text)] { return text; }};
  }

  // Reads messages up to the first that has this in it.
  void ReceiveTo(absl::string_view wanted) {
    std::optional<std::string> message;
    do {
      message = socket_.Receive(kPatience);
      ASSERT_TRUE(message.has_value()) << "no message with " << wanted;
    } while (!absl::StrContains(*message, wanted));
  }

  std::string log() {
    MutexLock lock(&mutex_);
    return log_;
  }

  const TempFolder folder_;
  const NotifySocket socket_{(folder_ / "notify").string()};
  Mutex mutex_;
  std::string log_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(SupervisionTest, APhaseIsAnnouncedAtOnceAndItsStatusWhenItChanges) {
  std::atomic<int> running{0};
  const std::unique_ptr<Supervision> supervision = New(std::nullopt);
  supervision->Enter({.state = "READY=1", .status = [&running] { return absl::StrCat(running.load(), " running"); }});
  EXPECT_EQ(socket_.Receive(milliseconds(0)), "READY=1\nSTATUS=0 running");
  EXPECT_EQ(socket_.Receive(10 * kStatusInterval), std::nullopt);
  running = 2;
  EXPECT_EQ(socket_.Receive(kPatience), "STATUS=2 running");
}

TEST_F(SupervisionTest, AManagerIsAskedForPatienceForAsLongAsThePhaseMayTake) {
  const std::unique_ptr<Supervision> supervision = New(std::nullopt);
  supervision->Enter({.status = [] { return "warming up"; }, .longest = milliseconds(9000)});
  EXPECT_EQ(socket_.Receive(milliseconds(0)), "STATUS=warming up\nEXTEND_TIMEOUT_USEC=20000000");
  const Clock::time_point begin = Clock::now();
  EXPECT_EQ(socket_.Receive(kPatience), "EXTEND_TIMEOUT_USEC=20000000");
  EXPECT_GE(Clock::now() - begin, milliseconds(4500));
  EXPECT_EQ(socket_.Receive(milliseconds(6000)), std::nullopt);
  supervision->Enter({.state = "STOPPING=1", .status = [] { return "draining"; }});
  EXPECT_EQ(socket_.Receive(milliseconds(0)), "STOPPING=1\nSTATUS=draining");
}

TEST_F(SupervisionTest, AStatusThatDoesNotComeBackIsNoReasonForPatience) {
  Gate gate;
  std::atomic<bool> first{true};
  const std::unique_ptr<Supervision> supervision = New(std::nullopt);
  supervision->Enter({.status =
                          [&] {
                            if (!first.exchange(false)) gate.Wait();
                            return "warming up";
                          },
                      .longest = milliseconds(60'000)});
  EXPECT_THAT(socket_.Receive(milliseconds(0)).value_or(""), HasSubstr("EXTEND_TIMEOUT_USEC"));
  EXPECT_EQ(socket_.Receive(milliseconds(6000)), std::nullopt);
  gate.Open();
  EXPECT_EQ(socket_.Receive(kPatience), "EXTEND_TIMEOUT_USEC=20000000");
}

TEST_F(SupervisionTest, SignsOfLifeComeAtHalfOfTheTimeout) {
  const std::unique_ptr<Supervision> supervision =
      New(milliseconds(400), {{"a part", [](Clock::time_point) { return true; }}});
  EXPECT_EQ(socket_.Receive(kPatience), "WATCHDOG=1");
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(socket_.Receive(kPatience), "WATCHDOG=1");
  EXPECT_GE(Clock::now() - begin, milliseconds(10 * 200 - 50));
  EXPECT_LT(Clock::now() - begin, milliseconds(10 * 400));
}

TEST_F(SupervisionTest, APartThatStandsStillStopsTheSignsUntilItGoesOn) {
  Gate gate;
  std::atomic<bool> stuck{false};
  const std::unique_ptr<Supervision> supervision = New(milliseconds(200), {{"a part", [&](Clock::time_point) {
                                                                              if (stuck) gate.Wait();
                                                                              return true;
                                                                            }}});
  supervision->Enter(Serving("serving"));
  ReceiveTo("READY=1");
  stuck = true;
  ReceiveTo("STATUS=a part stands still");
  // It would have come several times.
  EXPECT_EQ(socket_.Receive(milliseconds(1000)), std::nullopt);
  EXPECT_THAT(log(), HasSubstr("watchdog: a part stands still, for "));
  EXPECT_THAT(log(), Not(HasSubstr("again")));
  stuck = false;
  gate.Open();
  ReceiveTo("WATCHDOG=1");
  ReceiveTo("STATUS=serving");
  EXPECT_THAT(log(), HasSubstr("the service manager gets signs of life again"));
}

TEST_F(SupervisionTest, AShortStandstillDoesNoHarm) {
  const std::unique_ptr<Supervision> supervision =
      New(milliseconds(4000), {{"a slow part", [](Clock::time_point) {
                                  std::this_thread::sleep_for(milliseconds(500));
                                  return true;
                                }}});
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(socket_.Receive(milliseconds(4000)), "WATCHDOG=1");
  EXPECT_LT(Clock::now() - begin, milliseconds(6000));
  EXPECT_EQ(log(), "");
}

TEST_F(SupervisionTest, APhaseThatIsNotWatchedNeedsNoProgress) {
  const std::unique_ptr<Supervision> supervision =
      New(milliseconds(200), {{"a part", [](Clock::time_point) { return false; }}});
  ReceiveTo("STATUS=a part stands still");
  supervision->Enter({.state = "STOPPING=1", .status = [] { return "draining"; }, .watched = false});
  ReceiveTo("STOPPING=1");
  for (int i = 0; i < 3; ++i) ReceiveTo("WATCHDOG=1");
}

TEST_F(SupervisionTest, AManagerThatCannotBeToldIsLoggedOnce) {
  const std::string nowhere = (folder_ / "nowhere").string();
  Supervision supervision(*ServiceManager::At(nowhere), {.watchdog = milliseconds(20)}, {});
  supervision.Enter(Serving("serving"));
  supervision.Enter(Serving("serving"));
  EXPECT_EQ(log(), absl::StrCat("not told: the service manager's socket '", nowhere, "': No such file or directory\n"));
}

TEST_F(SupervisionTest, WithoutAManagerNothingIsAsked) {
  std::atomic<int> asked{0};
  {
    Supervision supervision(ServiceManager(), {.watchdog = milliseconds(2), .status_interval = kStatusInterval},
                            {{"a part", [&asked](Clock::time_point) {
                                ++asked;
                                return true;
                              }}});
    supervision.Enter({.state = "READY=1", .status = [&asked] {
                         ++asked;
                         return std::string();
                       }});
    std::this_thread::sleep_for(5 * kStatusInterval);
  }
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace lenet
