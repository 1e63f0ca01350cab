#include "server/rpc/training_service.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpc/grpc_security_constants.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/guarded.h"
#include "server/rpc/requests.h"
#include "server/rpc/streams.h"
#include "server/rpc/unix_peers.h"
#include "server/store/job_state.h"
#include "server/store/timestamp.h"
#include "trainer/base/log.h"
#include "trainer/base/mutex.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// A line for each call that changes something, whether it did or not.
void Audit(const Caller& caller, absl::string_view call, const std::string& job_id, const absl::Status& status) {
  const ScopedLogSubject subject({.job = job_id});
  Log(LogLevel::kInfo, absl::StrCat("audit: ", caller.name, " (", RoleName(caller.role), "): ", call,
                                    job_id.empty() ? "" : absl::StrCat(" of job ", job_id), ": ",
                                    status.ok() ? "OK" : absl::StatusCodeToString(status.code())));
}

// Answers a call with a job once that has ended or is paused, or when the client gives up.
class JobWaiter : public grpc::ServerUnaryReactor {
 public:
  // `job` lies in the response. The reactor lives until gRPC is done with it and nobody refers to it.
  static std::shared_ptr<JobWaiter> Make(JobManager* manager, std::string job_id, v1::Job* job) {
    const std::shared_ptr<JobWaiter> waiter(new JobWaiter(manager, std::move(job_id), job));
    waiter->self_ = waiter;
    return waiter;
  }

  void End(absl::StatusOr<v1::Job> job) {
    const absl::Status status = job.status();
    if (status.ok()) *job_ = *std::move(job);
    Finish(ToGrpcStatus(status));
  }

  // What the manager gave for an End() to come.
  void SetToken(uint64_t token) ABSL_LOCKS_EXCLUDED(mutex_) {
    bool cancelled = false;
    {
      MutexLock lock(&mutex_);
      token_ = token;
      cancelled = cancelled_;
    }
    if (cancelled) Cancel(token);
  }

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_) {
    uint64_t token = 0;
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
      token = token_;
    }
    Cancel(token);
  }
  void OnDone() override {
    // May destroy this.
    std::shared_ptr<JobWaiter> self = std::move(self_);
  }

 private:
  JobWaiter(JobManager* manager, std::string job_id, v1::Job* job)
      : manager_(manager), job_id_(std::move(job_id)), job_(job) {}

  void Cancel(uint64_t token) {
    if (token != 0 && manager_->StopWaiting(job_id_, token)) Finish(grpc::Status::CANCELLED);
  }

  JobManager* const manager_;
  const std::string job_id_;
  v1::Job* const job_;
  std::shared_ptr<JobWaiter> self_;
  Mutex mutex_;
  uint64_t token_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

TrainingService::TrainingService(ServerIdentity identity, const Access* access, Users* users, JobManager* manager,
                                 const Backend* backend, const DatasetCatalog* catalog, StreamHub* hub,
                                 Executor* executor, const CallCounts* calls)
    : identity_(std::move(identity)),
      access_(access),
      users_(users),
      manager_(manager),
      backend_(backend),
      catalog_(catalog),
      hub_(hub),
      executor_(executor),
      calls_(calls) {}

absl::StatusOr<Credentials> TrainingService::CredentialsOf(const grpc::CallbackServerContext& context) const {
  Credentials credentials;
  if (const std::optional<uid_t> peer = PeerOf(context)) {
    LENET_ASSIGN_OR_RETURN(credentials.user, users_->Find(*peer));
    credentials.client = credentials.user->client();
  } else {
    credentials.client = ClientOf(context.peer());
  }
  constexpr absl::string_view kScheme = "Bearer ";
  const auto header = context.client_metadata().find("authorization");
  if (header != context.client_metadata().end()) {
    const absl::string_view value(header->second.data(), header->second.size());
    // Another scheme is a token that nobody knows.
    credentials.token = std::string(absl::StartsWithIgnoreCase(value, kScheme) ? value.substr(kScheme.size()) : value);
  }
  const std::shared_ptr<const grpc::AuthContext> verified = context.auth_context();
  if (verified != nullptr && verified->IsPeerAuthenticated()) {
    for (const char* property : {GRPC_X509_CN_PROPERTY_NAME, GRPC_X509_SAN_PROPERTY_NAME}) {
      for (const grpc::string_ref& name : verified->FindPropertyValues(property)) {
        credentials.certificate_names.emplace_back(name.data(), name.size());
      }
    }
  }
  return credentials;
}

