#include "server/rpc/stream_hub.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class CountingStream : public HubStream {
 public:
  explicit CountingStream(std::string client = "") : HubStream(std::move(client)) {}
  bool Tick(const Occasion& occasion) override {
    ++ticks;
    if (occasion.draining) drained = true;
    if (occasion.eager) ++eager_ticks;
    return writes;
  }
  std::atomic<int> ticks{0};
  std::atomic<int> eager_ticks{0};
  std::atomic<bool> writes{false};
  std::atomic<bool> drained{false};
};

TEST(StreamHubTest, TicksAtOnceAndThenRegularly) {
  StreamHub hub(10, milliseconds(20));
  const auto stream = std::make_shared<CountingStream>();
  const auto begin = steady_clock::now();
  ASSERT_TRUE(hub.Add(stream).ok());
  ASSERT_TRUE(Eventually([&] { return stream->ticks >= 6; }));
  EXPECT_GE(steady_clock::now() - begin, milliseconds(95));
}

TEST(StreamHubTest, ANewStreamDoesNotWaitForTheInterval) {
  StreamHub hub(10, std::chrono::minutes(2));
  const auto first = std::make_shared<CountingStream>();
  ASSERT_TRUE(hub.Add(first).ok());
  ASSERT_TRUE(Eventually([&] { return first->ticks >= 1; }));
  const auto second = std::make_shared<CountingStream>();
  ASSERT_TRUE(hub.Add(second).ok());
  ASSERT_TRUE(Eventually([&] { return second->ticks >= 1; }));
  EXPECT_LE(first->ticks, 2);
}

TEST(StreamHubTest, AWakeBringsTheNextTickForwardOnceOrForAnIdleStreamAFewTimes) {
  StreamHub hub(10, milliseconds(3000));
  const auto stream = std::make_shared<CountingStream>();
  const auto wake_until = [&](int ticks) {
    ASSERT_TRUE(Eventually([&] {
      hub.Wake();
      return stream->ticks >= ticks;
    }));
    for (int i = 0; i < 10; ++i) {
      hub.Wake();
      std::this_thread::sleep_for(milliseconds(2));
    }
  };
  ASSERT_TRUE(hub.Add(stream).ok());
  ASSERT_TRUE(Eventually([&] { return stream->ticks >= 1; }));
  stream->writes = true;
  const int idle = stream->ticks;
  wake_until(idle + StreamHub::kWakes);
  EXPECT_EQ(stream->ticks - idle, StreamHub::kWakes);
  const int eager = stream->eager_ticks;
  EXPECT_GE(eager, idle + StreamHub::kWakes / 2);
  ASSERT_TRUE(Eventually([&] { return stream->ticks > idle + StreamHub::kWakes; }));  // regular, of a busy stream
  const int busy = stream->ticks;
  wake_until(busy + 1);
  EXPECT_EQ(stream->ticks - busy, 1);
  EXPECT_EQ(stream->eager_ticks, eager);
}

