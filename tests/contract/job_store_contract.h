// What every JobStore must do. Instantiate JobStoreContract with a factory of empty stores.
#ifndef LENET_TESTS_CONTRACT_JOB_STORE_CONTRACT_H_
#define LENET_TESTS_CONTRACT_JOB_STORE_CONTRACT_H_

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/job_state.h"
#include "server/store/job_store.h"
#include "server/store/timestamp.h"
#include "tests/support/new_job.h"

namespace lenet {

using JobStoreFactory = std::function<std::unique_ptr<JobStore>(const StoreLimits&)>;

class JobStoreContract : public ::testing::TestWithParam<JobStoreFactory> {
 protected:
  static v1::Job NewJob(const std::string& id, const std::string& request_id = "") {
    v1::Job job = lenet::NewJob(id, request_id);
    job.mutable_spec()->set_dataset(absl::StrCat("data of ", id));
    *job.mutable_created_at() = ToTimestamp(At(1));
    return job;
  }

  static constexpr int64_t kMaxBytes = 1 << 20;

  static absl::Time At(int second) { return absl::FromUnixSeconds(1700000000 + second); }

  static v1::MetricRecord Warning(const std::string& message) {
    v1::MetricRecord record;
    *record.mutable_time() = ToTimestamp(At(2));
    record.mutable_warning()->set_message(message);
    return record;
  }

  static std::string FileName(const std::string& path) { return std::filesystem::path(path).filename().string(); }

  void Create(const std::string& id, const std::string& request_id = "") {
    const absl::StatusOr<CreateResult> result = store_->CreateJob(NewJob(id, request_id), {Warning("created")});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(result->created);
  }

  absl::StatusOr<v1::Job> Change(const std::string& id, v1::JobState from, v1::JobState to, int second = 10) {
    return store_->ChangeState(id, {.from = from, .to = to, .time = At(second), .reason = absl::StrCat("to ", to)});
  }

  absl::StatusOr<uint64_t> Append(const std::string& id, std::vector<v1::MetricRecord> records) {
    return store_->AppendRecords(id, records);
  }

  std::vector<std::string> Ids(const JobQuery& query) {
    std::vector<std::string> ids;
    const JobPage page = store_->ListJobs(query).value();
    for (const v1::Job& job : page.jobs) ids.push_back(job.id());
    return ids;
  }

  std::unique_ptr<JobStore> store_ = GetParam()({});
};

TEST_P(JobStoreContract, AnEmptyStoreKnowsNothing) {
  EXPECT_TRUE(absl::IsNotFound(store_->GetJob("a").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->FindByRequestId("r").status()));
  EXPECT_TRUE(absl::IsNotFound(Change("a", v1::QUEUED, v1::STARTING).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->UpdateJob("a", [](v1::Job*) {}).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->DeleteJob("a")));
  EXPECT_TRUE(absl::IsNotFound(store_->ListAttempts("a").status()));
  EXPECT_TRUE(absl::IsNotFound(Append("a", {Warning("w")}).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->ReadRecords("a", 1, 1000).status()));
  EXPECT_TRUE(store_->ListJobs({})->jobs.empty());
  EXPECT_TRUE(store_->ListJobs({})->next_page_token.empty());
  EXPECT_TRUE(store_->ListChanges(0, 10, kMaxBytes)->jobs.empty());
  EXPECT_TRUE(store_->ListChanges(0, 10, kMaxBytes)->complete);
}

TEST_P(JobStoreContract, CountsJobsByState) {
  EXPECT_TRUE(store_->CountJobs()->empty());
  for (const char* id : {"a", "b", "c", "d"}) Create(id);
  ASSERT_TRUE(Change("a", v1::QUEUED, v1::STARTING).ok());
  ASSERT_TRUE(Change("b", v1::QUEUED, v1::STOPPED).ok());
  ASSERT_TRUE(Change("c", v1::QUEUED, v1::STOPPED).ok());
  const std::map<v1::JobState, int64_t> counts = {{v1::QUEUED, 1}, {v1::STARTING, 1}, {v1::STOPPED, 2}};
  EXPECT_EQ(store_->CountJobs().value(), counts);
  ASSERT_TRUE(store_->DeleteJob("b").ok());
  EXPECT_EQ(store_->CountJobs().value()[v1::STOPPED], 1);
}

TEST_P(JobStoreContract, KeepsAJobAsItWasCreated) {
  const v1::Job job = NewJob("a", "request");
  const absl::StatusOr<CreateResult> result = store_->CreateJob(job, {Warning("one"), Warning("two")});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->created);
  EXPECT_EQ(result->job.last_sequence(), 2u);
  const v1::Job kept = store_->GetJob("a").value();
  EXPECT_EQ(kept.SerializeAsString(), result->job.SerializeAsString());
  EXPECT_EQ(kept.spec().dataset(), "data of a");
  EXPECT_EQ(kept.attempt(), 0u);
  EXPECT_EQ(kept.log_epoch(), 1u);
  EXPECT_EQ(store_->FindByRequestId("request")->id(), "a");
  EXPECT_TRUE(store_->ListAttempts("a")->empty());
}

