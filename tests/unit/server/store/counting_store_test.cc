// What CountingStore counts; that it is a store is tests/contract's.
#include "server/store/counting_store.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/support/failing_store.h"
#include "tests/support/new_job.h"

namespace lenet {
namespace {

uint64_t Count(const StoreCounters::Operation& operation) {
  const std::vector<uint64_t> counts = operation.seconds.Get().counts;
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

class CountingStoreTest : public ::testing::Test {
 protected:
  absl::Status Change(const std::string& id, v1::JobState from, v1::JobState to) {
    return store_.ChangeState(id, {.from = from, .to = to, .time = absl::Now()}).status();
  }

  FailingStore inner_;
  CountingStore store_{&inner_};
  const StoreCounters& counters_ = store_.counters();
};

TEST_F(CountingStoreTest, CountsJobsByTheirEnds) {
  for (const char* id : {"a", "b", "c", "d"}) ASSERT_TRUE(store_.CreateJob(NewJob(id, id), {}).ok());
  // Of an equal request: no job is accepted.
  ASSERT_FALSE(store_.CreateJob(NewJob("e", "a"), {})->created);
  EXPECT_EQ(counters_.accepted.value(), 4u);
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(Change(id, v1::QUEUED, v1::STARTING).ok());
    ASSERT_TRUE(Change(id, v1::STARTING, v1::RUNNING).ok());
  }
  ASSERT_TRUE(Change("a", v1::RUNNING, v1::SUCCEEDED).ok());
  ASSERT_TRUE(Change("b", v1::RUNNING, v1::SUCCEEDED).ok());
  ASSERT_TRUE(Change("c", v1::RUNNING, v1::FAILED).ok());
  ASSERT_TRUE(Change("d", v1::QUEUED, v1::STOPPED).ok());
  // Too late.
  EXPECT_TRUE(absl::IsAborted(Change("d", v1::QUEUED, v1::STOPPED)));
  EXPECT_EQ(counters_.succeeded.value(), 2u);
  EXPECT_EQ(counters_.failed.value(), 1u);
  EXPECT_EQ(counters_.stopped.value(), 1u);
}

TEST_F(CountingStoreTest, TimesWritesAndTellsFailuresFromAnswers) {
  ASSERT_TRUE(store_.CreateJob(NewJob("a"), {}).ok());
  ASSERT_TRUE(store_.UpdateJob("a", [](v1::Job*) {}).ok());
  std::vector<v1::MetricRecord> records(1);
  ASSERT_TRUE(store_.AppendRecords("a", records).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(store_.DeleteJob("a")));
  EXPECT_TRUE(absl::IsNotFound(store_.UpdateJob("none", [](v1::Job*) {}).status()));
  EXPECT_TRUE(absl::IsNotFound(store_.GetJob("none").status()));
  for (const StoreCounters::Operation* operation : counters_.writes()) {
    EXPECT_EQ(operation->failures.value(), 0u) << operation->name;
  }
  EXPECT_EQ(counters_.read_failures.value(), 0u);

  inner_.full = true;
  EXPECT_FALSE(store_.AppendRecords("a", records).ok());
  inner_.down = true;
  EXPECT_FALSE(store_.AppendRecords("a", records).ok());
  EXPECT_FALSE(Change("a", v1::QUEUED, v1::STARTING).ok());
  EXPECT_FALSE(store_.GetJob("a").ok());
  EXPECT_EQ(counters_.append.failures.value(), 2u);
  EXPECT_EQ(counters_.change_state.failures.value(), 1u);
  EXPECT_EQ(counters_.read_failures.value(), 1u);
  EXPECT_EQ(Count(counters_.append), 3u);
  EXPECT_EQ(Count(counters_.update), 2u);
  EXPECT_EQ(Count(counters_.create), 1u);
  EXPECT_EQ(Count(counters_.remove), 1u);
  EXPECT_GT(counters_.append.seconds.Get().sum, 0);
}

}  // namespace
}  // namespace lenet
