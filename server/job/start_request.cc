#include "server/job/start_request.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/job/checkpoint_keeper.h"
#include "server/job/convert.h"
#include "server/store/timestamp.h"
#include "trainer/base/file.h"
#include "trainer/base/status.h"
#include "trainer/train/safetensors.h"

namespace lenet {
namespace {

using ::google::protobuf::util::MessageDifferencer;

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxRequestIdBytes = 128;
// Of a checkpoint's header.
constexpr int64_t kMaxHeaderBytes = int64_t{1} << 20;

absl::Status CheckText(absl::string_view field, absl::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", text.size(), " bytes long; must be at most ", max_bytes));
  }
  if (std::any_of(text.begin(), text.end(), absl::ascii_iscntrl)) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": must not hold control characters"));
  }
  return absl::OkStatus();
}

// Whether a job was begun from what the request asks for.
bool SameStart(const v1::StartRequest& request, const v1::Job& job) {
  switch (request.start_from_case()) {
    case v1::StartRequest::kResumeFrom:
      return request.resume_from().job_id() == job.resumed_from().job_id() &&
             (!request.resume_from().has_step() || request.resume_from().step() == job.resumed_from().step());
    case v1::StartRequest::kInitialWeights:
      return job.has_resumed_from() && job.resumed_from().job_id().empty();
    case v1::StartRequest::START_FROM_NOT_SET:
      break;
  }
  return !job.has_resumed_from();
}

absl::Status Differs(absl::string_view field, const std::string& value, const std::string& was, const v1::Job& source) {
  return BadValue(absl::StrCat("spec.", field), value,
                  absl::StrCat(was, ", as in job \"", source.id(), "\", which it is to go on from"));
}

// What decides the bits of a step must be as it was.
absl::Status CheckSame(const v1::ResolvedSpec& now, const std::string& dataset, const v1::Job& source) {
  const v1::ResolvedSpec& was = source.resolved();
  if (dataset != source.spec().dataset()) return Differs("dataset", dataset, source.spec().dataset(), source);
  if (now.net() != was.net()) return Differs("net", now.net(), was.net(), source);
  const auto number = [&](absl::string_view field, auto value, auto before) {
    return value == before ? absl::OkStatus() : Differs(field, absl::StrCat(value), absl::StrCat(before), source);
  };
  LENET_RETURN_IF_ERROR(number("seed", now.seed(), was.seed()));
  LENET_RETURN_IF_ERROR(number("global_batch_size", now.global_batch_size(), was.global_batch_size()));
  LENET_RETURN_IF_ERROR(number("learning_rate", now.learning_rate(), was.learning_rate()));
  LENET_RETURN_IF_ERROR(number("clip_norm", now.clip_norm(), was.clip_norm()));
  LENET_RETURN_IF_ERROR(number("precision", int{now.precision()}, int{was.precision()}));
  if (!MessageDifferencer::Equals(now.optimizer(), was.optimizer())) {
    return Differs("optimizer", now.optimizer().ShortDebugString(), was.optimizer().ShortDebugString(), source);
  }
  if (!MessageDifferencer::Equals(now.schedule(), was.schedule())) {
    return Differs("schedule", now.schedule().ShortDebugString(), was.schedule().ShortDebugString(), source);
  }
  if (now.train_images() != was.train_images()) {
    return absl::FailedPreconditionError(absl::StrCat("the data set \"", dataset, "\" has ", now.train_images(),
                                                      " training images; it had ", was.train_images(), " in job \"",
                                                      source.id(), "\""));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Checkpoint> FindCheckpoint(const v1::ResumeFrom& from, const v1::Job& source) {
  if (source.checkpoints().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("resume_from.job_id: job \"", source.id(), "\" has no checkpoint"));
  }
  if (!from.has_step()) return *source.checkpoints().rbegin();
  for (const v1::Checkpoint& checkpoint : source.checkpoints()) {
    if (checkpoint.step() == from.step()) return checkpoint;
  }
  return absl::NotFoundError(
      absl::StrCat("resume_from.step: job \"", source.id(), "\" has no checkpoint of step ", from.step()));
}

absl::StatusOr<StartFile> TryReadCheckpoint(const v1::ResumeFrom& from, const Admitted& admitted,
                                            const JobStore& store) {
  absl::StatusOr<v1::Job> source = store.GetJob(from.job_id());
  if (!source.ok()) return Annotate(source.status(), "resume_from.job_id");
  LENET_ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint, FindCheckpoint(from, *source));
  LENET_RETURN_IF_ERROR(CheckSame(admitted.resolved, admitted.spec.dataset, *source));
  if (admitted.resolved.total_steps() < checkpoint.step()) {
    return absl::InvalidArgumentError(absl::StrCat("spec: ", admitted.resolved.total_steps(),
                                                   " steps: must be at least ", checkpoint.step(),
                                                   ", which the checkpoint has done"));
  }
  StartFile start = {.from = v1::ResumeFrom()};
  start.from->set_job_id(source->id());
  start.from->set_step(checkpoint.step());
  LENET_ASSIGN_OR_RETURN(start.bytes, ReadFile(checkpoint.path(), admitted.checkpoint_bytes + kMaxHeaderBytes));
  LENET_RETURN_IF_ERROR(ParseTensorFile(std::as_bytes(std::span(start.bytes)), checkpoint.path()).status());
  return start;
}

