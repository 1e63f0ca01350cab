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
  void Tick(bool draining) override {
    ++ticks;
    if (draining) drained = true;
  }
  std::atomic<int> ticks{0};
  std::atomic<bool> drained{false};
};

TEST(StreamHubTest, TicksAtOnceAndThenRegularly) {
  StreamHub hub(10, milliseconds(20));
  const auto stream = std::make_shared<CountingStream>();
  const auto begin = steady_clock::now();
  ASSERT_TRUE(hub.Add(stream).ok());
  ASSERT_TRUE(Eventually([&] { return stream->ticks >= 6; }));
  EXPECT_GE(steady_clock::now() - begin, milliseconds(75));  // two ticks may come together, then four intervals
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

class ThrowingStream : public CountingStream {
 public:
  void Tick(bool draining) override {
    CountingStream::Tick(draining);
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

}  // namespace
}  // namespace lenet
