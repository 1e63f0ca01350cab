// The checkpoints of a job on disk, and which of them are kept.
#ifndef LENET_SERVER_JOB_CHECKPOINT_KEEPER_H_
#define LENET_SERVER_JOB_CHECKPOINT_KEEPER_H_

#include <cstdint>
#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lenet/v1/job.pb.h"
#include "lenet/v1/training_spec.pb.h"
#include "server/store/job_store.h"

namespace lenet {

// In the job's folder: what a job is begun from, if not from initial weights.
inline constexpr char kStartFile[] = "start.safetensors";

// Those of the job's checkpoints that its spec does not ask to keep: all but the newest keep_last and, with keep_best,
// the one of the best accuracy (of equals the first).
std::vector<v1::Checkpoint> Surplus(const v1::Job& job);

// Where the file of one of a job's checkpoints lies: in its folder, whatever the record says.
std::filesystem::path CheckpointFile(const std::filesystem::path& job_folder, const v1::Checkpoint& checkpoint);

// Takes the surplus out of the job's record, then out of its folder. Whoever calls it has seen the newest checkpoint
// recorded. A crash in between leaves a file that no record names.
absl::Status DropSurplus(JobStore* store, absl::string_view id, const std::filesystem::path& job_folder);

// Takes those of later steps, which could not be read, out of the job's record; their files stay.
absl::Status ForgetAfter(JobStore* store, const v1::Job& job, int64_t step);

// Removes what saves that were cut short have left in the job's folder.
void RemoveTemporaries(const std::filesystem::path& job_folder);

// Whether a file of that size, and a copy beside it, can be written below `folder`, which is made if missing.
// PERMISSION_DENIED, RESOURCE_EXHAUSTED (with the bytes that are free and those that are needed), or what else the
// system says.
absl::Status ProbeFolder(const std::filesystem::path& folder, int64_t file_bytes);

}  // namespace lenet

#endif  // LENET_SERVER_JOB_CHECKPOINT_KEEPER_H_
