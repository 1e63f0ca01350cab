#include "server/job/start_request.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/job/checkpoint_keeper.h"
#include "server/job/convert.h"
#include "server/store/timestamp.h"
#include "trainer/base/file.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"
#include "trainer/train/checkpoint.h"
#include "trainer/train/safetensors.h"

namespace lenet {
namespace {

using ::google::protobuf::util::MessageDifferencer;

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxRequestIdBytes = 128;
// Of a checkpoint's header.
constexpr int64_t kMaxHeaderBytes = int64_t{1} << 20;
constexpr size_t kMaxWeightsBytes = size_t{4} << 20;

absl::Status CheckText(absl::string_view field, absl::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", text.size(), " bytes long; must be at most ", max_bytes));
  }
  if (HasControls(text)) return absl::InvalidArgumentError(absl::StrCat(field, ": must not hold control characters"));
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
    return value == before ? absl::OkStatus() : Differs(field, Decimal(value), Decimal(before), source);
  };
  // The default rate follows from the optimizer and the batch: what differs is named before what comes of it.
  if (!MessageDifferencer::Equals(now.optimizer(), was.optimizer())) {
    return Differs("optimizer", now.optimizer().ShortDebugString(), was.optimizer().ShortDebugString(), source);
  }
  LENET_RETURN_IF_ERROR(number("seed", now.seed(), was.seed()));
  LENET_RETURN_IF_ERROR(number("global_batch_size", now.global_batch_size(), was.global_batch_size()));
  LENET_RETURN_IF_ERROR(number("learning_rate", now.learning_rate(), was.learning_rate()));
  LENET_RETURN_IF_ERROR(number("clip_norm", now.clip_norm(), was.clip_norm()));
  LENET_RETURN_IF_ERROR(number("precision", int{now.precision()}, int{was.precision()}));
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

absl::StatusOr<std::string> ReadSource(const std::filesystem::path& path, const v1::Checkpoint& checkpoint,
                                       int64_t max_bytes) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size != static_cast<uintmax_t>(checkpoint.bytes())) {
    return absl::DataLossError(
        absl::StrCat("'", path.string(), "' has ", size, " bytes: must have ", checkpoint.bytes()));
  }
  absl::StatusOr<std::string> bytes = ReadFile(path, max_bytes);
  // What has to do with the server alone may pass. All else is the file: missing, no regular one, a loop of links, ...
  const absl::Status& status = bytes.status();
  if (absl::IsPermissionDenied(status) || absl::IsResourceExhausted(status)) return status;
  if (!status.ok()) return absl::DataLossError(status.message());
  LENET_ASSIGN_OR_RETURN(const int64_t step,
                         CheckpointStep(std::as_bytes(std::span<const char>(*bytes)), path.string()));
  if (step == checkpoint.step()) return bytes;
  return absl::DataLossError(absl::StrCat(path.string(), ": is the state after step ", step));
}

absl::StatusOr<StartFile> TryReadCheckpoint(const v1::ResumeFrom& from, const Admitted& admitted, const JobStore& store,
                                            const std::filesystem::path& checkpoint_root) {
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
  const std::filesystem::path path = CheckpointFile(checkpoint_root / source->id(), checkpoint);
  absl::StatusOr<std::string> bytes = ReadSource(path, checkpoint, admitted.checkpoint_bytes + kMaxHeaderBytes);
  if (!bytes.ok()) return Annotate(bytes.status(), ResumeSource(*start.from));
  start.bytes = *std::move(bytes);
  return start;
}

absl::StatusOr<StartFile> ReadCheckpoint(const v1::ResumeFrom& from, const Admitted& admitted, const JobStore& store,
                                         const std::filesystem::path& checkpoint_root) {
  absl::StatusOr<StartFile> start = TryReadCheckpoint(from, admitted, store, checkpoint_root);
  // A running job may have replaced the file since its record was read.
  if (absl::IsDataLoss(start.status())) start = TryReadCheckpoint(from, admitted, store, checkpoint_root);
  return start;
}