TEST_P(JobStoreContract, AnIdIsTakenOnce) {
  Create("a");
  EXPECT_TRUE(absl::IsAlreadyExists(store_->CreateJob(NewJob("a"), {}).status()));
  EXPECT_EQ(store_->ListJobs({})->jobs.size(), 1u);
}

TEST_P(JobStoreContract, ARequestIdGivesItsJob) {
  Create("a", "request");
  const absl::StatusOr<CreateResult> again = store_->CreateJob(NewJob("b", "request"), {Warning("w")});
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->created);
  EXPECT_EQ(again->job.id(), "a");
  EXPECT_EQ(again->job.last_sequence(), 1u);
  EXPECT_TRUE(absl::IsNotFound(store_->GetJob("b").status()));
}

TEST_P(JobStoreContract, AnEmptyRequestIdIsNone) {
  Create("a");
  Create("b");
  EXPECT_EQ(store_->ListJobs({})->jobs.size(), 2u);
}

TEST_P(JobStoreContract, OneRequestIdFromManyThreadsMakesOneJob) {
  constexpr int kThreads = 10;
  std::atomic<int> created{0};
  std::vector<std::string> ids(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const CreateResult result = store_->CreateJob(NewJob(absl::StrCat("job", i), "request"), {}).value();
      created += result.created;
      ids[static_cast<size_t>(i)] = result.job.id();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(created, 1);
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 1u);
  EXPECT_EQ(store_->ListJobs({})->jobs.size(), 1u);
}

TEST_P(JobStoreContract, PagesComeNewestFirstWithoutGapOrDouble) {
  for (int i = 0; i < 7; ++i) Create(absl::StrCat("job", i));
  JobQuery query = {.limit = 3};
  std::vector<std::string> ids;
  std::vector<size_t> sizes;
  do {
    const JobPage page = store_->ListJobs(query).value();
    for (const v1::Job& job : page.jobs) ids.push_back(job.id());
    sizes.push_back(page.jobs.size());
    query.page_token = page.next_page_token;
    // One that comes in between is newer than all that follow.
    Create(absl::StrCat("later", sizes.size()));
  } while (!query.page_token.empty());
  EXPECT_THAT(ids, ::testing::ElementsAre("job6", "job5", "job4", "job3", "job2", "job1", "job0"));
  EXPECT_THAT(sizes, ::testing::ElementsAre(3u, 3u, 1u));
}

TEST_P(JobStoreContract, TheLastFullPageHasNoToken) {
  for (int i = 0; i < 4; ++i) Create(absl::StrCat("job", i));
  JobQuery query = {.limit = 2};
  query.page_token = store_->ListJobs(query)->next_page_token;
  ASSERT_FALSE(query.page_token.empty());
  const JobPage page = store_->ListJobs(query).value();
  EXPECT_EQ(page.jobs.size(), 2u);
  EXPECT_TRUE(page.next_page_token.empty());
}

