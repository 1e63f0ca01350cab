#include "server/job/checkpoint_keeper.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/job/convert.h"
#include "trainer/base/file.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

std::optional<int64_t> BestStep(const v1::Job& job) {
  const v1::Checkpoint* best = nullptr;
  for (const v1::Checkpoint& checkpoint : job.checkpoints()) {
    if (!checkpoint.has_accuracy()) continue;
    if (best == nullptr || checkpoint.accuracy() > best->accuracy()) best = &checkpoint;
  }
  if (best == nullptr) return std::nullopt;
  return best->step();
}

// Takes the checkpoints of the steps that `gone` is true of out of the job's record.
template <typename Predicate>
absl::Status Erase(JobStore* store, absl::string_view id, const Predicate& gone) {
  return store
      ->UpdateJob(id,
                  [&gone](v1::Job* job) {
                    auto& all = *job->mutable_checkpoints();
                    all.erase(std::remove_if(all.begin(), all.end(),
                                             [&gone](const v1::Checkpoint& one) { return gone(one.step()); }),
                              all.end());
                  })
      .status();
}

}  // namespace

std::vector<v1::Checkpoint> Surplus(const v1::Job& job) {
  const v1::CheckpointPolicy policy = ResolvedPolicy(job.spec());
  const std::optional<int64_t> best = policy.keep_best() ? BestStep(job) : std::nullopt;
  std::vector<v1::Checkpoint> surplus;
  for (int i = 0; i < job.checkpoints_size() - policy.keep_last(); ++i) {
    if (job.checkpoints(i).step() != best) surplus.push_back(job.checkpoints(i));
  }
  return surplus;
}

std::filesystem::path CheckpointFile(const std::filesystem::path& job_folder, const v1::Checkpoint& checkpoint) {
  return job_folder / std::filesystem::path(checkpoint.path()).filename();
}

absl::Status DropSurplus(JobStore* store, absl::string_view id, const std::filesystem::path& job_folder) {
  LENET_ASSIGN_OR_RETURN(const v1::Job job, store->GetJob(id));
  const std::vector<v1::Checkpoint> surplus = Surplus(job);
  if (surplus.empty()) return absl::OkStatus();
  LENET_RETURN_IF_ERROR(Erase(store, id, [&surplus](int64_t step) {
    return std::any_of(surplus.begin(), surplus.end(), [step](const v1::Checkpoint& s) { return s.step() == step; });
  }));
  for (const v1::Checkpoint& checkpoint : surplus) {
    const std::filesystem::path file = CheckpointFile(job_folder, checkpoint);
    std::error_code error;
    std::filesystem::remove(file, error);
    if (error) {
      LogOfJob(LogLevel::kWarning, id, absl::StrCat("'", file.string(), "' cannot be removed: ", error.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status ForgetAfter(JobStore* store, const v1::Job& job, int64_t step) {
  if (job.checkpoints().empty() || job.checkpoints().rbegin()->step() <= step) return absl::OkStatus();
  return Erase(store, job.id(), [step](int64_t saved) { return saved > step; });
}

void RemoveTemporaries(const std::filesystem::path& job_folder) {
  std::error_code error;
  std::filesystem::directory_iterator entries(job_folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    std::error_code ignored;
    if (entries->path().extension() == ".tmp") std::filesystem::remove(entries->path(), ignored);
  }
}

absl::Status ProbeFolder(const std::filesystem::path& folder, int64_t file_bytes) {
  LENET_RETURN_IF_ERROR(MakeFolders(folder));
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write to '", folder.string(), "'"));
  }
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("'", folder.string(), "'"));
  }
  const uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
  const uint64_t needed = 2 * static_cast<uint64_t>(file_bytes);
  if (free >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("'", folder.string(), "' has ", free, " bytes free: a checkpoint needs ", needed));
}

}  // namespace lenet
