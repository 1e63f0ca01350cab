#include "server/shutdown_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace lenet {
namespace {

void Await(const ShutdownSignals& signals, int count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (signals.count() < count && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_EQ(signals.count(), count);
}

TEST(ShutdownSignalsTest, CountsAndCallsOnEachSignal) {
  ShutdownSignals signals;
  std::atomic<int> last{0};
  signals.SetCallback([&](int count) { last = count; });
  EXPECT_EQ(signals.count(), 0);
  ::kill(::getpid(), SIGTERM);
  signals.WaitForFirst();
  Await(signals, 1);
  ::kill(::getpid(), SIGINT);
  Await(signals, 2);
  ::kill(::getpid(), SIGTERM);
  Await(signals, 3);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (last < 3 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(last, 3);
  signals.SetCallback(nullptr);
}

TEST(ShutdownSignalsTest, ALateCallbackIsCalledForEarlierSignals) {
  ShutdownSignals signals;
  ::kill(::getpid(), SIGTERM);
  Await(signals, 1);
  int calls = 0;
  signals.SetCallback([&](int count) { calls += count; });
  EXPECT_EQ(calls, 1);
}

TEST(ShutdownSignalsTest, SigpipeIsIgnored) {
  ShutdownSignals signals;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  ::close(ends[1]);
}

}  // namespace
}  // namespace lenet
