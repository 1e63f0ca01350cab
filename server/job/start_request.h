// What a Start asks for beside its spec: the request's own fields, and what the job is begun from if not from initial
// weights (another job's checkpoint, or weights that came with the call).
#ifndef LENET_SERVER_JOB_START_REQUEST_H_
#define LENET_SERVER_JOB_START_REQUEST_H_

#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lenet/v1/job.pb.h"
#include "lenet/v1/metrics.pb.h"
#include "lenet/v1/training_service.pb.h"
#include "server/job/admission.h"
#include "server/job/live_job.h"
#include "server/store/job_store.h"

namespace lenet {

// INVALID_ARGUMENT: a name or request id that is too long or has control characters; no job to resume from; weights of
// more than 4 MiB; a field, of the spec too, that this server does not know.
absl::Status CheckRequest(const v1::StartRequest& request);

// The job, if it is what the request asks for; else ALREADY_EXISTS.
absl::StatusOr<v1::Job> SameRequest(v1::Job job, const v1::StartRequest& request);

struct StartFile {
  std::string bytes;                   // a safetensors file
  std::optional<v1::ResumeFrom> from;  // not set: initial weights, and no bytes
};

// Reads what the request goes on from, below `checkpoint_root`, and checks that it fits what was admitted. NOT_FOUND:
// no such job, or no such checkpoint of it; INVALID_ARGUMENT names the field of the spec that must be as it was in that
// job, or what is wrong with the weights; FAILED_PRECONDITION: the job has no checkpoint; DATA_LOSS: its file is
// damaged or missing.
absl::StatusOr<StartFile> ReadStartFile(const v1::StartRequest& request, const Admitted& admitted,
                                        const JobStore& store, const std::filesystem::path& checkpoint_root);

// What errors call the checkpoint of another job that a job goes on from.
std::string ResumeSource(const v1::ResumeFrom& from);

// The job that the request asks for, QUEUED.
v1::Job NewJob(const v1::StartRequest& request, const StartFile& start, const LiveJob& live, absl::Time now);

// The first one of that job's log.
v1::MetricRecord FirstRecord(const v1::Job& job);

// Writes it into the job's folder, where the job's first attempt looks for it.
absl::Status PlaceStartFile(const StartFile& start, const std::filesystem::path& job_folder);

}  // namespace lenet

#endif  // LENET_SERVER_JOB_START_REQUEST_H_
