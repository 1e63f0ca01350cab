#include "server/store/sqlite_store.h"

#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/timestamp.h"
#include "tests/support/new_job.h"
#include "tests/support/temp_folder.h"

namespace lenet {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::MetricRecord Warning(const std::string& message) {
  v1::MetricRecord record;
  record.mutable_warning()->set_message(message);
  return record;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class SqliteStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<SqliteStore> Open(const StoreLimits& options = {}) {
    absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(folder_.path(), options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  absl::Status OpenError() { return SqliteStore::Open(folder_.path()).status(); }

  void Execute(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((folder_.path() / "lenetd.db").c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  static absl::StatusOr<v1::Job> Change(SqliteStore* store, const std::string& id, v1::JobState from, v1::JobState to) {
    return store->ChangeState(id, {.from = from, .to = to, .time = absl::Now(), .reason = "changed"});
  }

  static std::vector<std::string> Log(const SqliteStore& store, const std::string& id, uint64_t from = 1) {
    std::vector<std::string> messages;
    while (true) {
      const absl::StatusOr<RecordPage> page = store.ReadRecords(id, from, 4000);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok() || page->records.empty()) return messages;
      for (const RecordPtr& record : page->records) {
        if (!messages.empty()) {
          EXPECT_EQ(record->sequence(), from);
        }
        messages.push_back(record->warning().message());
        from = record->sequence() + 1;
      }
    }
  }

  TempFolder folder_;
};

TEST_F(SqliteStoreTest, EverythingIsThereAgainAfterReopening) {
  std::string before;
  uint64_t revision = 0;
  {
    const auto store = Open();
    ASSERT_TRUE(store->CreateJob(NewJob("a", "request"), {Warning("1")}).ok());
    ASSERT_TRUE(store->CreateJob(NewJob("b"), {}).ok());
    ASSERT_TRUE(Change(store.get(), "a", v1::QUEUED, v1::STARTING).ok());
    std::vector<v1::MetricRecord> records = {Warning("2"), Warning("3")};
    ASSERT_EQ(*store->AppendRecords("a", records), 3u);
    ASSERT_TRUE(store->UpdateJob("a", [](v1::Job* job) { job->mutable_resolved()->set_ranks(7); }).ok());
    before = store->GetJob("a")->SerializeAsString();
    revision = store->revision();
  }
  const auto store = Open();
  EXPECT_EQ(store->GetJob("a")->SerializeAsString(), before);
  EXPECT_EQ(store->GetJob("a")->resolved().ranks(), 7);
  EXPECT_EQ(store->revision(), revision);
  EXPECT_EQ(store->FindByRequestId("request")->id(), "a");
  EXPECT_EQ(store->ListAttempts("a")->size(), 1u);
  EXPECT_EQ(Log(*store, "a"), (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(store->ListChanges(0, 10, 1 << 20)->jobs.size(), 2u);
  std::vector<v1::MetricRecord> more = {Warning("4")};
  EXPECT_EQ(*store->AppendRecords("a", more), 4u);
  EXPECT_TRUE(Change(store.get(), "b", v1::QUEUED, v1::STOPPED).ok());
  EXPECT_GT(store->revision(), revision);
}

TEST_F(SqliteStoreTest, ASecondProcessIsRefusedAndTouchesNothing) {
  const auto store = Open();
  ASSERT_TRUE(store->CreateJob(NewJob("a"), {}).ok());
  const absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("lenetd.lock"));
  EXPECT_TRUE(store->GetJob("a").ok());
}

TEST_F(SqliteStoreTest, ANewerVersionIsRefusedUnchanged) {
  Open().reset();
  Execute("PRAGMA user_version = 2; CREATE TABLE later (x)");
  const absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("lenetd.db' has version 2: this lenetd knows 1"));
  Execute("DROP TABLE later; PRAGMA user_version = 1");
  EXPECT_NE(Open(), nullptr);
}

TEST_F(SqliteStoreTest, AnotherProgramsDatabaseIsRefused) {
  Execute("CREATE TABLE theirs (x)");
  const absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("another program's"));
  Execute("INSERT INTO theirs VALUES (1)");
}

TEST_F(SqliteStoreTest, WhatIsNoDatabaseIsDamaged) {
  std::ofstream(folder_.path() / "lenetd.db") << std::string(5000, 'x');
  const absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), StartsWith("cannot use the database '"));
  EXPECT_THAT(Message(status), HasSubstr("/lenetd.db'"));
  EXPECT_EQ(Message(status).find("lenetd.db"), Message(status).rfind("lenetd.db")) << status;
}

TEST_F(SqliteStoreTest, ADamagedJobIsDataLossAndTheOthersAreServed) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->CreateJob(NewJob("a"), {Warning("1")}).ok());
    ASSERT_TRUE(store->CreateJob(NewJob("b"), {Warning("1")}).ok());
  }
  Execute("UPDATE jobs SET job = x'ffff' WHERE id = 'a'; UPDATE records SET batch = x'ffff' WHERE job = 2");
  const auto store = Open();
  EXPECT_EQ(store->GetJob("a").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(store->GetJob("b").ok());
  EXPECT_EQ(store->ReadRecords("b", 1, 1000).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(store->CreateJob(NewJob("c"), {}).ok());
  EXPECT_TRUE(store->GetJob("b").ok());
}

TEST_F(SqliteStoreTest, AFolderThatIsMissingIsNamed) {
  const absl::Status status = SqliteStore::Open(folder_.path() / "missing").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("missing"));
}

