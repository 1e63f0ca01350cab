#include "server/rpc/executor.h"

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

TEST(ExecutorTest, RunsInOrderAndAllBeforeItGoes) {
  std::vector<int> order;
  {
    Executor executor(1, 1000);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(executor.Run([&order, i] { order.push_back(i); }));
  }
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(ExecutorTest, ATaskThatThrowsEndsAlone) {
  std::atomic<int> done{0};
  {
    Executor executor(1, 10);
    EXPECT_TRUE(executor.Run([] { throw std::bad_alloc(); }));
    EXPECT_TRUE(executor.Run([] { throw std::runtime_error("bad"); }));
    EXPECT_TRUE(executor.Run([&] { ++done; }));
  }
  EXPECT_EQ(done, 1);
}

TEST(ExecutorTest, RefusesWhatIsTooMuch) {
  Gate gate;
  std::atomic<int> begun{0};
  std::atomic<int> done{0};
  Executor executor(2, 3);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(executor.Run([&] {
      ++begun;
      gate.Wait();
      ++done;
    }));
  }
  ASSERT_TRUE(Eventually([&] { return begun == 2; }));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(executor.Run([&] { ++done; }));
  EXPECT_FALSE(executor.Run([&] { ++done; }));
  gate.Open();
  EXPECT_TRUE(Eventually([&] { return done == 5; }));
}

TEST(ExecutorTest, RespondsAsLongAsAnyTaskEnds) {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  Gate first;
  Gate second;
  std::atomic<int> begun{0};
  Executor executor(2, 1);
  const auto occupy = [&](Gate* gate) {
    EXPECT_TRUE(executor.Run([&begun, gate] {
      ++begun;
      gate->Wait();
    }));
  };
  EXPECT_TRUE(executor.Responds(steady_clock::now() + kPatience));
  occupy(&first);
  ASSERT_TRUE(Eventually([&] { return begun == 1; }));
  EXPECT_TRUE(executor.Responds(steady_clock::now() + kPatience));  // one thread is enough
  occupy(&second);
  ASSERT_TRUE(Eventually([&] { return begun == 2; }));
  // Both are busy; what it asks with waits once, however often it asks.
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(executor.Responds(steady_clock::now() + milliseconds(10)));
  first.Open();
  EXPECT_TRUE(executor.Responds(steady_clock::now() + kPatience));
  second.Open();
  EXPECT_TRUE(Eventually([&] { return executor.Run([] {}); }));
}

}  // namespace
}  // namespace lenet
