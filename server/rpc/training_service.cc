#include "server/rpc/training_service.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/job/convert.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/guarded.h"
#include "server/rpc/streams.h"
#include "server/store/job_state.h"
#include "server/store/timestamp.h"
#include "trainer/base/mutex.h"
#include "trainer/base/status.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

absl::Status CheckJobId(absl::string_view id) {
  return id.empty() ? absl::InvalidArgumentError("job_id = \"\": must name a job") : absl::OkStatus();
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

absl::StatusOr<JobQuery> ToQuery(const v1::ListJobsRequest& request) {
  JobQuery query = {.limit = request.page_size() == 0 ? kDefaultPageSize : request.page_size(),
                    .page_token = request.page_token()};
  if (query.limit < 1 || query.limit > kMaxPageSize) {
    return BadValue("page_size", query.limit, absl::StrCat("1 to ", kMaxPageSize, ", or 0 for ", kDefaultPageSize));
  }
  for (int state : request.states()) {
    if (!v1::JobState_IsValid(state) || state == v1::JOB_STATE_UNSPECIFIED) {
      return BadValue("states", state, "a state that a job can have");
    }
    query.states.push_back(static_cast<v1::JobState>(state));
  }
  return query;
}

absl::StatusOr<RecordWishes> ToWishes(const v1::StreamMetricsRequest& request) {
  RecordWishes wishes;
  wishes.ranks.insert(request.ranks().begin(), request.ranks().end());
  for (int kind : request.kinds()) {
    if (!v1::RecordKind_IsValid(kind) || kind == v1::RECORD_KIND_UNSPECIFIED) {
      return BadValue("kinds", kind, "a kind that a record can have");
    }
    wishes.kinds.insert(static_cast<v1::RecordKind>(kind));
  }
  if (request.every_n_steps() < 0) return BadValue("every_n_steps", request.every_n_steps(), "at least 0");
  wishes.every_n_steps = std::max(request.every_n_steps(), 1);
  if (!(request.max_rate() >= 0 && std::isfinite(request.max_rate()))) {
    return BadValue("max_rate", request.max_rate(), "finite and at least 0 (0: no limit)");
  }
  wishes.max_rate = request.max_rate();
  return wishes;
}

// Answers a Stop once the job has ended, or when the client gives up.
class StopWaiter : public grpc::ServerUnaryReactor {
 public:
  StopWaiter(JobManager* manager, std::string job_id, v1::StopResponse* response)
      : manager_(manager), job_id_(std::move(job_id)), response_(response) {}

  // Once, before gRPC gets to know the reactor.
  void Wait() {
    const uint64_t token = manager_->WaitForEnd(job_id_, [this](absl::StatusOr<v1::Job> job) {
      const absl::Status status = job.status();
      if (status.ok()) *response_->mutable_job() = *std::move(job);
      Finish(ToGrpcStatus(status));
    });
    token_.store(token, std::memory_order_release);
  }

  void OnCancel() override {
    if (manager_->StopWaiting(job_id_, token_.load(std::memory_order_acquire))) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  JobManager* const manager_;
  const std::string job_id_;
  v1::StopResponse* const response_;
  std::atomic<uint64_t> token_{0};
};

}  // namespace

TrainingService::TrainingService(ServerIdentity identity, JobManager* manager, const Backend* backend,
                                 const DatasetCatalog* catalog, StreamHub* hub, Executor* executor)
    : identity_(std::move(identity)),
      manager_(manager),
      backend_(backend),
      catalog_(catalog),
      hub_(hub),
      executor_(executor) {}

grpc::ServerUnaryReactor* TrainingService::Start(grpc::CallbackServerContext* context, const v1::StartRequest* request,
                                                 v1::StartResponse* response) {
  return Defer(context, [this, request, response]() -> absl::Status {
    LENET_ASSIGN_OR_RETURN(*response->mutable_job(), manager_->Start(*request));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* TrainingService::Stop(grpc::CallbackServerContext* context, const v1::StopRequest* request,
                                                v1::StopResponse* response) {
  if (const absl::Status id = CheckJobId(request->job_id()); !id.ok()) return Answer(context, id);
  if (!v1::StopRequest::Mode_IsValid(request->mode())) {
    return Answer(context, BadValue("mode", static_cast<int>(request->mode()), "CHECKPOINT or ABORT"));
  }
  const StopMode mode = request->mode() == v1::StopRequest::ABORT ? StopMode::kAbort : StopMode::kCheckpoint;
  absl::StatusOr<v1::Job> job = Guarded([&] { return manager_->Stop(request->job_id(), mode); });
  if (!job.ok()) return Answer(context, job.status());
  if (!request->wait() || IsTerminal(job->state())) {
    *response->mutable_job() = *std::move(job);
    return Answer(context, absl::OkStatus());
  }
  auto* const waiter = new StopWaiter(manager_, request->job_id(), response);
  waiter->Wait();
  return waiter;
}

grpc::ServerWriteReactor<v1::StreamMetricsResponse>* TrainingService::StreamMetrics(
    grpc::CallbackServerContext*, const v1::StreamMetricsRequest* request) {
  const auto open = [&]() -> absl::StatusOr<std::shared_ptr<MetricsStream>> {
    LENET_RETURN_IF_ERROR(CheckJobId(request->job_id()));
    LENET_ASSIGN_OR_RETURN(RecordWishes wishes, ToWishes(*request));
    LENET_ASSIGN_OR_RETURN(MetricsReader reader,
                           manager_->ReadMetrics(request->job_id(), request->from_sequence(), std::move(wishes)));
    return std::make_shared<MetricsStream>(std::move(reader));
  };
  return MetricsStream::Open(Guarded(open), hub_);
}

grpc::ServerUnaryReactor* TrainingService::GetJob(grpc::CallbackServerContext* context,
                                                  const v1::GetJobRequest* request, v1::GetJobResponse* response) {
  if (const absl::Status id = CheckJobId(request->job_id()); !id.ok()) return Answer(context, id);
  absl::StatusOr<v1::Job> job = Guarded([&] { return manager_->GetJob(request->job_id()); });
  if (!job.ok()) return Answer(context, job.status());
  *response->mutable_job() = *std::move(job);
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* TrainingService::ListJobs(grpc::CallbackServerContext* context,
                                                    const v1::ListJobsRequest* request,
                                                    v1::ListJobsResponse* response) {
  const auto list = [&]() -> absl::Status {
    LENET_ASSIGN_OR_RETURN(const JobQuery query, ToQuery(*request));
    LENET_ASSIGN_OR_RETURN(JobPage page, manager_->ListJobs(query));
    for (v1::Job& job : page.jobs) *response->add_jobs() = std::move(job);
    response->set_next_page_token(page.next_page_token);
    return absl::OkStatus();
  };
  return Answer(context, Guarded(list));
}

grpc::ServerWriteReactor<v1::WatchJobsResponse>* TrainingService::WatchJobs(grpc::CallbackServerContext*,
                                                                            const v1::WatchJobsRequest*) {
  return JobsStream::Open(absl::StatusOr<std::shared_ptr<JobsStream>>(std::make_shared<JobsStream>(manager_)), hub_);
}

grpc::ServerUnaryReactor* TrainingService::ListDatasets(grpc::CallbackServerContext* context,
                                                        const v1::ListDatasetsRequest*,
                                                        v1::ListDatasetsResponse* response) {
  return Defer(context, [this, response] {
    for (const DatasetInfo& info : catalog_->List()) {
      v1::DatasetInfo* const message = response->add_datasets();
      message->set_name(info.name);
      message->set_valid(info.valid);
      message->set_error(ValidUtf8(info.error));
      message->set_height(info.shape.height);
      message->set_width(info.shape.width);
      message->set_channels(info.valid ? info.shape.channels : 0);
      message->set_train_images(info.train_count);
      message->set_test_images(info.test_count);
      message->set_path(ValidUtf8(info.path));
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* TrainingService::GetServerInfo(grpc::CallbackServerContext* context,
                                                         const v1::GetServerInfoRequest*,
                                                         v1::GetServerInfoResponse* response) {
  const ServerLoad load = manager_->Load();
  response->set_version(identity_.version);
  response->set_backend(std::string(backend_->name()));
  response->set_backend_reason(ValidUtf8(identity_.backend_reason));
  for (const DeviceInfo& info : backend_->devices()) {
    v1::Device* const device = response->add_devices();
    device->set_id(info.id);
    device->set_name(info.name);
    device->set_kind(info.kind);
    device->set_memory_bytes(info.memory_bytes);
    device->set_job_id(load.device_jobs[static_cast<size_t>(info.id)]);
  }
  for (const auto& [library, version] : backend_->versions())
    (*response->mutable_library_versions())[library] = version;
  *response->mutable_started_at() = ToTimestamp(identity_.started_at);
  response->set_queued_jobs(load.queued);
  response->set_running_jobs(load.running);
  response->set_draining(load.draining);
  for (const std::string& net : PresetNames()) response->add_nets(net);
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* TrainingService::Defer(grpc::CallbackServerContext* context,
                                                 std::function<absl::Status()> call) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const bool accepted =
      executor_->Run([reactor, call = std::move(call)] { reactor->Finish(ToGrpcStatus(Guarded(call))); });
  if (!accepted) reactor->Finish(ToGrpcStatus(absl::ResourceExhaustedError("too many calls are waiting for files")));
  return reactor;
}

}  // namespace lenet
