// Databases that are damaged, and state folders that were moved or copied.
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/sqlite_store.h"
#include "tests/support/new_job.h"
#include "tests/support/temp_folder.h"
#include "trainer/base/file.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::MetricRecord Saved(int64_t step, const std::string& path) {
  v1::MetricRecord record;
  record.mutable_checkpoint_saved()->set_step(step);
  record.mutable_checkpoint_saved()->set_path(path);
  return record;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class SqliteDamageTest : public ::testing::Test {
 protected:
  std::unique_ptr<SqliteStore> Open(const fs::path& folder, const StoreLimits& limits = {}) {
    absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(folder, limits);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  std::unique_ptr<SqliteStore> Open(const StoreLimits& limits = {}) { return Open(folder_.path(), limits); }

  // Jobs of these ids, of which "live" alone has not ended.
  void Make(const std::vector<std::string>& ids) {
    const auto store = Open();
    for (const std::string& id : ids) {
      ASSERT_TRUE(store->CreateJob(NewJob(id), {}).ok());
      if (id == "live") continue;
      ASSERT_TRUE(store->ChangeState(id, {.from = v1::QUEUED, .to = v1::STOPPED, .time = absl::Now()}).ok());
    }
  }

  void Execute(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((folder_.path() / "lenetd.db").c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  int64_t Integer(const std::string& sql) {
    absl::StatusOr<Database> database = Database::Open(folder_.path() / "lenetd.db", SQLITE_OPEN_READWRITE);
    EXPECT_TRUE(database.ok()) << database.status();
    const absl::StatusOr<int64_t> value = database->Integer(sql);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.value_or(-1);
  }

  TempFolder folder_;
};

std::vector<std::string> Ids(const std::vector<v1::Job>& jobs) {
  std::vector<std::string> ids;
  for (const v1::Job& job : jobs) ids.push_back(job.id());
  return ids;
}

TEST_F(SqliteDamageTest, AnEndedJobThatIsDamagedIsLeftOutOfListsAndCanBeDeleted) {
  Make({"a", "b", "c"});
  // No message, an empty one, that of another job, no message again, a state other than the job's, none.
  for (const char* damage : {"job = x'ffff'", "job = x''", "job = (SELECT job FROM jobs WHERE id = 'a')",
                             "job = CAST(id AS BLOB)", "state = 4", "state = 99"}) {
    const TempFolder copy;
    fs::copy(folder_.path(), copy.path(), fs::copy_options::recursive);
    Execute(absl::StrCat("UPDATE jobs SET ", damage, " WHERE id = 'b'"));
    std::vector<std::string> forgotten;
    {
      const auto store = Open({.forgotten = [&](const std::string& id) { forgotten.push_back(id); }});
      const absl::Status status = store->GetJob("b").status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << damage;
      EXPECT_EQ(Message(status), "the database is damaged: job b cannot be read");
      EXPECT_THAT(Ids(store->ListJobs({})->jobs), ElementsAre("c", "a"));
      const ChangePage changes = *store->ListChanges(0, 10, 1 << 20);
      EXPECT_THAT(Ids(changes.jobs), ElementsAre("a", "c"));
      EXPECT_TRUE(changes.complete);
      EXPECT_EQ(changes.revision, store->revision());
      EXPECT_TRUE(store->DeleteJob("b").ok()) << damage;
      EXPECT_TRUE(absl::IsNotFound(store->GetJob("b").status()));
      EXPECT_TRUE(absl::IsNotFound(store->DeleteJob("b")));
    }
    EXPECT_THAT(forgotten, ElementsAre("b"));
    fs::remove_all(folder_.path());
    fs::copy(copy.path(), folder_.path(), fs::copy_options::recursive);
  }
}

TEST_F(SqliteDamageTest, AChangeThatIsLeftOutLastDoesNotComeAgain) {
  Make({"a", "b"});
  Execute("UPDATE jobs SET job = x'' WHERE id = 'b'");
  const auto store = Open();
  EXPECT_EQ(store->ListChanges(0, 10, 1 << 20)->revision, store->revision());
}

TEST_F(SqliteDamageTest, AJobThatHasNotEndedIsMissedInLists) {
  Make({"a", "live"});
  Execute("UPDATE jobs SET job = x'' WHERE id = 'live'");
  const auto store = Open();
  for (const absl::Status& status :
       {store->ListJobs({.states = {v1::QUEUED}}).status(), store->ListJobs({}).status(), store->DeleteJob("live")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(Message(status), HasSubstr("job live cannot be read"));
  }
}

TEST_F(SqliteDamageTest, ADamagedJobLosesRecordsLikeOthers) {
  Make({"ended", "live"});
  Execute(
      "UPDATE jobs SET job = x'', batches = 2, log_bytes = 4000 WHERE id = 'ended';"
      "INSERT INTO records (job, first_sequence, last_sequence, batch) VALUES (1, 1, 1, zeroblob(2000));"
      "INSERT INTO records (job, first_sequence, last_sequence, batch) VALUES (1, 2, 2, zeroblob(2000))");
  const auto store = Open({.max_total_log_bytes = 3000});
  std::vector<v1::MetricRecord> records = {Saved(1, "/x")};
  EXPECT_TRUE(store->AppendRecords("live", records).ok());
  EXPECT_EQ(Integer("SELECT batches FROM jobs WHERE id = 'ended'"), 1);
  EXPECT_EQ(Integer("SELECT log_bytes FROM jobs WHERE id = 'ended'"), 2000);
  EXPECT_EQ(Integer("SELECT first_sequence FROM jobs WHERE id = 'ended'"), 2);
  EXPECT_EQ(Integer("SELECT MIN(last_sequence) FROM records WHERE job = 1"), 2);
}

TEST_F(SqliteDamageTest, AFileWhoseStructureIsDamagedIsRefusedUnchanged) {
  Make({"a", "b"});
  const fs::path path = folder_.path() / "lenetd.db";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    // The header of the table of jobs' first page.
    file.seekp(4096 + 3);
    file.write("\xff\xff\xff\xff", 4);
  }
  const std::string before = ReadFile(path, 1 << 30).value();
  const absl::Status damaged = SqliteStore::Open(folder_.path()).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss) << damaged;
  EXPECT_THAT(Message(damaged), HasSubstr(path.string()));
  EXPECT_THAT(Message(damaged), Not(HasSubstr("\n")));
  EXPECT_EQ(ReadFile(path, 1 << 30).value(), before);
}

TEST_F(SqliteDamageTest, AFileThatWasCutIsRefused) {
  Make({"a", "b"});
  const fs::path path = folder_.path() / "lenetd.db";
  fs::resize_file(path, fs::file_size(path) / 2);
  EXPECT_EQ(SqliteStore::Open(folder_.path()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SqliteDamageTest, AFileThatWasCutBesideItsWriteAheadLogIsRefusedAndTheLogStays) {
  Make({"a", "b"});
  // As a process leaves it that is killed.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(folder_.path());
    ::_exit(store.ok() && (*store)->CreateJob(NewJob("c"), {}).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const uintmax_t wal_bytes = fs::file_size(folder_.path() / "lenetd.db-wal");
  ASSERT_GT(wal_bytes, 0u);
  const fs::path path = folder_.path() / "lenetd.db";
  fs::resize_file(path, 4096);
  EXPECT_EQ(SqliteStore::Open(folder_.path()).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(fs::file_size(folder_.path() / "lenetd.db-wal"), wal_bytes);
  EXPECT_EQ(fs::file_size(path), 4096u);
}

TEST_F(SqliteDamageTest, ADatabaseWithoutTablesBesideJobsIsALoss) {
  Execute("CREATE TABLE x (y); DROP TABLE x");
  fs::create_directories(folder_.path() / "jobs" / "0123456789abcdef");
  EXPECT_EQ(SqliteStore::Open(folder_.path()).status().code(), absl::StatusCode::kDataLoss);
  fs::remove_all(folder_.path() / "jobs");
  EXPECT_NE(Open(), nullptr);
}

TEST_F(SqliteDamageTest, ASecondProcessIsRefusedAlsoWithoutTheLockFile) {
  const auto store = Open();
  fs::remove(folder_.path() / "lenetd.lock");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(absl::IsUnavailable(SqliteStore::Open(folder_.path()).status()) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(store->CreateJob(NewJob("a"), {}).ok());
}

TEST_F(SqliteDamageTest, RowsThatHaveWholePathsGiveThoseOfThisFolder) {
  Make({"live"});
  v1::Job job = *Open()->GetJob("live");
  job.set_checkpoint("/old/jobs/live/step-1");
  job.add_checkpoints()->set_path("jobs/live/step-1");
  Execute(absl::StrCat("UPDATE jobs SET job = x'", absl::BytesToHexString(job.SerializeAsString()), "'"));
  const std::string path = (folder_.path() / "jobs" / "live" / "step-1").string();
  const v1::Job read = *Open()->GetJob("live");
  EXPECT_EQ(read.checkpoint(), path);
  EXPECT_EQ(read.checkpoints(0).path(), path);
}

TEST_F(SqliteDamageTest, CheckpointsLieInTheFolderThatIsOpen) {
  const fs::path jobs = folder_.path() / "jobs" / "live";
  const std::string first = (jobs / "step-1").string();
  {
    Make({"live"});
    const auto store = Open();
    std::vector<v1::MetricRecord> records = {Saved(1, first)};
    ASSERT_TRUE(store->AppendRecords("live", records).ok());
    EXPECT_EQ(records[0].checkpoint_saved().path(), first);
    // Nothing that is given back or changed turns into a name alone.
    const absl::StatusOr<v1::Job> edited = store->UpdateJob("live", [](v1::Job* job) { job->set_name("n"); });
    EXPECT_EQ(edited->checkpoint(), first);
    StateUpdate update = {.from = v1::QUEUED, .to = v1::STARTING, .time = absl::Now()};
    update.records = {Saved(2, (jobs / "step-2").string())};
    EXPECT_EQ(store->ChangeState("live", update)->checkpoint(), (jobs / "step-2").string());
  }
  const TempFolder other;
  fs::copy(folder_.path(), other.path(), fs::copy_options::recursive);
  for (const fs::path& folder : {folder_.path(), other.path()}) {
    const auto store = Open(folder);
    const v1::Job job = *store->GetJob("live");
    EXPECT_EQ(job.checkpoint(), (folder / "jobs" / "live" / "step-2").string());
    EXPECT_EQ(job.checkpoints(0).path(), (folder / "jobs" / "live" / "step-1").string());
    const RecordPage log = *store->ReadRecords("live", 1, 1 << 20);
    EXPECT_EQ(log.records[0]->checkpoint_saved().path(), (folder / "jobs" / "live" / "step-1").string());
    EXPECT_EQ(Ids(store->ListJobs({})->jobs), Ids({job}));
    EXPECT_EQ(store->ListJobs({})->jobs[0].checkpoint(), job.checkpoint());
  }
}

}  // namespace
}  // namespace lenet