TEST(StreamHubTest, WhatIsLeftOfTheWakesOutlastsOneRegularTick) {
  constexpr milliseconds kInterval(1000);
  StreamHub hub(10, kInterval);
  const auto stream = std::make_shared<CountingStream>();
  const auto wake_until = [&](int ticks) {
    const bool woken = Eventually([&] {
      hub.Wake();
      return stream->ticks >= ticks;
    });
    std::this_thread::sleep_for(milliseconds(20));  // for the last Wake() to be answered
    return woken;
  };
  stream->writes = true;
  ASSERT_TRUE(hub.Add(stream).ok());
  ASSERT_TRUE(Eventually([&] { return stream->ticks >= 1; }));
  ASSERT_TRUE(wake_until(3));
  const int before = stream->ticks;
  ASSERT_TRUE(Eventually([&] { return stream->ticks > before; }));  // regular
  const auto begin = steady_clock::now();
  ASSERT_TRUE(wake_until(1 + StreamHub::kWakes + 1));
  EXPECT_LT(steady_clock::now() - begin, kInterval / 2);
  const int after = stream->ticks;
  ASSERT_TRUE(Eventually([&] { return stream->ticks > after; }));  // regular, of a stream that has been busy
  const int busy = stream->ticks;
  ASSERT_TRUE(wake_until(busy + 1));
  for (int i = 0; i < 10; ++i) {
    hub.Wake();
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_EQ(stream->ticks, busy + 1);
}

class ThrowingStream : public CountingStream {
 public:
  bool Tick(const Occasion& occasion) override {
    CountingStream::Tick(occasion);
    throw std::runtime_error("bad");
  }
};

TEST(StreamHubTest, ATickThatThrowsLeavesTheOthers) {
  StreamHub hub(10, milliseconds(5));
  const auto bad = std::make_shared<ThrowingStream>();
  const auto good = std::make_shared<CountingStream>();
  ASSERT_TRUE(hub.Add(bad).ok());
  ASSERT_TRUE(hub.Add(good).ok());
  EXPECT_TRUE(Eventually([&] { return bad->ticks >= 3 && good->ticks >= 3; }));
}

TEST(StreamHubTest, HasALimit) {
  StreamHub hub(2, milliseconds(5));
  const auto one = std::make_shared<CountingStream>();
  ASSERT_TRUE(hub.Add(one).ok());
  ASSERT_TRUE(hub.Add(std::make_shared<CountingStream>()).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(hub.Add(std::make_shared<CountingStream>())));
  hub.Remove(one.get());
  EXPECT_TRUE(hub.Add(std::make_shared<CountingStream>()).ok());
}

TEST(StreamHubTest, LetsGoOfARemovedStream) {
  StreamHub hub(10, milliseconds(5));
  auto stream = std::make_shared<CountingStream>();
  const std::weak_ptr<CountingStream> weak = stream;
  ASSERT_TRUE(hub.Add(stream).ok());
  hub.Remove(stream.get());
  hub.Remove(stream.get());
  stream.reset();
  EXPECT_TRUE(Eventually([&] { return weak.expired(); }));
}

TEST(StreamHubTest, DrainTellsTheStreamsAndWaitsUntilAllAreGone) {
  StreamHub hub(10, milliseconds(5));
  EXPECT_TRUE(hub.WaitEmpty(steady_clock::now()));
  const auto stream = std::make_shared<CountingStream>();
  ASSERT_TRUE(hub.Add(stream).ok());
  EXPECT_FALSE(hub.WaitEmpty(steady_clock::now() + milliseconds(20)));
  EXPECT_FALSE(stream->drained);
  hub.Drain();
  EXPECT_TRUE(Eventually([&] { return stream->drained.load(); }));
  std::thread remover([&] { hub.Remove(stream.get()); });
  EXPECT_TRUE(hub.WaitEmpty(steady_clock::now() + kPatience));
  remover.join();
}

class StuckStream : public HubStream {
 public:
  StuckStream() : HubStream("") {}
  bool Tick(const Occasion&) override {
    ++ticks;
    gate.Wait();
    return false;
  }
  std::atomic<int> ticks{0};
  Gate gate;
};

TEST(StreamHubTest, RespondsUnlessAStreamHoldsItUp) {
  StreamHub hub(10, std::chrono::minutes(2));
  EXPECT_TRUE(hub.Responds(steady_clock::now() + kPatience));  // without a stream
  const auto stream = std::make_shared<StuckStream>();
  ASSERT_TRUE(hub.Add(stream).ok());
  ASSERT_TRUE(Eventually([&] { return stream->ticks == 1; }));
  EXPECT_FALSE(hub.Responds(steady_clock::now() + milliseconds(20)));
  stream->gate.Open();
  EXPECT_TRUE(hub.Responds(steady_clock::now() + kPatience));
  EXPECT_TRUE(hub.Responds(steady_clock::now() + kPatience));
  EXPECT_EQ(stream->ticks, 1);  // it asks for no tick
}

}  // namespace
}  // namespace lenet