// A file that may not grow is as good as a full disk.
TEST_F(SqliteStoreTest, AFullDiskIsAnErrorAndNothingChanges) {
  const auto store = Open();
  ASSERT_TRUE(store->CreateJob(NewJob("a"), {Warning("1")}).ok());
  const std::string before = store->GetJob("a")->SerializeAsString();
  const uint64_t revision = store->revision();
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlim_t size = std::filesystem::file_size(folder_.path() / "lenetd.db-wal");
  const rlimit small = {.rlim_cur = size, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::vector<v1::MetricRecord> records = {Warning(std::string(100000, 'x'))};
  const absl::Status appended = store->AppendRecords("a", records).status();
  const absl::Status created = store->CreateJob(NewJob("b"), {Warning(std::string(100000, 'x'))}).status();
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  for (const absl::Status& status : {appended, created}) {
    EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable)) << status;
  }
  EXPECT_EQ(records[0].warning().message().size(), 100000u);
  EXPECT_EQ(records[0].sequence(), 0u);
  EXPECT_EQ(store->GetJob("a")->SerializeAsString(), before);
  EXPECT_EQ(store->revision(), revision);
  EXPECT_EQ(*store->AppendRecords("a", records), 2u);
  EXPECT_TRUE(store->CreateJob(NewJob("b"), {}).ok());
}

TEST_F(SqliteStoreTest, ALogKeepsItsNewestRecords) {
  const auto store = Open({.max_log_bytes = 3000});
  ASSERT_TRUE(store->CreateJob(NewJob("a"), {Warning("1")}).ok());
  for (int i = 2; i <= 20; ++i) {
    std::vector<v1::MetricRecord> records = {Warning(absl::StrCat(i, std::string(500, ' ')))};
    ASSERT_TRUE(store->AppendRecords("a", records).ok());
  }
  const RecordPage page = *store->ReadRecords("a", 1, 1 << 20);
  EXPECT_EQ(page.last_sequence, 20u);
  EXPECT_EQ(page.first_sequence, page.records.front()->sequence());
  EXPECT_EQ(page.records.size(), page.last_sequence - page.first_sequence + 1);
  EXPECT_GE(page.records.size(), 4u);
  EXPECT_LE(page.records.size(), 6u);
}

