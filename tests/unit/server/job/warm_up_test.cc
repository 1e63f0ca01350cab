#include "server/job/warm_up.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

TEST(WarmUpTest, UsesEveryDeviceAndKeepsTheGroup) {
  std::atomic<int> ranks{0};
  ScriptedBackend backend(
      3, [&](int) { return FakeScript{.on_enqueue = [&ranks](int rank, const StepChunk&) { ranks |= 1 << rank; }}; });
  GroupCache groups(&backend, 8);
  const StopRequest stop;
  ASSERT_TRUE(WarmUp(&groups, std::vector<int>{0, 1, 2}, &stop).ok());
  EXPECT_EQ(ranks, 7);
  EXPECT_EQ(groups.size(), 1u);
}

TEST(WarmUpTest, NamesWhatFails) {
  ScriptedBackend backend(
      2, [&](int) { return FakeScript{.faults = {{.rank = 1, .status = absl::InternalError("device lost")}}}; });
  GroupCache groups(&backend, 8);
  const StopRequest stop;
  const absl::Status status = WarmUp(&groups, std::vector<int>{0, 1}, &stop);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("rank 1"));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("device lost"));
  EXPECT_EQ(groups.size(), 0u);
}

TEST(WarmUpTest, EndsWhenItIsToldTo) {
  ScriptedBackend backend(1, [](int) { return FakeScript{}; });
  GroupCache groups(&backend, 8);
  StopRequest stop;
  stop.Request(StopMode::kAbort);
  EXPECT_TRUE(absl::IsCancelled(WarmUp(&groups, std::vector<int>{0}, &stop)));
}

}  // namespace
}  // namespace lenet
