#include "server/store/sqlite_schema.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/store/state_folder.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

// PRAGMA application_id: tells the file from other programs' databases.
constexpr int64_t kApplicationId = 0x6c6e6574;
// PRAGMA user_version. A change of the tables below needs the next one, and the way from the one before in Migrate.
constexpr int64_t kSchemaVersion = 1;

// `job` is a lenet.v1.Job, `batch` a lenet.v1.StreamMetricsResponse. Times are microseconds since 1970. log_epochs has
// the epochs from the second on; last_opening one row: in which boot it was, and whether the database was closed since.
constexpr char kSchema[] = R"(
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  request_id TEXT UNIQUE,
  state INTEGER NOT NULL,
  revision INTEGER NOT NULL UNIQUE,
  ended_revision INTEGER,
  ended INTEGER,
  first_sequence INTEGER NOT NULL,
  batches INTEGER NOT NULL,
  log_bytes INTEGER NOT NULL,
  job BLOB NOT NULL);
CREATE INDEX jobs_ended ON jobs (ended_revision) WHERE ended_revision IS NOT NULL;
CREATE INDEX jobs_ended_time ON jobs (ended) WHERE ended IS NOT NULL;
CREATE INDEX jobs_trimmable ON jobs (ended_revision) WHERE ended_revision IS NOT NULL AND batches > 1;
CREATE TABLE log_epochs (
  job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
  number INTEGER NOT NULL,
  first_sequence INTEGER NOT NULL,
  PRIMARY KEY (job, number)) WITHOUT ROWID;
CREATE TABLE attempts (
  job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
  number INTEGER NOT NULL,
  started INTEGER NOT NULL,
  ended INTEGER,
  end_state INTEGER NOT NULL,
  PRIMARY KEY (job, number)) WITHOUT ROWID;
CREATE TABLE records (
  number INTEGER PRIMARY KEY,
  job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
  first_sequence INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL,
  batch BLOB NOT NULL);
CREATE UNIQUE INDEX records_by_job ON records (job, last_sequence);
CREATE TABLE last_opening (boot_id TEXT NOT NULL, closed INTEGER NOT NULL);
INSERT INTO last_opening VALUES ('', 1);
)";

}  // namespace

absl::Status Migrate(Database* database, const std::filesystem::path& state_folder) {
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database));
  LENET_ASSIGN_OR_RETURN(const int64_t application, database->Integer("PRAGMA application_id"));
  LENET_ASSIGN_OR_RETURN(const int64_t version, database->Integer("PRAGMA user_version"));
  LENET_ASSIGN_OR_RETURN(const int64_t tables, database->Integer("SELECT COUNT(*) FROM sqlite_schema"));
  if (version == 0 && application == 0 && tables == 0) {
    LENET_RETURN_IF_ERROR(CheckNothingLost(state_folder));
    LENET_RETURN_IF_ERROR(database->Execute(kSchema));
    LENET_RETURN_IF_ERROR(database->Execute(absl::StrCat("PRAGMA application_id = ", kApplicationId)));
    LENET_RETURN_IF_ERROR(database->Execute(absl::StrCat("PRAGMA user_version = ", kSchemaVersion)));
    return transaction.Commit();
  }
  if (application != kApplicationId) {
    return absl::FailedPreconditionError(absl::StrCat("'", database->path(), "' is another program's database"));
  }
  if (version != kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the database '", database->path(), "' has version ", version,
                                                      ": this lenetd knows ", kSchemaVersion));
  }
  return absl::OkStatus();
}

absl::Status CheckIntegrity(Database* database) {
  LENET_ASSIGN_OR_RETURN(Statement check, Statement::Prepare(*database, "PRAGMA quick_check(1)"));
  LENET_ASSIGN_OR_RETURN(const bool row, check.Step(*database));
  if (row && check.Bytes(0) == "ok") return absl::OkStatus();
  const absl::string_view what = absl::StripPrefix(check.Bytes(0), "*** in database main ***\n");
  return absl::DataLossError(absl::StrCat("the database '", database->path(), "' is damaged: ", Shown(what)));
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the database is damaged: ", what, " cannot be read"));
}

std::string KernelBootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace lenet