TEST_P(JobStoreContract, PagesOfSomeStates) {
  for (int i = 0; i < 6; ++i) Create(absl::StrCat("job", i));
  for (int i : {1, 3, 4}) ASSERT_TRUE(Change(absl::StrCat("job", i), v1::QUEUED, v1::STOPPED).ok());
  EXPECT_THAT(Ids({.states = {v1::STOPPED}}), ::testing::ElementsAre("job4", "job3", "job1"));
  EXPECT_THAT(Ids({.states = {v1::QUEUED}}), ::testing::ElementsAre("job5", "job2", "job0"));
  EXPECT_THAT(Ids({.states = {v1::RUNNING}}), ::testing::IsEmpty());
  EXPECT_EQ(Ids({.states = {v1::STOPPED, v1::QUEUED}}).size(), 6u);
  const JobPage first = store_->ListJobs({.states = {v1::STOPPED}, .limit = 2}).value();
  EXPECT_THAT(Ids({.states = {v1::STOPPED}, .limit = 2, .page_token = first.next_page_token}),
              ::testing::ElementsAre("job1"));
}

TEST_P(JobStoreContract, PagesAreBoundedInBytesButAlwaysGetOn) {
  constexpr int kJobs = 20;
  for (int i = 0; i < kJobs; ++i) {
    v1::Job job = NewJob(absl::StrCat("job", i));
    job.set_reason(std::string(1000, 'x'));
    ASSERT_TRUE(store_->CreateJob(job, {}).ok());
  }
  for (const auto& [max_bytes, most] : {std::pair(int64_t{1}, 1u), std::pair(int64_t{5000}, 4u)}) {
    JobQuery query = {.limit = 100, .max_bytes = max_bytes};
    std::set<std::string> listed;
    do {
      const JobPage page = store_->ListJobs(query).value();
      ASSERT_FALSE(page.jobs.empty());
      EXPECT_LE(page.jobs.size(), most);
      for (const v1::Job& job : page.jobs) EXPECT_TRUE(listed.insert(job.id()).second);
      query.page_token = page.next_page_token;
    } while (!query.page_token.empty());
    EXPECT_EQ(listed.size(), static_cast<size_t>(kJobs));

    std::set<std::string> changed;
    ChangePage page;
    do {
      page = store_->ListChanges(page.revision, 100, max_bytes).value();
      ASSERT_FALSE(page.jobs.empty());
      EXPECT_LE(page.jobs.size(), most);
      for (const v1::Job& job : page.jobs) EXPECT_TRUE(changed.insert(job.id()).second);
    } while (!page.complete);
    EXPECT_EQ(changed.size(), static_cast<size_t>(kJobs));
  }
}

TEST_P(JobStoreContract, RefusesAPageTokenThatIsNone) {
  Create("a");
  EXPECT_TRUE(absl::IsInvalidArgument(store_->ListJobs({.page_token = "../x"}).status()));
}

TEST_P(JobStoreContract, AChangeSetsStateReasonTimesAndAttempt) {
  Create("a");
  v1::Job job = Change("a", v1::QUEUED, v1::STARTING, 20).value();
  EXPECT_EQ(job.state(), v1::STARTING);
  EXPECT_EQ(job.reason(), "to 2");
  EXPECT_EQ(job.attempt(), 1u);
  EXPECT_EQ(FromTimestamp(job.started_at()), At(20));
  EXPECT_FALSE(job.has_ended_at());
  std::vector<Attempt> attempts = store_->ListAttempts("a").value();
  ASSERT_EQ(attempts.size(), 1u);
  EXPECT_EQ(attempts[0].number, 1u);
  EXPECT_EQ(attempts[0].started_at, At(20));
  EXPECT_FALSE(attempts[0].ended_at.has_value());

  ASSERT_TRUE(Change("a", v1::STARTING, v1::RUNNING, 21).ok());
  job = Change("a", v1::RUNNING, v1::SUCCEEDED, 30).value();
  EXPECT_EQ(FromTimestamp(job.started_at()), At(20));
  EXPECT_EQ(FromTimestamp(job.ended_at()), At(30));
  attempts = store_->ListAttempts("a").value();
  ASSERT_EQ(attempts.size(), 1u);
  EXPECT_EQ(attempts[0].ended_at, At(30));
  EXPECT_EQ(attempts[0].end_state, v1::SUCCEEDED);
  EXPECT_EQ(store_->GetJob("a")->SerializeAsString(), job.SerializeAsString());
}

