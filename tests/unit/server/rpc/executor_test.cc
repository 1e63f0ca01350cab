#include "server/rpc/executor.h"

#include <atomic>
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

}  // namespace
}  // namespace lenet
