#include "server/store/state_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;

absl::Status SystemError(absl::string_view what, const fs::path& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " '", path.string(), "'"));
}

absl::StatusOr<UniqueDescriptor> OpenFile(const fs::path& path, int flags) {
  // Never waits on a pipe.
  UniqueDescriptor file(Descriptor{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | flags, 0644)});
  if (!file) return SystemError("open", path);
  return file;
}

absl::Status Lock(const UniqueDescriptor& file, const fs::path& path) {
  if (::flock(file.get().number, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) return SystemError("lock", path);
  return absl::UnavailableError(
      absl::StrCat("another lenetd has '", path.parent_path().string(), "' in use: it holds '", path.string(), "'"));
}

bool HasContent(const fs::path& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return !error && size > 0;
}

absl::string_view FileName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

std::string CompletedPath(const std::string& jobs_folder, absl::string_view job_id, absl::string_view path) {
  return ValidUtf8(absl::StrCat(jobs_folder, "/", job_id, "/", FileName(path)));
}

}  // namespace

fs::path DatabaseFile(const fs::path& state_folder) { return state_folder / "lenetd.db"; }

fs::path JobsFolder(const fs::path& state_folder) { return state_folder / "jobs"; }

std::vector<std::string> JobsWithFolder(const fs::path& state_folder) {
  std::vector<std::string> ids;
  std::error_code error;
  fs::directory_iterator entries(JobsFolder(state_folder), error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::string name = entries->path().filename().string();
    if (std::all_of(name.begin(), name.end(), absl::ascii_isalnum)) ids.push_back(std::move(name));
  }
  return ids;
}

absl::StatusOr<StateLock> LockState(const fs::path& state_folder) {
  StateLock lock;
  const fs::path lock_path = state_folder / "lenetd.lock";
  LENET_ASSIGN_OR_RETURN(lock.lock_file, OpenFile(lock_path, O_CREAT));
  LENET_RETURN_IF_ERROR(Lock(lock.lock_file, lock_path));

  const fs::path database_path = DatabaseFile(state_folder);
  std::error_code error;
  const fs::file_status found = fs::status(database_path, error);
  if (fs::exists(found) && !fs::is_regular_file(found)) {
    return absl::FailedPreconditionError(absl::StrCat("'", database_path.string(), "' is not a regular file"));
  }
  // SQLite removes the write-ahead log of an empty database.
  if (!HasContent(database_path)) LENET_RETURN_IF_ERROR(CheckNothingLost(state_folder));
  LENET_ASSIGN_OR_RETURN(lock.database, OpenFile(database_path, O_CREAT));
  LENET_RETURN_IF_ERROR(Lock(lock.database, database_path));
  return lock;
}

absl::Status CheckNothingLost(const fs::path& state_folder) {
  const std::string database = DatabaseFile(state_folder).string();
  const std::string lost = absl::StrCat("'", database, "' is missing or empty, but ");
  if (const std::vector<std::string> jobs = JobsWithFolder(state_folder); !jobs.empty()) {
    return absl::DataLossError(
        absl::StrCat(lost, "'", JobsFolder(state_folder).string(), "' has the folder of job ", jobs.front()));
  }
  const std::string wal = absl::StrCat(database, "-wal");
  if (HasContent(wal)) return absl::DataLossError(absl::StrCat(lost, "'", wal, "' is not"));
  return absl::OkStatus();
}

void ShortenPaths(v1::Job* job) {
  job->set_checkpoint(std::string(FileName(job->checkpoint())));
  for (v1::Checkpoint& checkpoint : *job->mutable_checkpoints()) {
    checkpoint.set_path(std::string(FileName(checkpoint.path())));
  }
}

void ShortenPath(v1::MetricRecord* record) {
  if (!record->has_checkpoint_saved()) return;
  v1::CheckpointSaved* const saved = record->mutable_checkpoint_saved();
  saved->set_path(std::string(FileName(saved->path())));
}

void CompletePaths(const std::string& jobs_folder, v1::Job* job) {
  if (!job->checkpoint().empty()) {
    job->set_checkpoint(CompletedPath(jobs_folder, job->id(), job->checkpoint()));
  }
  for (v1::Checkpoint& checkpoint : *job->mutable_checkpoints()) {
    checkpoint.set_path(CompletedPath(jobs_folder, job->id(), checkpoint.path()));
  }
}

void CompletePath(const std::string& jobs_folder, absl::string_view job_id, v1::MetricRecord* record) {
  if (!record->has_checkpoint_saved()) return;
  v1::CheckpointSaved* const saved = record->mutable_checkpoint_saved();
  saved->set_path(CompletedPath(jobs_folder, job_id, saved->path()));
}

}  // namespace lenet