TEST_P(JobStoreContract, AnAttemptThatIsGivenUpIsClosedAndTheNextOneOpened) {
  Create("a");
  const std::vector<std::pair<v1::JobState, v1::JobState>> ways = {
      {v1::STARTING, v1::QUEUED}, {v1::STARTING, v1::PAUSED}, {v1::RUNNING, v1::QUEUED}, {v1::RUNNING, v1::PAUSED}};
  int second = 20;
  uint32_t attempt = 0;
  for (const auto& [from, to] : ways) {
    ASSERT_TRUE(Change("a", v1::QUEUED, v1::STARTING, second++).ok());
    if (from == v1::RUNNING) {
      ASSERT_TRUE(Change("a", v1::STARTING, v1::RUNNING, second++).ok());
    }
    const v1::Job job = Change("a", from, to, second).value();
    EXPECT_EQ(job.attempt(), ++attempt);
    EXPECT_FALSE(job.has_ended_at());
    EXPECT_EQ(FromTimestamp(job.started_at()), At(20));
    const std::vector<Attempt> attempts = store_->ListAttempts("a").value();
    ASSERT_EQ(attempts.size(), attempt);
    EXPECT_EQ(attempts.back().ended_at, At(second++));
    EXPECT_EQ(attempts.back().end_state, to);
    // Changes without an open attempt leave the closed one alone.
    if (to == v1::PAUSED) {
      ASSERT_TRUE(Change("a", v1::PAUSED, v1::QUEUED, second++).ok());
    } else {
      ASSERT_TRUE(Change("a", v1::QUEUED, v1::PAUSED, second++).ok());
      ASSERT_TRUE(Change("a", v1::PAUSED, v1::QUEUED, second++).ok());
    }
    EXPECT_EQ(store_->ListAttempts("a")->back().end_state, to);
  }
  ASSERT_TRUE(Change("a", v1::QUEUED, v1::PAUSED, second++).ok());
  EXPECT_EQ(FromTimestamp(Change("a", v1::PAUSED, v1::STOPPED, second)->ended_at()), At(second));
  EXPECT_EQ(store_->ListAttempts("a")->back().end_state, v1::PAUSED);
}

TEST_P(JobStoreContract, AJobThatNeverRanHasNoAttempt) {
  Create("a");
  const v1::Job job = Change("a", v1::QUEUED, v1::STOPPED, 20).value();
  EXPECT_EQ(job.attempt(), 0u);
  EXPECT_FALSE(job.has_started_at());
  EXPECT_EQ(FromTimestamp(job.ended_at()), At(20));
  EXPECT_TRUE(store_->ListAttempts("a")->empty());
}

TEST_P(JobStoreContract, AChangeFromAnotherStateIsAbortedAndChangesNothing) {
  Create("a");
  ASSERT_TRUE(Change("a", v1::QUEUED, v1::STARTING).ok());
  const std::string before = store_->GetJob("a")->SerializeAsString();
  const uint64_t revision = store_->revision();
  StateUpdate update = {.from = v1::QUEUED, .to = v1::STOPPED, .time = At(30), .reason = "late"};
  update.edit = [](v1::Job*) { FAIL() << "edited"; };
  update.records.push_back(Warning("late"));
  const absl::Status status = store_->ChangeState("a", update).status();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("STARTING"));
  EXPECT_EQ(store_->GetJob("a")->SerializeAsString(), before);
  EXPECT_EQ(store_->revision(), revision);
}