absl::StatusOr<StartFile> ReadCheckpoint(const v1::ResumeFrom& from, const Admitted& admitted, const JobStore& store) {
  absl::StatusOr<StartFile> start = TryReadCheckpoint(from, admitted, store);
  // A running job may have replaced the file since its record was read.
  if (absl::IsNotFound(start.status())) start = TryReadCheckpoint(from, admitted, store);
  return start;
}

}  // namespace

absl::Status CheckRequest(const v1::StartRequest& request) {
  LENET_RETURN_IF_ERROR(CheckText("request_id", request.request_id(), kMaxRequestIdBytes));
  LENET_RETURN_IF_ERROR(CheckText("name", request.name(), kMaxNameBytes));
  return CheckFieldsKnown(request.spec());
}

absl::StatusOr<v1::Job> SameRequest(v1::Job job, const v1::StartRequest& request) {
  const bool same_spec = MessageDifferencer::Equals(job.spec(), request.spec());
  if (same_spec && SameStart(request, job)) return job;
  return absl::AlreadyExistsError(absl::StrCat("request_id \"", request.request_id(), "\" is that of job \"", job.id(),
                                               "\", with another ", same_spec ? "start" : "spec"));
}

absl::StatusOr<StartFile> ReadStartFile(const v1::StartRequest& request, const Admitted& admitted,
                                        const JobStore& store) {
  switch (request.start_from_case()) {
    case v1::StartRequest::kResumeFrom:
      return ReadCheckpoint(request.resume_from(), admitted, store);
    case v1::StartRequest::kInitialWeights: {
      StartFile start = {.bytes = request.initial_weights(), .from = v1::ResumeFrom()};
      const absl::Status parsed = ParseTensorFile(std::as_bytes(std::span(start.bytes)), "initial_weights").status();
      if (!parsed.ok()) return absl::InvalidArgumentError(parsed.message());
      return start;
    }
    case v1::StartRequest::START_FROM_NOT_SET:
      break;
  }
  return StartFile();
}

v1::Job NewJob(const v1::StartRequest& request, const StartFile& start, const LiveJob& live, absl::Time now) {
  v1::Job job;
  job.set_id(live.id);
  job.set_request_id(request.request_id());
  job.set_name(request.name());
  job.set_client(live.client);
  if (start.from) *job.mutable_resumed_from() = *start.from;
  job.set_state(v1::QUEUED);
  job.set_reason("waiting for its turn");
  *job.mutable_spec() = request.spec();
  *job.mutable_resolved() = live.admitted.resolved;
  *job.mutable_created_at() = ToTimestamp(now);
  return job;
}

absl::Status PlaceStartFile(const StartFile& start, const std::filesystem::path& job_folder) {
  if (!start.from) return absl::OkStatus();
  LENET_RETURN_IF_ERROR(MakeFolders(job_folder));
  const std::span<const std::byte> bytes = std::as_bytes(std::span(start.bytes));
  return WriteFileAtomic(job_folder / kStartFile, std::span(&bytes, 1));
}

}  // namespace lenet
