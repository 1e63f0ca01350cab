// SQLite's handles and results.
#ifndef LENET_SERVER_STORE_SQLITE_H_
#define LENET_SERVER_STORE_SQLITE_H_

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/base/unique_handle.h"

namespace lenet {

struct CloseDatabase {
  void operator()(sqlite3* database) const;
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const;
};

// One connection. Not for two threads at once.
class Database {
 public:
  // `flags` as sqlite3_open_v2 takes them. Waits up to 5 s for another process's lock. Errors as Error().
  static absl::StatusOr<Database> Open(const std::filesystem::path& path, int flags);

  // Statements whose results, if any, are not wanted.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<int64_t> Integer(const std::string& sql);
  // Empties the file of the write-ahead log. Does not wait for another connection that reads or writes: while one does,
  // nothing is cut.
  absl::Status CutWal();

  // What the write-ahead log has goes into the database when its last connection is closed, or stays where it is.
  void KeepWal(bool keep);

  // Of the last call that failed: RESOURCE_EXHAUSTED the disk or memory is full; DATA_LOSS the file is damaged or no
  // database; PERMISSION_DENIED it cannot be opened or written; UNAVAILABLE locked by another process, or a failure of
  // the disk; INTERNAL everything else.
  absl::Status Error(absl::string_view what) const;

  const std::string& path() const { return path_; }
  sqlite3* get() const { return handle_.get(); }

 private:
  Database(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  UniqueHandle<sqlite3*, CloseDatabase> handle_;
  std::string path_;
};

// A prepared statement. Parameters count from 1, columns from 0.
class Statement {
 public:
  Statement() = default;
  static absl::StatusOr<Statement> Prepare(const Database& database, absl::string_view sql);

  // Of text and blobs a copy is kept.
  void Bind(int parameter, int64_t value);
  void Bind(int parameter, absl::string_view text);
  void BindBlob(int parameter, absl::string_view bytes);
  void BindNull(int parameter);

  // Runs on to the next row; false at the end, after which, as after an error, it can be bound anew.
  absl::StatusOr<bool> Step(const Database& database);
  // Runs to the end, ready to be bound anew.
  absl::Status Run(const Database& database);
  // Makes it ready before its end.
  void Reset();

  int64_t Integer(int column) const;
  bool IsNull(int column) const;
  // Valid until the next call.
  absl::string_view Bytes(int column) const;

 private:
  explicit Statement(sqlite3_stmt* handle) : handle_(handle) {}

  UniqueHandle<sqlite3_stmt*, FinalizeStatement> handle_;
};

// Begins a transaction, which ends without effect unless Commit succeeds.
class Transaction {
 public:
  static absl::StatusOr<Transaction> Begin(Database* database);
  ~Transaction();
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;

  absl::Status Commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}

  Database* database_;  // null when it is over
};

}  // namespace lenet

#endif  // LENET_SERVER_STORE_SQLITE_H_
