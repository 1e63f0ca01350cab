#include "server/job/store_patience.h"

#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;
using Clock = StorePatience::Clock;

TEST(StorePatienceTest, PausesGrow) {
  StorePatience patience;
  const auto pause = [&](int failures) {
    const auto begin = Clock::now();
    EXPECT_TRUE(patience.Pause(failures));
    return Clock::now() - begin;
  };
  EXPECT_GE(pause(1), milliseconds(100));
  EXPECT_GE(pause(2), milliseconds(200));
  EXPECT_GE(pause(3), milliseconds(400));
}

TEST(StorePatienceTest, TheEarliestDeadlineCounts) {
  const auto begin = Clock::now();
  StorePatience patience(begin + milliseconds(150));
  patience.EndAt(begin + std::chrono::hours(1));
  EXPECT_TRUE(patience.Pause(1000));  // five seconds otherwise
  EXPECT_GE(Clock::now() - begin, milliseconds(150));
  EXPECT_LT(Clock::now() - begin, milliseconds(4000));
  EXPECT_FALSE(patience.Pause(1));
}

TEST(StorePatienceTest, ADeadlineEndsThePauseForOneMoreTry) {
  StorePatience patience;
  const auto begin = Clock::now();
  std::thread ender([&] {
    std::this_thread::sleep_for(milliseconds(50));
    patience.EndAt(Clock::now() + std::chrono::hours(1));
  });
  EXPECT_TRUE(patience.Pause(1000));
  EXPECT_LT(Clock::now() - begin, milliseconds(4000));
  ender.join();
}

}  // namespace
}  // namespace lenet
