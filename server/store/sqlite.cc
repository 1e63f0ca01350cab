#include "server/store/sqlite.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr int kBusyTimeoutMs = 5000;

absl::StatusCode ToCode(int result) {
  switch (result & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
      return absl::StatusCode::kPermissionDenied;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

void CloseDatabase::operator()(sqlite3* database) const {
  const int result = sqlite3_close_v2(database);
  if (result != SQLITE_OK) Log(LogLevel::kError, absl::StrCat("cannot close the database: ", sqlite3_errstr(result)));
}

void FinalizeStatement::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);  // gives the error of the last step, which was reported then
}

absl::StatusOr<Database> Database::Open(const std::filesystem::path& path, int flags) {
  sqlite3* handle = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &handle, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  if (handle == nullptr) return absl::ResourceExhaustedError("no memory for a database connection");
  Database database(handle, path.string());
  if (result != SQLITE_OK) return database.Error("cannot open");
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kBusyTimeoutMs);
  return database;
}

absl::Status Database::Execute(const std::string& sql) {
  if (sqlite3_exec(get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
  return Error("cannot use");
}

absl::StatusOr<int64_t> Database::Integer(const std::string& sql) {
  LENET_ASSIGN_OR_RETURN(Statement statement, Statement::Prepare(*this, sql));
  LENET_ASSIGN_OR_RETURN(const bool row, statement.Step(*this));
  return row ? statement.Integer(0) : 0;
}

absl::Status Database::CutWal() {
  sqlite3_busy_timeout(get(), 0);
  const int result = sqlite3_wal_checkpoint_v2(get(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  const absl::Status status =
      result == SQLITE_OK || (result & 0xff) == SQLITE_BUSY ? absl::OkStatus() : Error("cannot use");
  sqlite3_busy_timeout(get(), kBusyTimeoutMs);
  return status;
}

void Database::KeepWal(bool keep) { sqlite3_db_config(get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep ? 1 : 0, nullptr); }

absl::Status Database::Error(absl::string_view what) const {
  return absl::Status(ToCode(sqlite3_extended_errcode(get())),
                      absl::StrCat(what, " the database '", path_, "': ", sqlite3_errmsg(get())));
}

absl::StatusOr<Statement> Statement::Prepare(const Database& database, absl::string_view sql) {
  sqlite3_stmt* handle = nullptr;
  if (sqlite3_prepare_v3(database.get(), sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &handle,
                         nullptr) != SQLITE_OK) {
    return database.Error("cannot use");
  }
  return Statement(handle);
}

// Binding fails only for want of memory or for a wrong number, and the step after it then meets the missing value.
void Statement::Bind(int parameter, int64_t value) { sqlite3_bind_int64(handle_.get(), parameter, value); }

void Statement::Bind(int parameter, absl::string_view text) {
  sqlite3_bind_text64(handle_.get(), parameter, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}

void Statement::BindBlob(int parameter, absl::string_view bytes) {
  sqlite3_bind_blob64(handle_.get(), parameter, bytes.empty() ? "" : bytes.data(), bytes.size(), SQLITE_TRANSIENT);
}

void Statement::BindNull(int parameter) { sqlite3_bind_null(handle_.get(), parameter); }

absl::StatusOr<bool> Statement::Step(const Database& database) {
  const int result = sqlite3_step(handle_.get());
  if (result == SQLITE_ROW) return true;
  const absl::Status status = result == SQLITE_DONE ? absl::OkStatus() : database.Error("cannot use");
  Reset();
  if (!status.ok()) return status;
  return false;
}

absl::Status Statement::Run(const Database& database) {
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool row, Step(database));
    if (!row) return absl::OkStatus();
  }
}

void Statement::Reset() {
  sqlite3_reset(handle_.get());  // gives the error of the last step again
  sqlite3_clear_bindings(handle_.get());
}

int64_t Statement::Integer(int column) const { return sqlite3_column_int64(handle_.get(), column); }

bool Statement::IsNull(int column) const { return sqlite3_column_type(handle_.get(), column) == SQLITE_NULL; }

absl::string_view Statement::Bytes(int column) const {
  const void* const bytes = sqlite3_column_blob(handle_.get(), column);
  if (bytes == nullptr) return "";
  return absl::string_view(static_cast<const char*>(bytes),
                           static_cast<size_t>(sqlite3_column_bytes(handle_.get(), column)));
}

absl::StatusOr<Transaction> Transaction::Begin(Database* database) {
  LENET_RETURN_IF_ERROR(database->Execute("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  if (database_ == nullptr || sqlite3_get_autocommit(database_->get()) != 0)
    return;  // some errors end it by themselves
  if (const absl::Status status = database_->Execute("ROLLBACK"); !status.ok()) {
    Log(LogLevel::kError, status.ToString());
  }
}

absl::Status Transaction::Commit() {
  LENET_RETURN_IF_ERROR(database_->Execute("COMMIT"));
  database_ = nullptr;
  return absl::OkStatus();
}

}  // namespace lenet
