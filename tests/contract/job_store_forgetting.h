// What every JobStore must do when jobs are deleted, too old or too many.
#ifndef LENET_TESTS_CONTRACT_JOB_STORE_FORGETTING_H_
#define LENET_TESTS_CONTRACT_JOB_STORE_FORGETTING_H_

#include <string>
#include <thread>
#include <vector>

#include "tests/contract/job_store_contract.h"

namespace lenet {

class JobStoreForgetting : public JobStoreContract {
 protected:
  void Use(StoreLimits limits) {
    limits.forgotten = [this](const std::string& id) {
      // It may call the store.
      EXPECT_TRUE(absl::IsNotFound(store_->GetJob(id).status())) << id;
      forgotten_.push_back(id);
    };
    store_.reset();
    store_ = GetParam()(limits);
  }

  void End(const std::string& id, int second) { ASSERT_TRUE(Change(id, v1::QUEUED, v1::STOPPED, second).ok()); }

  std::vector<std::string> forgotten_;
};

TEST_P(JobStoreForgetting, ADeletedJobIsGone) {
  Use({});
  Create("a", "request");
  Create("b");
  ASSERT_TRUE(Change("a", v1::QUEUED, v1::STARTING).ok());
  ASSERT_TRUE(Change("a", v1::STARTING, v1::FAILED).ok());
  End("b", 10);
  ASSERT_TRUE(store_->DeleteJob("a").ok());
  EXPECT_TRUE(absl::IsNotFound(store_->GetJob("a").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->FindByRequestId("request").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->ListAttempts("a").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->ReadRecords("a", 1, 1000).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->DeleteJob("a")));
  EXPECT_THAT(Ids({}), ::testing::ElementsAre("b"));
  EXPECT_EQ(store_->ListChanges(0, 10, kMaxBytes)->jobs.size(), 1u);
  EXPECT_THAT(forgotten_, ::testing::ElementsAre("a"));
  // The id and the request id are free again, and nothing of the old job is left.
  Create("a", "request");
  EXPECT_EQ(store_->ReadRecords("a", 1, 1000)->records.size(), 1u);
  EXPECT_TRUE(store_->ListAttempts("a")->empty());
}

TEST_P(JobStoreForgetting, AJobThatHasNotEndedIsNotDeleted) {
  Use({});
  Create("a");
  const auto refused = [this](const std::string& state) {
    const absl::Status status = store_->DeleteJob("a");
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(state));
    EXPECT_TRUE(store_->GetJob("a").ok());
  };
  refused("QUEUED");
  ASSERT_TRUE(Change("a", v1::QUEUED, v1::PAUSED).ok());
  refused("PAUSED");
  ASSERT_TRUE(Change("a", v1::PAUSED, v1::QUEUED).ok());
  ASSERT_TRUE(Change("a", v1::QUEUED, v1::STARTING).ok());
  refused("STARTING");
  ASSERT_TRUE(Change("a", v1::STARTING, v1::RUNNING).ok());
  refused("RUNNING");
  ASSERT_TRUE(Change("a", v1::RUNNING, v1::STOPPING).ok());
  refused("STOPPING");
  EXPECT_TRUE(forgotten_.empty());
}

TEST_P(JobStoreForgetting, ADeletedJobCountsNoMore) {
  Use({.max_ended_jobs = 2, .max_total_log_bytes = 100000});
  for (const char* id : {"a", "b", "c", "d"}) {
    Create(id);
    ASSERT_TRUE(Append(id, {Warning(std::string(20000, 'x'))}).ok());
  }
  End("a", 10);
  End("b", 11);
  ASSERT_TRUE(store_->DeleteJob("b").ok());
  End("c", 12);
  EXPECT_THAT(Ids({}), ::testing::ElementsAre("d", "c", "a"));
  // About 60,000 bytes are in the logs: with those of "b" counted, "a" would lose records.
  ASSERT_TRUE(Append("d", {Warning(std::string(30000, 'x'))}).ok());
  EXPECT_EQ(store_->ReadRecords("a", 1, kMaxBytes)->first_sequence, 1u);
  End("d", 13);
  EXPECT_THAT(Ids({}), ::testing::ElementsAre("d", "c"));
  EXPECT_THAT(forgotten_, ::testing::ElementsAre("b", "a"));
}

TEST_P(JobStoreForgetting, OldJobsAreForgottenAndOthersAreNot) {
  Use({.max_age = absl::Seconds(60)});
  for (const char* id : {"a", "b", "c", "running", "waiting"}) Create(id);
  ASSERT_TRUE(Change("running", v1::QUEUED, v1::STARTING, 2).ok());
  End("a", 20);
  End("b", 10);  // the clock went back
  End("c", 40);
  ASSERT_TRUE(store_->ForgetOld(At(70)).ok());
  EXPECT_TRUE(forgotten_.empty());
  ASSERT_TRUE(store_->ForgetOld(At(71)).ok());
  EXPECT_THAT(forgotten_, ::testing::ElementsAre("b"));
  ASSERT_TRUE(store_->ForgetOld(At(1000000)).ok());
  EXPECT_THAT(forgotten_, ::testing::UnorderedElementsAre("a", "b", "c"));
  EXPECT_THAT(Ids({}), ::testing::ElementsAre("waiting", "running"));
}

TEST_P(JobStoreForgetting, TheAgeCanBeChangedFromAnotherThread) {
  Use({});
  for (const char* id : {"a", "b"}) Create(id);
  End("a", 10);
  End("b", 40);
  ASSERT_TRUE(store_->ForgetOld(At(71)).ok());
  EXPECT_TRUE(forgotten_.empty());
  std::thread changes([this] { store_->SetMaxAge(absl::Seconds(60)); });
  EXPECT_TRUE(store_->ForgetOld(At(60)).ok());
  changes.join();
  EXPECT_TRUE(forgotten_.empty());
  ASSERT_TRUE(store_->ForgetOld(At(71)).ok());
  EXPECT_THAT(forgotten_, ::testing::ElementsAre("a"));
  store_->SetMaxAge(absl::InfiniteDuration());
  ASSERT_TRUE(store_->ForgetOld(At(1000000)).ok());
  EXPECT_THAT(Ids({}), ::testing::ElementsAre("b"));
}

TEST_P(JobStoreForgetting, AnEndForgetsWhatIsTooOldByThen) {
  Use({.max_age = absl::Seconds(60)});
  Create("a");
  Create("b");
  End("a", 10);
  End("b", 71);
  EXPECT_THAT(forgotten_, ::testing::ElementsAre("a"));
  EXPECT_THAT(Ids({}), ::testing::ElementsAre("b"));
}

TEST_P(JobStoreForgetting, WithoutAnAgeNothingIsTooOld) {
  Use({});
  Create("a");
  End("a", 10);
  ASSERT_TRUE(store_->ForgetOld(absl::InfiniteFuture()).ok());
  EXPECT_TRUE(store_->GetJob("a").ok());
}

TEST_P(JobStoreForgetting, OfManyThreadsThatDeleteAJobOneDoes) {
  Use({});
  Create("a");
  End("a", 10);
  constexpr int kThreads = 8;
  std::atomic<int> deleted{0};
  std::atomic<int> missed{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const absl::Status status = store_->DeleteJob("a");
      if (status.ok()) ++deleted;
      if (absl::IsNotFound(status)) ++missed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(missed, kThreads - 1);
  EXPECT_THAT(forgotten_, ::testing::ElementsAre("a"));
}

}  // namespace lenet

#endif  // LENET_TESTS_CONTRACT_JOB_STORE_FORGETTING_H_
