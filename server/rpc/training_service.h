// lenet.v1.TrainingService on the job manager. The calls' meaning is written in proto/README.md.
#ifndef LENET_SERVER_RPC_TRAINING_SERVICE_H_
#define LENET_SERVER_RPC_TRAINING_SERVICE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lenet/v1/training_service.grpc.pb.h"
#include "server/job/job_manager.h"
#include "server/rpc/access.h"
#include "server/rpc/call_counts.h"
#include "server/rpc/executor.h"
#include "server/rpc/stream_hub.h"
#include "server/rpc/users.h"
#include "trainer/backend/backend.h"
#include "trainer/data/catalog.h"

namespace lenet {

struct ServerIdentity {
  std::string version;
  std::string backend_reason;  // why there is no GPU; may be empty
  absl::Time started_at;
};

// No call blocks a thread of gRPC's: what reads files or changes a job runs on an executor, streams are driven by a
// hub, and a Stop or Pause that waits is answered by whoever ends the attempt.
class TrainingService final : public v1::TrainingService::CallbackService {
 public:
  // All outlive it.
  TrainingService(ServerIdentity identity, const Access* access, Users* users, JobManager* manager,
                  const Backend* backend, const DatasetCatalog* catalog, StreamHub* hub, Executor* executor,
                  const CallCounts* calls);

  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, const v1::StartRequest* request,
                                  v1::StartResponse* response) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const v1::StopRequest* request,
                                 v1::StopResponse* response) override;
  grpc::ServerUnaryReactor* Pause(grpc::CallbackServerContext* context, const v1::PauseRequest* request,
                                  v1::PauseResponse* response) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context, const v1::ResumeRequest* request,
                                   v1::ResumeResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context, const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerWriteReactor<v1::StreamMetricsResponse>* StreamMetrics(grpc::CallbackServerContext* context,
                                                                     const v1::StreamMetricsRequest* request) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobsResponse>* WatchJobs(grpc::CallbackServerContext* context,
                                                             const v1::WatchJobsRequest* request) override;
  grpc::ServerUnaryReactor* ListDatasets(grpc::CallbackServerContext* context, const v1::ListDatasetsRequest* request,
                                         v1::ListDatasetsResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;

 private:
  // What the call brings to tell who makes it.
  absl::StatusOr<Credentials> CredentialsOf(const grpc::CallbackServerContext& context) const;
  // Who makes the call. UNAUTHENTICATED where nobody knows, PERMISSION_DENIED without the role.
  absl::StatusOr<Caller> Identify(const grpc::CallbackServerContext& context, Role least) const;
  // That, for a call that is no stream: RESOURCE_EXHAUSTED if there are too many.
  absl::StatusOr<Caller> Admit(const grpc::CallbackServerContext& context, Role least) const;
  // That, for a call that changes a job: a submitter may change its own alone.
  absl::StatusOr<Caller> AdmitTo(const grpc::CallbackServerContext& context, const std::string& job_id) const;
  // Answers a call that would change something and may not.
  grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, absl::string_view call,
                                   const std::string& job_id, const absl::Status& status) const;
  // Answers from the executor with what `call` gives.
  grpc::ServerUnaryReactor* Defer(grpc::CallbackServerContext* context, std::function<absl::Status()> call);
  // Runs on the executor what finishes the reactor.
  grpc::ServerUnaryReactor* DeferTo(grpc::ServerUnaryReactor* reactor, std::function<void()> call);

  const ServerIdentity identity_;
  const Access* const access_;
  Users* const users_;
  JobManager* const manager_;
  const Backend* const backend_;
  const DatasetCatalog* const catalog_;
  StreamHub* const hub_;
  Executor* const executor_;
  const CallCounts* const calls_;
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_TRAINING_SERVICE_H_
