// A TrainingService in this process whose jobs and logs are what a test writes, with the faults that it asks for.
#ifndef LENET_TESTS_UNIT_CLIENT_FAKE_SERVER_H_
#define LENET_TESTS_UNIT_CLIENT_FAKE_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/server.h"
#include "lenet/v1/training_service.grpc.pb.h"
#include "trainer/base/mutex.h"

namespace lenet {

class FakeService : public v1::TrainingService::Service {
 public:
  // Adds a job or replaces the one with this id.
  void PutJob(const v1::Job& job);
  void RemoveJob(const std::string& id);
  // Appends to the job's log; sets the sequence and, if there is none, the attempt, but for QUEUED.
  void Append(const std::string& job_id, v1::MetricRecord record);
  void RemoveLog(const std::string& job_id);
  // As a loss of power: the job's log begins a new epoch and has no records from this sequence on.
  void Rewind(const std::string& job_id, uint64_t first_sequence);
  void AddDataset(const std::string& name, bool valid);
  // Of device 0; empty: it is sound.
  void SetUnhealthy(const std::string& why);

  // The next `count` unary calls fail with UNAVAILABLE; with `after_effect` they first do what was asked.
  void FailCalls(int count, bool after_effect);
  // Unary calls answer only after they are cancelled or past their deadline.
  void HoldCalls();
  // One entry a StreamMetrics call to come: it ends with `status` after that many records.
  void BreakStreamsAfter(std::vector<int> records,
                         const grpc::Status& status = {grpc::StatusCode::UNAVAILABLE, "draining"});
  // The next stream ends with OK after that many records.
  void EndStreamAfter(int records);
  // Records in one message of a stream.
  void SetBatchSize(int batch_size);
  // One entry a ListJobs call to come: at most that many jobs are in its page, though more were asked for.
  void ShortenPages(std::vector<int> jobs);
  // Lets every call end, so that the server can.
  void Shutdown();

  int calls() const;
  std::vector<v1::Job> jobs() const;
  std::vector<v1::StartRequest> starts() const;
  std::vector<v1::StopRequest> stops() const;
  std::vector<v1::StreamMetricsRequest> streams() const;
  // "pause a", "resume a", "rm a", in the order of the calls.
  std::vector<std::string> controls() const;

  grpc::Status Start(grpc::ServerContext*, const v1::StartRequest*, v1::StartResponse*) override;
  grpc::Status Stop(grpc::ServerContext*, const v1::StopRequest*, v1::StopResponse*) override;
  grpc::Status Pause(grpc::ServerContext*, const v1::PauseRequest*, v1::PauseResponse*) override;
  grpc::Status Resume(grpc::ServerContext*, const v1::ResumeRequest*, v1::ResumeResponse*) override;
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest*, v1::DeleteJobResponse*) override;
  grpc::Status ListCheckpoints(grpc::ServerContext*, const v1::ListCheckpointsRequest*,
                               v1::ListCheckpointsResponse*) override;
  grpc::Status StreamMetrics(grpc::ServerContext*, const v1::StreamMetricsRequest*,
                             grpc::ServerWriter<v1::StreamMetricsResponse>*) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobResponse*) override;
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*, v1::ListJobsResponse*) override;
  grpc::Status ListDatasets(grpc::ServerContext*, const v1::ListDatasetsRequest*, v1::ListDatasetsResponse*) override;
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse*) override;

 private:
  // Counts the call and gives the fault that it meets, before or after its effect.
  grpc::Status Enter(grpc::ServerContext* context, bool* fail_after);
  // The body of Pause and of Resume.
  grpc::Status ChangeState(grpc::ServerContext* context, const std::string& call, const std::string& job_id,
                           v1::JobState state, v1::Job* job);

  mutable Mutex mutex_;
  CondVar changed_;
  bool shutdown_ ABSL_GUARDED_BY(mutex_) = false;
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int failing_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool fail_after_effect_ ABSL_GUARDED_BY(mutex_) = false;
  int batch_size_ ABSL_GUARDED_BY(mutex_) = 1;
  int end_after_ ABSL_GUARDED_BY(mutex_) = -1;
  std::vector<int> break_after_ ABSL_GUARDED_BY(mutex_);
  grpc::Status break_status_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> page_sizes_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, v1::Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<v1::MetricRecord>> logs_ ABSL_GUARDED_BY(mutex_);
  // First sequence of the log epochs from 2 on.
  std::map<std::string, std::vector<uint64_t>> epoch_starts_ ABSL_GUARDED_BY(mutex_);
  std::string unhealthy_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::DatasetInfo> datasets_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::StartRequest> starts_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::StopRequest> stops_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::StreamMetricsRequest> streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> controls_ ABSL_GUARDED_BY(mutex_);
};

// A server on a port of this host; ends on destruction, cutting the calls that are open.
class FakeServer {
 public:
  // `port` 0: any.
  explicit FakeServer(FakeService* service, int port = 0);
  ~FakeServer();

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  FakeService* const service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

v1::MetricRecord StepRecord(int64_t step, const std::vector<float>& loss_of_rank, double time = 0);
v1::MetricRecord StateRecord(v1::JobState from, v1::JobState to, double time = 0);
v1::MetricRecord TerminalRecord(v1::JobState state, int64_t last_step);

}  // namespace lenet

#endif  // LENET_TESTS_UNIT_CLIENT_FAKE_SERVER_H_