TEST_P(JobStoreContract, AnIllegalChangeIsRefused) {
  Create("a");
  EXPECT_EQ(Change("a", v1::QUEUED, v1::RUNNING).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Change("a", v1::QUEUED, v1::SUCCEEDED).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(store_->GetJob("a")->state(), v1::QUEUED);
}

TEST_P(JobStoreContract, OfManyThreadsThatChangeOneStateOneWins) {
  Create("a");
  constexpr int kThreads = 10;
  std::atomic<int> won{0};
  std::atomic<int> lost{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const absl::Status status = Change("a", v1::QUEUED, i % 2 == 0 ? v1::STARTING : v1::STOPPED).status();
      if (status.ok()) ++won;
      if (absl::IsAborted(status)) ++lost;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(lost, kThreads - 1);
}

TEST_P(JobStoreContract, AChangeCarriesAnEditAndRecords) {
  Create("a");
  StateUpdate update = {.from = v1::QUEUED, .to = v1::STARTING, .time = At(20)};
  update.edit = [](v1::Job* job) { job->mutable_resolved()->set_ranks(4); };
  update.records = {Warning("x"), Warning("y")};
  const v1::Job job = store_->ChangeState("a", update).value();
  EXPECT_EQ(job.resolved().ranks(), 4);
  EXPECT_EQ(job.last_sequence(), 3u);
  const RecordPage page = store_->ReadRecords("a", 1, 1 << 20).value();
  ASSERT_EQ(page.records.size(), 3u);
  EXPECT_EQ(page.records[2]->warning().message(), "y");
  EXPECT_EQ(page.records[0]->attempt(), 0u);
  EXPECT_EQ(page.records[2]->attempt(), 1u);
}

TEST_P(JobStoreContract, AnUpdateEditsAndTakesNoRevision) {
  Create("a");
  const uint64_t revision = store_->revision();
  const v1::Job job = store_->UpdateJob("a", [](v1::Job* edited) { edited->set_reason("because"); }).value();
  EXPECT_EQ(job.reason(), "because");
  EXPECT_EQ(store_->GetJob("a")->reason(), "because");
  EXPECT_EQ(store_->revision(), revision);
}

TEST_P(JobStoreContract, ChangesComeInOrderEachJobAtItsNewest) {
  Create("a");
  Create("b");
  Create("c");
  ASSERT_TRUE(Change("a", v1::QUEUED, v1::STARTING).ok());
  const auto ids = [](const ChangePage& page) {
    std::vector<std::string> ids;
    for (const v1::Job& job : page.jobs) ids.push_back(job.id());
    return ids;
  };
  ChangePage page = store_->ListChanges(0, 2, kMaxBytes).value();
  EXPECT_THAT(ids(page), ::testing::ElementsAre("b", "c"));
  EXPECT_FALSE(page.complete);
  page = store_->ListChanges(page.revision, 2, kMaxBytes).value();
  EXPECT_THAT(ids(page), ::testing::ElementsAre("a"));
  EXPECT_EQ(page.jobs[0].state(), v1::STARTING);
  EXPECT_TRUE(page.complete);
  EXPECT_EQ(page.revision, store_->revision());

  EXPECT_TRUE(store_->ListChanges(page.revision, 2, kMaxBytes)->jobs.empty());
  ASSERT_TRUE(Change("c", v1::QUEUED, v1::STOPPED).ok());
  EXPECT_GT(store_->revision(), page.revision);
  EXPECT_THAT(ids(store_->ListChanges(page.revision, 2, kMaxBytes).value()), ::testing::ElementsAre("c"));
}

TEST_P(JobStoreContract, SequencesCountWithoutGapsFromOne) {
  Create("a");
  Create("b");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Append("a", {Warning("x"), Warning("y")}).value(), 3u + 2 * static_cast<unsigned>(i));
  }
  const RecordPage page = store_->ReadRecords("a", 0, 1 << 20).value();
  ASSERT_EQ(page.records.size(), 11u);
  for (size_t i = 0; i < page.records.size(); ++i) EXPECT_EQ(page.records[i]->sequence(), i + 1);
  EXPECT_EQ(page.first_sequence, 1u);
  EXPECT_EQ(page.last_sequence, 11u);
  EXPECT_FALSE(page.ended);
  EXPECT_EQ(store_->GetJob("a")->last_sequence(), 11u);
  EXPECT_EQ(store_->GetJob("b")->last_sequence(), 1u);
}

