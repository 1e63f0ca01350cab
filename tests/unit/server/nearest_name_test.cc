#include "server/nearest_name.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lenet {
namespace {

const std::vector<std::string>& Known() {
  static const auto* const known = new std::vector<std::string>{"listen", "log_level", "max_queued", "max_job_days"};
  return *known;
}

TEST(NearestNameTest, FindsWhatWasMeant) {
  EXPECT_EQ(NearestName("listn", Known()), "listen");    // a letter left out
  EXPECT_EQ(NearestName("lissten", Known()), "listen");  // one too many
  EXPECT_EQ(NearestName("lasten", Known()), "listen");   // another one
  EXPECT_EQ(NearestName("max_queud", Known()), "max_queued");
  EXPECT_EQ(NearestName("max_jobs_days", Known()), "max_job_days");
  EXPECT_EQ(NearestName("loglevel", Known()), "log_level");
  EXPECT_EQ(NearestName("listen", Known()), "listen");
}

TEST(NearestNameTest, TheNearestOfSeveralAndTheFirstOfEquals) {
  EXPECT_EQ(NearestName("abcdee", {"abcdff", "abcdef", "abcdeg"}), "abcdef");
  EXPECT_EQ(NearestName("abcdee", {"abcdeg", "abcdef"}), "abcdeg");
}

TEST(NearestNameTest, NothingIfNoneIsNear) {
  EXPECT_EQ(NearestName("", Known()), "");
  EXPECT_EQ(NearestName("x", Known()), "");
  EXPECT_EQ(NearestName("colour", Known()), "");
  EXPECT_EQ(NearestName("lis", {"listen"}), "");  // three of three characters
  EXPECT_EQ(NearestName("listen", {}), "");
  EXPECT_EQ(NearestName(std::string(129, 'a'), {std::string(129, 'a')}), "");
}

}  // namespace
}  // namespace lenet
