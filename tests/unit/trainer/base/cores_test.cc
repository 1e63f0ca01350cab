#include "trainer/base/cores.h"

#include <sched.h>

#include <thread>

#include "gtest/gtest.h"

namespace lenet {
namespace {

TEST(CoresTest, FollowsTheAffinityMask) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  EXPECT_GE(UsableCores(), 1);
  EXPECT_LE(UsableCores(), CPU_COUNT(&all));
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  std::thread([first] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(UsableCores(), 1);
  }).join();
}

TEST(CoresTest, QuotaIsRoundedUpToWholeCores) {
  EXPECT_EQ(QuotaCores("max 100000"), 0);
  EXPECT_EQ(QuotaCores(""), 0);
  EXPECT_EQ(QuotaCores("0 100000"), 0);
  EXPECT_EQ(QuotaCores("100000"), 0);
  EXPECT_EQ(QuotaCores("50000 100000"), 1);
  EXPECT_EQ(QuotaCores("100000 100000"), 1);
  EXPECT_EQ(QuotaCores("100001 100000"), 2);
  EXPECT_EQ(QuotaCores("1600000 100000"), 16);
}

}  // namespace
}  // namespace lenet
