// What MemoryStore forgets; the rest of its behaviour is tests/contract's.
#include "server/store/memory_store.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/support/new_job.h"

namespace lenet {
namespace {

std::vector<v1::MetricRecord> Warnings(int count, size_t bytes = 1000) {
  std::vector<v1::MetricRecord> records(static_cast<size_t>(count));
  for (v1::MetricRecord& record : records) record.mutable_warning()->set_message(std::string(bytes, 'x'));
  return records;
}

void Create(MemoryStore* store, const std::string& id, const std::string& request_id = "") {
  ASSERT_TRUE(store->CreateJob(NewJob(id, request_id), Warnings(1)).ok());
}

void Append(MemoryStore* store, const std::string& id, int count) {
  std::vector<v1::MetricRecord> records = Warnings(count);
  ASSERT_TRUE(store->AppendRecords(id, records).ok());
}

void End(MemoryStore* store, const std::string& id) {
  StateUpdate update = {.from = v1::QUEUED, .to = v1::STOPPED, .time = absl::Now()};
  update.records = Warnings(1);
  ASSERT_TRUE(store->ChangeState(id, update).ok());
}

RecordPage ReadAll(const MemoryStore& store, const std::string& id) { return *store.ReadRecords(id, 1, 1 << 30); }

TEST(MemoryStoreTest, ALogKeepsItsNewestRecordsWithinItsBytes) {
  MemoryStore store({.max_log_bytes = 20000});
  Create(&store, "a");
  Append(&store, "a", 99);
  const RecordPage page = ReadAll(store, "a");
  EXPECT_EQ(page.last_sequence, 100u);
  ASSERT_GT(page.records.size(), 10u);
  EXPECT_LT(page.records.size(), 20u);
  EXPECT_EQ(page.records.front()->sequence(), page.first_sequence);
  EXPECT_EQ(page.first_sequence, 101 - page.records.size());
  EXPECT_EQ(page.records.back()->sequence(), 100u);
}

TEST(MemoryStoreTest, TheNewestRecordStaysHoweverLarge) {
  MemoryStore store({.max_log_bytes = 100, .max_total_log_bytes = 100});
  Create(&store, "a");
  Append(&store, "a", 3);
  const RecordPage page = ReadAll(store, "a");
  ASSERT_EQ(page.records.size(), 1u);
  EXPECT_EQ(page.records.front()->sequence(), 4u);
}

TEST(MemoryStoreTest, TheTotalTakesFromEndedJobsFirstOldestEndFirst) {
  MemoryStore store({.max_total_log_bytes = 50000});
  for (const char* id : {"a", "b", "c"}) {
    Create(&store, id);
    Append(&store, id, 10);
  }
  End(&store, "b");
  End(&store, "a");
  Append(&store, "c", 24);  // about 16 records too many for the total

  EXPECT_EQ(ReadAll(store, "b").records.size(), 1u);  // the last one stays
  const size_t left_of_a = ReadAll(store, "a").records.size();
  EXPECT_GT(left_of_a, 1u);
  EXPECT_LT(left_of_a, 12u);
  EXPECT_EQ(ReadAll(store, "c").records.size(), 35u);

  Append(&store, "c", 60);
  EXPECT_EQ(ReadAll(store, "a").records.size(), 1u);
  const RecordPage page = ReadAll(store, "c");
  EXPECT_LT(page.records.size(), 50u);
  EXPECT_EQ(page.last_sequence, 95u);
  EXPECT_EQ(page.records.back()->sequence(), 95u);
}

TEST(MemoryStoreTest, ForgetsTheJobsThatEndedFirst) {
  MemoryStore store({.max_ended_jobs = 2});
  for (int i = 0; i < 4; ++i) Create(&store, absl::StrCat("job", i), absl::StrCat("request", i));
  for (int i : {2, 0, 3}) End(&store, absl::StrCat("job", i));

  EXPECT_TRUE(absl::IsNotFound(store.GetJob("job2").status()));
  EXPECT_TRUE(absl::IsNotFound(store.FindByRequestId("request2").status()));
  EXPECT_TRUE(absl::IsNotFound(store.ReadRecords("job2", 1, 100).status()));
  EXPECT_EQ(store.ListJobs({})->jobs.size(), 3u);
  EXPECT_EQ(store.ListChanges(0, 100, 1 << 20)->jobs.size(), 3u);
  EXPECT_TRUE(store.GetJob("job1").ok());  // has not ended
  // The request id is free again.
  const absl::StatusOr<CreateResult> again = store.CreateJob(NewJob("job9", "request2"), {});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->created);
}

TEST(MemoryStoreTest, ForgettingGivesTheBytesBack) {
  MemoryStore store({.max_ended_jobs = 1, .max_total_log_bytes = 60000});
  for (int i = 0; i < 20; ++i) {
    const std::string id = absl::StrCat("job", 10 + i);
    Create(&store, id);
    Append(&store, id, 20);
    EXPECT_EQ(ReadAll(store, id).records.size(), 21u) << id;
    End(&store, id);
  }
}

}  // namespace
}  // namespace lenet
