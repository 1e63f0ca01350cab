#include "server/monitoring/process_stats.h"

#include <fcntl.h>

#include <cstdint>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "trainer/base/descriptor.h"

namespace lenet {
namespace {

TEST(ProcessStatsTest, TellsOfThisProcess) {
  const absl::StatusOr<ProcessStats> before = ReadProcessStats();
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_GT(before->resident_bytes, 100'000);
  EXPECT_GT(before->virtual_bytes, before->resident_bytes);
  EXPECT_GE(before->threads, 1);
  EXPECT_GE(before->max_fds, before->open_fds);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LT(before->start_time, now + 2);
  EXPECT_GT(before->start_time, now - 3600);

  const UniqueDescriptor one(Descriptor{::open("/dev/null", O_RDONLY)});
  // Work for the clock, whose unit is a hundredth of a second.
  volatile uint64_t sum = 0;
  absl::StatusOr<ProcessStats> after = ReadProcessStats();
  for (int round = 0; round < 10'000 && after.ok() && after->cpu_seconds <= before->cpu_seconds; ++round) {
    for (uint64_t i = 0; i < 1'000'000; ++i) sum = sum + i;
    after = ReadProcessStats();
  }
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_GT(after->cpu_seconds, before->cpu_seconds);
  EXPECT_EQ(after->open_fds, before->open_fds + 1);
}

}  // namespace
}  // namespace lenet
