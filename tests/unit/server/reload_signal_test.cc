#include "server/reload_signal.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"
#include "server/shutdown_signals.h"

namespace lenet {
namespace {

void Await(const std::atomic<int>& value, int wanted) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (value < wanted && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_EQ(value, wanted);
}

TEST(ReloadSignalTest, CallsForEachHangupThatIsNoShutdown) {
  std::atomic<int> calls{0};
  ReloadSignal reload([&] { ++calls; });
  const ShutdownSignals shutdown;
  for (int i = 1; i <= 3; ++i) {
    ::kill(::getpid(), SIGHUP);
    Await(calls, i);
  }
  EXPECT_EQ(shutdown.count(), 0);
  ::kill(::getpid(), SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (shutdown.count() == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(shutdown.count(), 1);
  EXPECT_EQ(calls, 3);
}

TEST(ReloadSignalTest, OneDuringACallIsCalledForAfterIt) {
  std::atomic<int> calls{0};
  std::atomic<bool> go_on{false};
  ReloadSignal reload([&] {
    ++calls;
    while (!go_on) std::this_thread::yield();
  });
  ::kill(::getpid(), SIGHUP);
  Await(calls, 1);
  ::kill(::getpid(), SIGHUP);
  go_on = true;
  Await(calls, 2);
}

TEST(ReloadSignalTest, AHangupThatIsIgnoredStaysSo) {
  const auto before = ::signal(SIGHUP, SIG_IGN);  // as nohup does
  std::atomic<int> calls{0};
  {
    ReloadSignal reload([&] { ++calls; });
    ::kill(::getpid(), SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(calls, 0);
  ::signal(SIGHUP, before);
}

}  // namespace
}  // namespace lenet
