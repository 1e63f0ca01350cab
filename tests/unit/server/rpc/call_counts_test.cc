#include "server/rpc/call_counts.h"

#include "gtest/gtest.h"

namespace lenet {
namespace {

TEST(CallCountsTest, AClientHasALimitOfItsOwn) {
  CallCounts calls({.max_calls = 10, .max_calls_per_client = 2});
  for (int i = 0; i < 3; ++i) calls.Begin("a");
  calls.Begin("b");
  EXPECT_EQ(calls.Check("a").message(),
            "3 calls of a are being answered; the limit is 2 (limits.max_calls_per_client)");
  EXPECT_TRUE(absl::IsResourceExhausted(calls.Check("a")));
  EXPECT_TRUE(calls.Check("b").ok());
  calls.End("a");
  EXPECT_TRUE(calls.Check("a").ok());
}

TEST(CallCountsTest, OneClientDoesNotTakeTheOthersPlaces) {
  CallCounts calls({.max_calls = 4, .max_calls_per_client = 2});
  for (int i = 0; i < 100; ++i) calls.Begin("a");
  calls.Begin("b");
  calls.Begin("b");
  EXPECT_TRUE(calls.Check("b").ok());
  calls.Begin("c");
  EXPECT_EQ(calls.Check("c").message(), "5 calls are being answered; the limit is 4 (limits.max_calls)");
  calls.End("b");
  EXPECT_TRUE(calls.Check("c").ok());
  // Those beyond its limit took no place, so they give none back.
  for (int i = 0; i < 98; ++i) calls.End("a");
  calls.Begin("d");
  EXPECT_FALSE(calls.Check("d").ok());
  calls.End("a");
  EXPECT_TRUE(calls.Check("d").ok());
}

TEST(CallCountsTest, WithoutALimitOfItsOwnAClientMayHaveAll) {
  CallCounts calls({.max_calls = 2, .max_calls_per_client = 0});
  calls.Begin("a");
  calls.Begin("a");
  EXPECT_TRUE(calls.Check("a").ok());
  calls.Begin("a");
  EXPECT_FALSE(calls.Check("a").ok());
}

TEST(CallCountsTest, LimitsMayChangeWhileCallsAreAnswered) {
  CallCounts calls({.max_calls = 4, .max_calls_per_client = 4});
  for (int i = 0; i < 4; ++i) calls.Begin("a");
  calls.SetLimits({.max_calls = 3, .max_calls_per_client = 1});
  EXPECT_FALSE(calls.Check("a").ok());
  calls.Begin("b");
  calls.Begin("c");
  EXPECT_TRUE(calls.Check("c").ok());  // one of each
  calls.SetLimits({.max_calls = 6, .max_calls_per_client = 4});
  EXPECT_TRUE(calls.Check("a").ok());
  calls.Begin("c");
  EXPECT_FALSE(calls.Check("c").ok());
  for (const char* client : {"a", "a", "a", "a", "b", "c", "c"}) calls.End(client);
  // Nothing is left of them.
  calls.SetLimits({.max_calls = 1, .max_calls_per_client = 1});
  calls.Begin("d");
  EXPECT_TRUE(calls.Check("d").ok()) << calls.Check("d");
}

}  // namespace
}  // namespace lenet