TEST_P(JobStoreContract, RecordsComeBackAsTheyWere) {
  Create("a");
  v1::MetricRecord record;
  *record.mutable_time() = ToTimestamp(At(5) + absl::Microseconds(123456));
  record.mutable_step_losses()->add_steps(1);
  record.mutable_step_losses()->add_ranks(3);
  record.mutable_step_losses()->add_losses(std::numeric_limits<float>::quiet_NaN());
  record.mutable_step_losses()->add_steps(int64_t{1} << 40);
  record.mutable_step_losses()->add_ranks(0);
  record.mutable_step_losses()->add_losses(-std::numeric_limits<float>::infinity());
  v1::MetricRecord expected = record;
  ASSERT_TRUE(Append("a", {record}).ok());
  expected.set_sequence(2);
  const RecordPage page = store_->ReadRecords("a", 2, 1 << 20).value();
  ASSERT_EQ(page.records.size(), 1u);
  EXPECT_EQ(page.records[0]->SerializeAsString(), expected.SerializeAsString());
}

TEST_P(JobStoreContract, ReadingIsBoundedInBytesButAlwaysGetsOn) {
  Create("a");
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Append("a", {Warning(std::string(1000, 'x'))}).ok());
  uint64_t next = 1;
  int pages = 0;
  while (next <= 51) {
    const RecordPage page = store_->ReadRecords("a", next, 10000).value();
    ASSERT_FALSE(page.records.empty());
    EXPECT_LE(page.records.size(), 12u);
    for (const RecordPtr& record : page.records) EXPECT_EQ(record->sequence(), next++);
    ++pages;
  }
  EXPECT_GE(pages, 5);
  EXPECT_EQ(store_->ReadRecords("a", 1, 1)->records.size(), 1u);
}

TEST_P(JobStoreContract, ReadingBeyondTheNewestGivesNothing) {
  Create("a");
  for (uint64_t from : {uint64_t{2}, uint64_t{3}, uint64_t{1000}, ~uint64_t{0}}) {
    const RecordPage page = store_->ReadRecords("a", from, 1000).value();
    EXPECT_TRUE(page.records.empty());
    EXPECT_EQ(page.last_sequence, 1u);
  }
}

TEST_P(JobStoreContract, ALogEndsWithItsJob) {
  Create("a");
  StateUpdate update = {.from = v1::QUEUED, .to = v1::STOPPED, .time = At(20)};
  update.records = {Warning("last")};
  ASSERT_TRUE(store_->ChangeState("a", update).ok());
  const RecordPage page = store_->ReadRecords("a", 1, 1 << 20).value();
  EXPECT_TRUE(page.ended);
  EXPECT_EQ(page.records.back()->warning().message(), "last");
  std::vector<v1::MetricRecord> late = {Warning("too late")};
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->AppendRecords("a", late).status()));
  EXPECT_EQ(late[0].warning().message(), "too late");  // as it was
  EXPECT_EQ(store_->GetJob("a")->last_sequence(), 2u);
}

TEST_P(JobStoreContract, AppendedRecordsGetTheirNumbers) {
  Create("a");
  ASSERT_TRUE(Change("a", v1::QUEUED, v1::STARTING).ok());
  std::vector<v1::MetricRecord> records = {Warning("x"), Warning("y")};
  ASSERT_EQ(store_->AppendRecords("a", records).value(), 3u);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].sequence(), i + 2);
    EXPECT_EQ(records[i].attempt(), 1u);
    EXPECT_EQ(records[i].SerializeAsString(), store_->ReadRecords("a", i + 2, 1)->records[0]->SerializeAsString());
  }
}