TEST_F(SqliteStoreTest, EndedJobsLoseRecordsFirstAndAreForgottenInTheOrderOfTheirEnds) {
  const auto store = Open({.max_ended_jobs = 2, .max_total_log_bytes = 4500});
  const auto fill = [&](const std::string& id) {
    for (int i = 0; i < 3; ++i) {
      std::vector<v1::MetricRecord> records = {Warning(std::string(500, 'x'))};
      ASSERT_TRUE(store->AppendRecords(id, records).ok());
    }
  };
  for (const char* id : {"a", "b", "c", "d"}) ASSERT_TRUE(store->CreateJob(NewJob(id), {Warning("1")}).ok());
  fill("b");
  fill("a");
  ASSERT_TRUE(Change(store.get(), "b", v1::QUEUED, v1::STOPPED).ok());
  ASSERT_TRUE(Change(store.get(), "a", v1::QUEUED, v1::STOPPED).ok());
  fill("c");
  EXPECT_LT(Log(*store, "b").size(), 4u);
  EXPECT_EQ(Log(*store, "a").size(), 4u);
  fill("c");
  EXPECT_EQ(Log(*store, "b").size(), 1u);
  EXPECT_LT(Log(*store, "a").size(), 4u);
  EXPECT_EQ(Log(*store, "c").size(), 7u);
  ASSERT_TRUE(Change(store.get(), "c", v1::QUEUED, v1::STOPPED).ok());
  EXPECT_EQ(store->GetJob("b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store->GetJob("a").ok());
  EXPECT_TRUE(store->GetJob("d").ok());
}

TEST_F(SqliteStoreTest, OpeningForgetsWhatIsTooOld) {
  {
    const auto store = Open();
    for (const char* id : {"old", "new", "waiting"}) ASSERT_TRUE(store->CreateJob(NewJob(id), {}).ok());
    const auto end = [&](const std::string& id, absl::Time time) {
      ASSERT_TRUE(store->ChangeState(id, {.from = v1::QUEUED, .to = v1::STOPPED, .time = time}).ok());
    };
    end("old", absl::Now() - absl::Hours(2));
    end("new", absl::Now());
  }
  std::vector<std::string> forgotten;
  const auto store =
      Open({.max_age = absl::Hours(1), .forgotten = [&](const std::string& id) { forgotten.push_back(id); }});
  EXPECT_THAT(forgotten, ::testing::ElementsAre("old"));
  EXPECT_EQ(store->GetJob("old").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store->GetJob("new").ok());
  EXPECT_TRUE(store->GetJob("waiting").ok());
}

// Another program that reads keeps the write-ahead log from being emptied, but neither blocks writes nor for good.
TEST_F(SqliteStoreTest, TheWriteAheadLogIsCutWhenNobodyReadsIt) {
  const auto store = Open();
  ASSERT_TRUE(store->CreateJob(NewJob("a"), {}).ok());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open((folder_.path() / "lenetd.db").c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN; SELECT * FROM jobs", nullptr, nullptr, nullptr), SQLITE_OK);
  const auto append = [&store] {
    std::vector<v1::MetricRecord> records = {Warning(std::string(size_t{2} << 20, 'x'))};
    ASSERT_TRUE(store->AppendRecords("a", records).ok());
  };
  const auto wal_bytes = [this] { return std::filesystem::file_size(folder_.path() / "lenetd.db-wal"); };
  auto quickest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 18; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    append();
    // Each of these tries to cut it.
    if (wal_bytes() > uintmax_t{34} << 20) quickest = std::min(quickest, std::chrono::steady_clock::now() - begin);
  }
  EXPECT_LT(quickest, std::chrono::seconds(5));  // the time to wait for a lock
  sqlite3_close(other);
  append();
  EXPECT_LE(wal_bytes(), uintmax_t{16} << 20);
  EXPECT_EQ(store->ReadRecords("a", 1, int64_t{1} << 30)->records.size(), 19u);
}

// The file as a loss of power may leave it: closed by nobody.
class SqliteEpochsTest : public SqliteStoreTest {
 protected:
  std::unique_ptr<SqliteStore> Boot(const std::string& boot_id) {
    absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(folder_.path(), {}, boot_id);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  void LoseMark() { Execute("UPDATE last_opening SET closed = 0"); }

  static void Append(SqliteStore* store, const std::string& id, int count) {
    std::vector<v1::MetricRecord> records(static_cast<size_t>(count), Warning("w"));
    ASSERT_TRUE(store->AppendRecords(id, records).ok());
  }
};

TEST_F(SqliteEpochsTest, ALossOfPowerBeginsAnEpochOfEveryLogThatIsOpen) {
  {
    const auto store = Boot("one");
    for (const char* id : {"open", "empty", "ended"}) ASSERT_TRUE(store->CreateJob(NewJob(id), {}).ok());
    Append(store.get(), "open", 7);
    ASSERT_TRUE(Change(store.get(), "ended", v1::QUEUED, v1::STOPPED).ok());
  }
  LoseMark();
  {
    const auto store = Boot("two");
    EXPECT_EQ(store->GetJob("open")->log_epoch(), 2u);
    EXPECT_EQ(store->GetJob("empty")->log_epoch(), 2u);
    EXPECT_EQ(store->GetJob("ended")->log_epoch(), 1u);
    RecordPage page = *store->ReadRecords("open", 1, 1 << 20);
    EXPECT_EQ(page.log_epoch, 2u);
    EXPECT_EQ(page.epoch_starts, std::vector<uint64_t>{8});
    EXPECT_EQ(page.records.size(), 7u);
    EXPECT_EQ(store->ReadRecords("open", 1000, 1)->epoch_starts, std::vector<uint64_t>{8});
    EXPECT_EQ(store->ReadRecords("empty", 1, 1)->epoch_starts, std::vector<uint64_t>{1});
    EXPECT_TRUE(store->ReadRecords("ended", 1, 1)->epoch_starts.empty());
    Append(store.get(), "open", 3);
    EXPECT_EQ(store->ReadRecords("open", 9, 1)->records[0]->sequence(), 9u);
  }
  LoseMark();
  const auto store = Boot("three");
  EXPECT_EQ(store->GetJob("open")->log_epoch(), 3u);
  EXPECT_EQ(store->ReadRecords("open", 1, 1)->epoch_starts, (std::vector<uint64_t>{8, 11}));
}

TEST_F(SqliteEpochsTest, WithoutALossTheEpochStays) {
  {
    const auto store = Boot("one");
    ASSERT_TRUE(store->CreateJob(NewJob("a"), {}).ok());
  }
  // Closed in order, then another boot.
  EXPECT_EQ(Boot("two")->GetJob("a")->log_epoch(), 1u);
  // Killed, in the same boot.
  LoseMark();
  EXPECT_EQ(Boot("two")->GetJob("a")->log_epoch(), 1u);
  // A boot that is not known may be another one.
  LoseMark();
  EXPECT_EQ(Boot("")->GetJob("a")->log_epoch(), 2u);
  EXPECT_EQ(Boot("")->GetJob("a")->log_epoch(), 2u);
  LoseMark();
  EXPECT_EQ(Boot("")->GetJob("a")->log_epoch(), 3u);
}

TEST_F(SqliteEpochsTest, AProcessThatIsKilledLeavesTheDatabaseNotClosed) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(folder_.path(), {}, "one");
    if (!store.ok() || !(*store)->CreateJob(NewJob("a"), {}).ok()) ::_exit(1);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(Boot("two")->GetJob("a")->log_epoch(), 2u);
}

TEST_F(SqliteEpochsTest, ADamagedJobDoesNotKeepTheDatabaseClosed) {
  {
    const auto store = Boot("one");
    ASSERT_TRUE(store->CreateJob(NewJob("a"), {}).ok());
    ASSERT_TRUE(store->CreateJob(NewJob("b"), {}).ok());
  }
  LoseMark();
  Execute("UPDATE jobs SET job = x'ffff' WHERE id = 'a'");
  const auto store = Boot("two");
  EXPECT_EQ(store->GetJob("a").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store->GetJob("b")->log_epoch(), 2u);
}

TEST_F(SqliteEpochsTest, TheKernelHasABootId) {
  EXPECT_EQ(KernelBootId().size(), 36u);
  EXPECT_EQ(KernelBootId(), KernelBootId());
}

// What a process acknowledged before it was killed is there, the last batch whole or not at all.
TEST_F(SqliteStoreTest, WhatWasAcknowledgedSurvivesAKillAtAnyMoment) {
  std::mt19937 random(3);
  uint64_t last = 0;
  int jobs = 0;
  {
    const auto store = Open();
    ASSERT_TRUE(store->CreateJob(NewJob("log"), {}).ok());
  }
  for (int round = 0; round < 10; ++round) {
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(folder_.path());
      if (!store.ok()) ::_exit(1);
      uint64_t sequence = (*store)->GetJob("log")->last_sequence();
      for (int job = jobs;; ++job) {
        std::vector<v1::MetricRecord> records = {Warning(absl::StrCat(sequence + 1)),
                                                 Warning(absl::StrCat(sequence + 2))};
        const absl::StatusOr<uint64_t> appended = (*store)->AppendRecords("log", records);
        if (!appended.ok() || !(*store)->CreateJob(NewJob(absl::StrCat("job", job)), {}).ok()) ::_exit(2);
        sequence = *appended;
        if (::write(told[1], &sequence, sizeof(sequence)) != sizeof(sequence)) ::_exit(3);
      }
    }
    ::close(told[1]);
    uint64_t sequence = 0;
    // Every other one may still be opening the file.
    if (round % 2 == 0 && ::read(told[0], &sequence, sizeof(sequence)) == sizeof(sequence)) {
      last = sequence;
      ++jobs;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    while (::read(told[0], &sequence, sizeof(sequence)) == sizeof(sequence)) {
      last = sequence;
      ++jobs;
    }
    ::close(told[0]);
    const auto store = Open();
    const v1::Job log = *store->GetJob("log");
    ASSERT_GE(log.last_sequence(), last);
    ASSERT_EQ(log.last_sequence() % 2, 0u);
    const std::vector<std::string> messages = Log(*store, "log");
    ASSERT_EQ(messages.size(), log.last_sequence());
    for (size_t i = 0; i < messages.size(); ++i) ASSERT_EQ(messages[i], absl::StrCat(i + 1));
    for (int job = 0; job < jobs; ++job) ASSERT_TRUE(store->GetJob(absl::StrCat("job", job)).ok()) << job;
    // One more may have been made than was told.
    if (store->GetJob(absl::StrCat("job", jobs)).ok()) ++jobs;
    last = log.last_sequence();
  }
  EXPECT_GE(jobs, 5);
}

TEST_F(SqliteStoreTest, AnswersUnlessAChangeHoldsItUp) {
  const auto store = Open();
  ASSERT_TRUE(store->CreateJob(NewJob("a"), {}).ok());
  store->AwaitAnswers();
  std::atomic<bool> begun{false};
  std::atomic<bool> go_on{false};
  std::thread change([&] {
    const absl::StatusOr<v1::Job> job = store->UpdateJob("a", [&](v1::Job*) {
      begun = true;
      while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    EXPECT_TRUE(job.ok()) << job.status();
  });
  while (!begun) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::atomic<bool> answered{false};
  std::thread asking([&] {
    store->AwaitAnswers();
    answered = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(answered);
  go_on = true;
  change.join();
  asking.join();
  // A database that is damaged gives errors, which are answers.
  Execute("DROP TABLE last_opening");
  store->AwaitAnswers();
}

}  // namespace
}  // namespace lenet
