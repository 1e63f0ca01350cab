// What lies in a state folder: `lenetd.db`, with what SQLite keeps beside it, `lenetd.lock`, and `jobs/`, in which each
// job that has saved something has a folder of its id.
#ifndef LENET_SERVER_STORE_STATE_FOLDER_H_
#define LENET_SERVER_STORE_STATE_FOLDER_H_

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lenet/v1/job.pb.h"
#include "lenet/v1/metrics.pb.h"
#include "trainer/base/descriptor.h"

namespace lenet {

std::filesystem::path DatabaseFile(const std::filesystem::path& state_folder);
std::filesystem::path JobsFolder(const std::filesystem::path& state_folder);
// The ids of the jobs that have a folder. What else may lie beside them, "lost+found" say, has other names.
std::vector<std::string> JobsWithFolder(const std::filesystem::path& state_folder);

// Keeps other processes out. To be closed after the database: with a descriptor of its file, however made, a process
// closes the locks that SQLite has on it.
struct StateLock {
  UniqueDescriptor lock_file;
  UniqueDescriptor database;
};

// Locks both files, so that the deletion of one lets nobody in; makes those that are missing. UNAVAILABLE, with the
// file's name, if another process has them; DATA_LOSS as CheckNothingLost; FAILED_PRECONDITION if the database is no
// regular file.
absl::StatusOr<StateLock> LockState(const std::filesystem::path& state_folder);

// DATA_LOSS if there is something left of jobs, so that a database without content is not a new one.
absl::Status CheckNothingLost(const std::filesystem::path& state_folder);

// Of a checkpoint's path the file's name alone is stored, and the path given out is made of it, so that a state folder
// may be moved and copied, and no copy uses the files of another.
void ShortenPaths(v1::Job* job);
void ShortenPath(v1::MetricRecord* record);
void CompletePaths(const std::string& jobs_folder, v1::Job* job);
void CompletePath(const std::string& jobs_folder, absl::string_view job_id, v1::MetricRecord* record);

}  // namespace lenet

#endif  // LENET_SERVER_STORE_STATE_FOLDER_H_
