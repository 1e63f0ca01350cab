#include "server/store/timestamp.h"

#include "gtest/gtest.h"

namespace lenet {
namespace {

TEST(TimestampTest, RoundTripsToTheMicrosecond) {
  for (int64_t micros : {int64_t{0}, int64_t{1}, int64_t{999999}, int64_t{1000000}, int64_t{1796030000123456},
                         int64_t{-1}, int64_t{-1000000}, int64_t{-1500000}}) {
    const absl::Time time = absl::FromUnixMicros(micros);
    const google::protobuf::Timestamp timestamp = ToTimestamp(time);
    EXPECT_GE(timestamp.nanos(), 0);
    EXPECT_LT(timestamp.nanos(), 1000000000);
    EXPECT_EQ(FromTimestamp(timestamp), time) << micros;
  }
}

TEST(TimestampTest, DropsWhatIsBelowAMicrosecond) { EXPECT_EQ(ToTimestamp(absl::FromUnixNanos(1999)).nanos(), 1000); }

}  // namespace
}  // namespace lenet