absl::StatusOr<Caller> TrainingService::Identify(const grpc::CallbackServerContext& context, Role least) const {
  LENET_ASSIGN_OR_RETURN(const Credentials credentials, CredentialsOf(context));
  LENET_ASSIGN_OR_RETURN(Caller caller, access_->Identify(credentials));
  if (caller.role >= least) return caller;
  return absl::PermissionDeniedError(absl::StrCat("\"", caller.name, "\" has the role ", RoleName(caller.role),
                                                  "; this call needs ", RoleName(least)));
}

absl::StatusOr<Caller> TrainingService::Admit(const grpc::CallbackServerContext& context, Role least) const {
  LENET_RETURN_IF_ERROR(calls_->Check(CountedClient(context)));
  return Identify(context, least);
}

absl::StatusOr<Caller> TrainingService::AdmitTo(const grpc::CallbackServerContext& context,
                                                const std::string& job_id) const {
  LENET_ASSIGN_OR_RETURN(Caller caller, Admit(context, Role::kSubmitter));
  if (caller.role == Role::kAdmin) return caller;
  LENET_ASSIGN_OR_RETURN(const v1::Job job, Guarded([&] { return manager_->GetJob(job_id); }));
  if (job.client() == caller.name) return caller;
  return absl::PermissionDeniedError(absl::StrCat("job ", job_id, " is of \"", job.client(), "\", and \"", caller.name,
                                                  "\" has the role submitter: it may change its own jobs alone"));
}