TEST_P(JobStoreContract, CheckpointRecordsAreKeptWithTheJob) {
  Create("a");
  const auto saved = [](int64_t step, const std::string& path) {
    v1::MetricRecord record;
    *record.mutable_time() = ToTimestamp(At(100 + static_cast<int>(step)));
    record.mutable_checkpoint_saved()->set_step(step);
    record.mutable_checkpoint_saved()->set_path(path);
    return record;
  };
  v1::MetricRecord third = saved(30, "/jobs/a/30");
  third.mutable_checkpoint_saved()->set_epoch(3);
  third.mutable_checkpoint_saved()->set_bytes(1234);
  third.mutable_checkpoint_saved()->set_weights_checksum(0xfedcba9876543210);
  third.mutable_checkpoint_saved()->set_accuracy(0.75);
  ASSERT_TRUE(Append("a", {saved(10, "/jobs/a/10"), Warning("w"), third}).ok());
  ASSERT_TRUE(Append("a", {saved(20, "/jobs/a/20")}).ok());
  v1::Job job = store_->GetJob("a").value();
  EXPECT_EQ(FileName(job.checkpoint()), "20");  // saved last
  ASSERT_EQ(job.checkpoints_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(job.checkpoints(i).step(), 10 * (i + 1));
    EXPECT_EQ(FileName(job.checkpoints(i).path()), absl::StrCat(10 * (i + 1)));
    EXPECT_EQ(FromTimestamp(job.checkpoints(i).saved_at()), At(100 + 10 * (i + 1)));
    EXPECT_EQ(job.checkpoints(i).has_accuracy(), i == 2);
  }
  EXPECT_EQ(job.checkpoints(2).epoch(), 3);
  EXPECT_EQ(job.checkpoints(2).bytes(), 1234);
  EXPECT_EQ(job.checkpoints(2).weights_checksum(), 0xfedcba9876543210);
  EXPECT_EQ(job.checkpoints(2).accuracy(), 0.75);

  // One of the same step takes its place; one with a change of state counts as well; an edit takes out.
  StateUpdate update = {.from = v1::QUEUED, .to = v1::STARTING, .time = At(20)};
  update.records = {saved(30, "/jobs/a/again"), saved(40, "/jobs/a/40")};
  ASSERT_TRUE(store_->ChangeState("a", update).ok());
  ASSERT_TRUE(
      store_->UpdateJob("a", [](v1::Job* edited) { edited->mutable_checkpoints()->DeleteSubrange(0, 2); }).ok());
  job = store_->GetJob("a").value();
  ASSERT_EQ(job.checkpoints_size(), 2);
  EXPECT_EQ(FileName(job.checkpoints(0).path()), "again");
  EXPECT_FALSE(job.checkpoints(0).has_accuracy());
  EXPECT_EQ(FileName(job.checkpoints(1).path()), "40");
  EXPECT_EQ(FileName(job.checkpoint()), "40");
}

TEST_P(JobStoreContract, ALogBeginsInItsFirstEpoch) {
  Create("a");
  const RecordPage page = store_->ReadRecords("a", 1, 1000).value();
  EXPECT_EQ(page.log_epoch, 1u);
  EXPECT_TRUE(page.epoch_starts.empty());
}

TEST_P(JobStoreContract, ManyThreadsAppendAndReadOneLog) {
  Create("a");
  constexpr int kWriters = 4;
  constexpr int kEach = 100;
  std::vector<std::thread> threads;
  threads.reserve(2 * kWriters);
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([this, w] {
      for (int i = 0; i < kEach; ++i) ASSERT_TRUE(Append("a", {Warning(absl::StrCat(w, ":", i))}).ok());
    });
  }
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([this] {
      for (uint64_t next = 1; next <= 1 + kWriters * kEach;) {
        const RecordPage page = store_->ReadRecords("a", next, 5000).value();
        for (const RecordPtr& record : page.records) ASSERT_EQ(record->sequence(), next++);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Each writer's records are in its order.
  std::vector<int> seen(kWriters, 0);
  const RecordPage page = store_->ReadRecords("a", 2, 1 << 30).value();
  for (const RecordPtr& record : page.records) {
    const std::string message = record->warning().message();
    const size_t writer = static_cast<size_t>(message[0] - '0');
    EXPECT_EQ(message, absl::StrCat(writer, ":", seen[writer]++));
  }
  EXPECT_THAT(seen, ::testing::Each(kEach));
}

}  // namespace lenet

#endif  // LENET_TESTS_CONTRACT_JOB_STORE_CONTRACT_H_