absl::Status CheckWeights(const std::string& bytes, const Admitted& admitted) {
  LENET_ASSIGN_OR_RETURN(TensorFile file, ParseTensorFile(std::as_bytes(std::span(bytes)), "initial_weights"));
  const auto bad = [](const std::string& name, const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("initial_weights: tensor ", Shown(name, kMaxShownName), ": ", what...));
  };
  for (const WeightForm& form : admitted.weights) {
    const auto found = file.tensors.find(form.name);
    if (found == file.tensors.end()) return bad(form.name, "is missing");
    if (found->second.dtype != DType::kF32) return bad(form.name, "must be F32");
    if (form.shape && found->second.shape != *form.shape) {
      return bad(form.name, "shape [", absl::StrJoin(found->second.shape, ","), "]: must be [",
                 absl::StrJoin(*form.shape, ","), "]");
    }
    file.tensors.erase(found);
  }
  for (const auto& [name, tensor] : file.tensors) {
    if (!absl::StartsWith(name, kStatePrefix)) return bad(name, "belongs to no layer of the net");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRequest(const v1::StartRequest& request) {
  LENET_RETURN_IF_ERROR(CheckText("request_id", request.request_id(), kMaxRequestIdBytes));
  LENET_RETURN_IF_ERROR(CheckText("name", request.name(), kMaxNameBytes));
  if (request.has_resume_from() && request.resume_from().job_id().empty()) {
    return absl::InvalidArgumentError("resume_from.job_id = \"\": must name a job");
  }
  if (request.initial_weights().size() > kMaxWeightsBytes) {
    return absl::InvalidArgumentError(absl::StrCat("initial_weights: ", request.initial_weights().size(),
                                                   " bytes: must be at most ", kMaxWeightsBytes));
  }
  return CheckFieldsKnown(request);
}

absl::StatusOr<v1::Job> SameRequest(v1::Job job, const v1::StartRequest& request) {
  const bool same_spec = MessageDifferencer::Equals(job.spec(), request.spec());
  if (same_spec && SameStart(request, job)) return job;
  return absl::AlreadyExistsError(absl::StrCat("request_id \"", request.request_id(), "\" is that of job \"", job.id(),
                                               "\", with another ", same_spec ? "start" : "spec"));
}

absl::StatusOr<StartFile> ReadStartFile(const v1::StartRequest& request, const Admitted& admitted,
                                        const JobStore& store, const std::filesystem::path& checkpoint_root) {
  switch (request.start_from_case()) {
    case v1::StartRequest::kResumeFrom:
      return ReadCheckpoint(request.resume_from(), admitted, store, checkpoint_root);
    case v1::StartRequest::kInitialWeights: {
      StartFile start = {.bytes = request.initial_weights(), .from = v1::ResumeFrom()};
      const absl::Status fits = CheckWeights(start.bytes, admitted);
      if (!fits.ok()) return absl::InvalidArgumentError(fits.message());
      return start;
    }
    case v1::StartRequest::START_FROM_NOT_SET:
      break;
  }
  return StartFile();
}

std::string ResumeSource(const v1::ResumeFrom& from) {
  return absl::StrCat("resume_from: the checkpoint of step ", from.step(), " of job ", from.job_id());
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

v1::MetricRecord FirstRecord(const v1::Job& job) {
  v1::MetricRecord record;
  *record.mutable_time() = job.created_at();
  record.mutable_state_change()->set_to(job.state());
  record.mutable_state_change()->set_reason(job.reason());
  return record;
}

absl::Status PlaceStartFile(const StartFile& start, const std::filesystem::path& job_folder) {
  if (!start.from) return absl::OkStatus();
  LENET_RETURN_IF_ERROR(MakeFolders(job_folder));
  const std::span<const std::byte> bytes = std::as_bytes(std::span(start.bytes));
  return WriteFileAtomic(job_folder / kStartFile, std::span(&bytes, 1));
}

}  // namespace lenet