grpc::ServerUnaryReactor* TrainingService::Start(grpc::CallbackServerContext* context, const v1::StartRequest* request,
                                                 v1::StartResponse* response) {
  absl::StatusOr<Caller> caller = Admit(*context, Role::kSubmitter);
  if (!caller.ok()) return Refuse(context, "Start", "", caller.status());
  return Defer(context, [this, request, response, caller = *std::move(caller)]() -> absl::Status {
    absl::StatusOr<v1::Job> job = manager_->Start(*request, caller.name);
    Audit(caller, "Start", job.ok() ? job->id() : "", job.status());
    LENET_ASSIGN_OR_RETURN(*response->mutable_job(), std::move(job));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* TrainingService::Stop(grpc::CallbackServerContext* context, const v1::StopRequest* request,
                                                v1::StopResponse* response) {
  if (const absl::Status id = CheckJobId(request->job_id()); !id.ok()) return Answer(context, id);
  if (!v1::StopRequest::Mode_IsValid(request->mode())) {
    return Answer(context, BadValue("mode", static_cast<int>(request->mode()), "CHECKPOINT or ABORT"));
  }
  absl::StatusOr<Caller> caller = AdmitTo(*context, request->job_id());
  if (!caller.ok()) return Refuse(context, "Stop", request->job_id(), caller.status());
  const auto waiter = JobWaiter::Make(manager_, request->job_id(), response->mutable_job());
  return DeferTo(waiter.get(), [this, request, waiter, caller = *std::move(caller)] {
    const StopMode mode = request->mode() == v1::StopRequest::ABORT ? StopMode::kAbort : StopMode::kCheckpoint;
    absl::StatusOr<v1::Job> job = Guarded([&] { return manager_->Stop(request->job_id(), mode); });
    Audit(caller, mode == StopMode::kAbort ? "Stop (abort)" : "Stop", request->job_id(), job.status());
    if (!job.ok() || !request->wait() || IsTerminal(job->state())) return waiter->End(std::move(job));
    const auto end = [waiter](absl::StatusOr<v1::Job> ended) { waiter->End(std::move(ended)); };
    waiter->SetToken(manager_->WaitForEnd(request->job_id(), end));
  });
}

grpc::ServerUnaryReactor* TrainingService::Pause(grpc::CallbackServerContext* context, const v1::PauseRequest* request,
                                                 v1::PauseResponse* response) {
  if (const absl::Status id = CheckJobId(request->job_id()); !id.ok()) return Answer(context, id);
  absl::StatusOr<Caller> caller = AdmitTo(*context, request->job_id());
  if (!caller.ok()) return Refuse(context, "Pause", request->job_id(), caller.status());
  const auto waiter = JobWaiter::Make(manager_, request->job_id(), response->mutable_job());
  // The request may be gone as soon as the job is paused.
  return DeferTo(waiter.get(), [this, id = request->job_id(), waiter, caller = *std::move(caller)] {
    const auto end = [waiter](absl::StatusOr<v1::Job> paused) { waiter->End(std::move(paused)); };
    const absl::StatusOr<uint64_t> token =
        Guarded([&]() -> absl::StatusOr<uint64_t> { return manager_->Pause(id, end); });
    Audit(caller, "Pause", id, token.status());
    if (!token.ok()) return waiter->End(token.status());
    waiter->SetToken(*token);
  });
}

grpc::ServerUnaryReactor* TrainingService::Resume(grpc::CallbackServerContext* context,
                                                  const v1::ResumeRequest* request, v1::ResumeResponse* response) {
  if (const absl::Status id = CheckJobId(request->job_id()); !id.ok()) return Answer(context, id);
  absl::StatusOr<Caller> caller = AdmitTo(*context, request->job_id());
  if (!caller.ok()) return Refuse(context, "Resume", request->job_id(), caller.status());
  return Defer(context, [this, request, response, caller = *std::move(caller)]() -> absl::Status {
    absl::StatusOr<v1::Job> job = manager_->Resume(request->job_id());
    Audit(caller, "Resume", request->job_id(), job.status());
    LENET_ASSIGN_OR_RETURN(*response->mutable_job(), std::move(job));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* TrainingService::DeleteJob(grpc::CallbackServerContext* context,
                                                     const v1::DeleteJobRequest* request, v1::DeleteJobResponse*) {
  if (const absl::Status id = CheckJobId(request->job_id()); !id.ok()) return Answer(context, id);
  absl::StatusOr<Caller> caller = AdmitTo(*context, request->job_id());
  if (!caller.ok()) return Refuse(context, "DeleteJob", request->job_id(), caller.status());
  return Defer(context, [this, request, caller = *std::move(caller)] {
    const absl::Status status = manager_->Delete(request->job_id());
    Audit(caller, "DeleteJob", request->job_id(), status);
    return status;
  });
}

grpc::ServerUnaryReactor* TrainingService::ListCheckpoints(grpc::CallbackServerContext* context,
                                                           const v1::ListCheckpointsRequest* request,
                                                           v1::ListCheckpointsResponse* response) {
  if (const auto caller = Admit(*context, Role::kViewer); !caller.ok()) return Answer(context, caller.status());
  if (const absl::Status id = CheckJobId(request->job_id()); !id.ok()) return Answer(context, id);
  absl::StatusOr<v1::Job> job = Guarded([&] { return manager_->GetJob(request->job_id()); });
  if (!job.ok()) return Answer(context, job.status());
  response->mutable_checkpoints()->Swap(job->mutable_checkpoints());
  return Answer(context, absl::OkStatus());
}

grpc::ServerWriteReactor<v1::StreamMetricsResponse>* TrainingService::StreamMetrics(
    grpc::CallbackServerContext* context, const v1::StreamMetricsRequest* request) {
  const auto open = [&]() -> absl::StatusOr<std::shared_ptr<MetricsStream>> {
    LENET_ASSIGN_OR_RETURN(Caller caller, Identify(*context, Role::kViewer));
    LENET_RETURN_IF_ERROR(CheckJobId(request->job_id()));
    LENET_ASSIGN_OR_RETURN(RecordWishes wishes, ToWishes(*request));
    LENET_ASSIGN_OR_RETURN(MetricsReader reader, manager_->ReadMetrics(request->job_id(), request->from_sequence(),
                                                                       std::move(wishes), request->log_epoch()));
    return std::make_shared<MetricsStream>(std::move(caller.name), std::move(reader));
  };
  return MetricsStream::Open(Guarded(open), hub_);
}

grpc::ServerUnaryReactor* TrainingService::GetJob(grpc::CallbackServerContext* context,
                                                  const v1::GetJobRequest* request, v1::GetJobResponse* response) {
  if (const auto caller = Admit(*context, Role::kViewer); !caller.ok()) return Answer(context, caller.status());
  if (const absl::Status id = CheckJobId(request->job_id()); !id.ok()) return Answer(context, id);
  absl::StatusOr<v1::Job> job = Guarded([&] { return manager_->GetJob(request->job_id()); });
  if (!job.ok()) return Answer(context, job.status());
  *response->mutable_job() = *std::move(job);
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* TrainingService::ListJobs(grpc::CallbackServerContext* context,
                                                    const v1::ListJobsRequest* request,
                                                    v1::ListJobsResponse* response) {
  if (const auto caller = Admit(*context, Role::kViewer); !caller.ok()) return Answer(context, caller.status());
  const auto list = [&]() -> absl::Status {
    LENET_ASSIGN_OR_RETURN(const JobQuery query, ToQuery(*request));
    LENET_ASSIGN_OR_RETURN(JobPage page, manager_->ListJobs(query));
    for (v1::Job& job : page.jobs) *response->add_jobs() = std::move(job);
    response->set_next_page_token(page.next_page_token);
    return absl::OkStatus();
  };
  return Answer(context, Guarded(list));
}

grpc::ServerWriteReactor<v1::WatchJobsResponse>* TrainingService::WatchJobs(grpc::CallbackServerContext* context,
                                                                            const v1::WatchJobsRequest*) {
  const auto open = [&]() -> absl::StatusOr<std::shared_ptr<JobsStream>> {
    LENET_ASSIGN_OR_RETURN(Caller caller, Identify(*context, Role::kViewer));
    return std::make_shared<JobsStream>(std::move(caller.name), manager_);
  };
  return JobsStream::Open(Guarded(open), hub_);
}

grpc::ServerUnaryReactor* TrainingService::ListDatasets(grpc::CallbackServerContext* context,
                                                        const v1::ListDatasetsRequest*,
                                                        v1::ListDatasetsResponse* response) {
  if (const auto caller = Admit(*context, Role::kViewer); !caller.ok()) return Answer(context, caller.status());
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
  if (const auto caller = Admit(*context, Role::kViewer); !caller.ok()) return Answer(context, caller.status());
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
    const DevicePool::Device& state = load.devices[static_cast<size_t>(info.id)];
    device->set_job_id(state.holder);
    device->set_unhealthy(state.unhealthy);
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

grpc::ServerUnaryReactor* TrainingService::Refuse(grpc::CallbackServerContext* context, absl::string_view call,
                                                  const std::string& job_id, const absl::Status& status) const {
  const absl::StatusOr<Credentials> credentials = CredentialsOf(*context);
  const ScopedLogSubject subject({.job = job_id});
  Log(LogLevel::kInfo,
      absl::StrCat("audit: ", credentials.ok() ? credentials->client : CountedClient(*context), ": ", call,
                   job_id.empty() ? "" : absl::StrCat(" of job ", job_id), ": ", status.ToString()));
  return Answer(context, status);
}

grpc::ServerUnaryReactor* TrainingService::Defer(grpc::CallbackServerContext* context,
                                                 std::function<absl::Status()> call) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  return DeferTo(reactor, [reactor, call = std::move(call)] { reactor->Finish(ToGrpcStatus(Guarded(call))); });
}

grpc::ServerUnaryReactor* TrainingService::DeferTo(grpc::ServerUnaryReactor* reactor, std::function<void()> call) {
  if (!executor_->Run(std::move(call))) {
    reactor->Finish(ToGrpcStatus(absl::ResourceExhaustedError(
        absl::StrCat("no more than ", executor_->max_waiting(), " calls may wait for files"))));
  }
  return reactor;
}

}  // namespace lenet
