#include "server/job/job_id.h"

#include <set>
#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace lenet {
namespace {

TEST(JobIdTest, IsAFileNameOfSixteenCharacters) {
  JobIdGenerator ids;
  const std::string id = ids.Next(absl::Now());
  EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdefghjkmnpqrstvwxyz"), std::string::npos);
}

TEST(JobIdTest, EachSortsAfterTheOneBefore) {
  JobIdGenerator ids;
  const absl::Time now = absl::Now();
  std::string last;
  for (int i = 0; i < 1000; ++i) {
    // Several in a millisecond, and a clock that goes back.
    const std::string id =
        ids.Next(now + absl::Milliseconds(i / 10) - (i == 500 ? absl::Hours(1) : absl::ZeroDuration()));
    EXPECT_GT(id, last);
    last = id;
  }
  EXPECT_GT(ids.Next(now + absl::Hours(24 * 365 * 20)), last);
}

TEST(JobIdTest, TwoGeneratorsAgreeOnTheTimeAlone) {
  JobIdGenerator a;
  JobIdGenerator b;
  const absl::Time now = absl::FromUnixMillis(1796030000123);
  const std::string from_a = a.Next(now);
  const std::string from_b = b.Next(now);
  EXPECT_EQ(from_a.substr(0, 9), from_b.substr(0, 9));
  EXPECT_NE(from_a.substr(9), from_b.substr(9));
}

TEST(JobIdTest, SortsAfterAnotherProcesssWhoseClockWasAhead) {
  JobIdGenerator ahead;
  JobIdGenerator ids;
  const absl::Time now = absl::FromUnixMillis(1796030000123);
  const std::string other = ahead.Next(now + absl::Hours(1));
  ids.StartAfter(other);
  EXPECT_GT(ids.Next(now), other);
  ids.StartAfter("");
  EXPECT_GT(ids.Next(now), other);
}

TEST(JobIdTest, DoesNotRepeat) {
  std::set<std::string> random_parts;
  for (int i = 0; i < 200; ++i) random_parts.insert(JobIdGenerator().Next(absl::Now()).substr(9));
  EXPECT_EQ(random_parts.size(), 200u);
}

}  // namespace
}  // namespace lenet
