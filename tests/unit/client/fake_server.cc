#include "tests/unit/client/fake_server.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "grpcpp/server_builder.h"

namespace lenet {
namespace {

grpc::Status Unavailable() { return {grpc::StatusCode::UNAVAILABLE, "draining"}; }

// How often a call that waits looks whether its client has gone.
std::chrono::steady_clock::time_point Soon() { return std::chrono::steady_clock::now() + std::chrono::milliseconds(5); }

void SetTime(double time, v1::MetricRecord* record) {
  record->mutable_time()->set_seconds(static_cast<int64_t>(std::floor(time)));
  record->mutable_time()->set_nanos(static_cast<int32_t>((time - std::floor(time)) * 1e9));
}

}  // namespace

void FakeService::PutJob(const v1::Job& job) {
  MutexLock lock(&mutex_);
  jobs_[job.id()] = job;
}

void FakeService::RemoveJob(const std::string& id) {
  MutexLock lock(&mutex_);
  jobs_.erase(id);
}

void FakeService::Append(const std::string& job_id, v1::MetricRecord record) {
  MutexLock lock(&mutex_);
  std::vector<v1::MetricRecord>& log = logs_[job_id];
  record.set_sequence(log.size() + 1);
  if (record.attempt() == 0 && record.state_change().to() != v1::QUEUED) record.set_attempt(1);
  log.push_back(std::move(record));
  changed_.SignalAll();
}

void FakeService::RemoveLog(const std::string& job_id) {
  MutexLock lock(&mutex_);
  logs_.erase(job_id);
}

void FakeService::Rewind(const std::string& job_id, uint64_t first_sequence) {
  MutexLock lock(&mutex_);
  logs_[job_id].resize(first_sequence - 1);
  epoch_starts_[job_id].push_back(first_sequence);
}

void FakeService::SetUnhealthy(const std::string& why) {
  MutexLock lock(&mutex_);
  unhealthy_ = why;
}

void FakeService::AddDataset(const std::string& name, bool valid) {
  MutexLock lock(&mutex_);
  v1::DatasetInfo dataset;
  dataset.set_name(name);
  dataset.set_valid(valid);
  dataset.set_path("/data/" + name);
  if (!valid) dataset.set_error("train-images-idx3-ubyte: not an IDX file");
  datasets_.push_back(dataset);
}

void FakeService::FailCalls(int count, bool after_effect) {
  MutexLock lock(&mutex_);
  failing_calls_ = count;
  fail_after_effect_ = after_effect;
}

void FakeService::HoldCalls() {
  MutexLock lock(&mutex_);
  hold_ = true;
}

void FakeService::BreakStreamsAfter(std::vector<int> records, const grpc::Status& status) {
  MutexLock lock(&mutex_);
  break_after_ = std::move(records);
  break_status_ = status;
}

void FakeService::EndStreamAfter(int records) {
  MutexLock lock(&mutex_);
  end_after_ = records;
}

void FakeService::SetBatchSize(int batch_size) {
  MutexLock lock(&mutex_);
  batch_size_ = batch_size;
}

void FakeService::ShortenPages(std::vector<int> jobs) {
  MutexLock lock(&mutex_);
  page_sizes_ = std::move(jobs);
}

void FakeService::Shutdown() {
  MutexLock lock(&mutex_);
  shutdown_ = true;
  changed_.SignalAll();
}

int FakeService::calls() const {
  MutexLock lock(&mutex_);
  return calls_;
}

std::vector<v1::Job> FakeService::jobs() const {
  MutexLock lock(&mutex_);
  std::vector<v1::Job> jobs;
  for (const auto& [id, job] : jobs_) jobs.push_back(job);
  return jobs;
}

std::vector<v1::StartRequest> FakeService::starts() const {
  MutexLock lock(&mutex_);
  return starts_;
}

std::vector<v1::StopRequest> FakeService::stops() const {
  MutexLock lock(&mutex_);
  return stops_;
}

std::vector<v1::StreamMetricsRequest> FakeService::streams() const {
  MutexLock lock(&mutex_);
  return streams_;
}

std::vector<std::string> FakeService::controls() const {
  MutexLock lock(&mutex_);
  return controls_;
}

grpc::Status FakeService::Enter(grpc::ServerContext* context, bool* fail_after) {
  MutexLock lock(&mutex_);
  shutdown_ = false;
  ++calls_;
  *fail_after = false;
  while (hold_ && !context->IsCancelled()) changed_.WaitUntil(&mutex_, Soon());
  if (failing_calls_ > 0) {
    --failing_calls_;
    if (!fail_after_effect_) return Unavailable();
    *fail_after = true;
  }
  return grpc::Status::OK;
}

grpc::Status FakeService::Start(grpc::ServerContext* context, const v1::StartRequest* request,
                                v1::StartResponse* response) {
  bool fail_after;
  if (grpc::Status status = Enter(context, &fail_after); !status.ok()) return status;
  MutexLock lock(&mutex_);
  starts_.push_back(*request);
  v1::Job* job = nullptr;
  for (auto& [id, known] : jobs_) {
    if (!request->request_id().empty() && known.request_id() == request->request_id()) job = &known;
  }
  if (job == nullptr) {
    const std::string id = "job-" + std::to_string(jobs_.size() + 1);
    job = &jobs_[id];
    job->set_id(id);
    job->set_request_id(request->request_id());
    job->set_state(v1::QUEUED);
    *job->mutable_spec() = request->spec();
  }
  *response->mutable_job() = *job;
  return fail_after ? Unavailable() : grpc::Status::OK;
}

grpc::Status FakeService::Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                               v1::StopResponse* response) {
  bool fail_after;
  if (grpc::Status status = Enter(context, &fail_after); !status.ok()) return status;
  MutexLock lock(&mutex_);
  stops_.push_back(*request);
  const auto job = jobs_.find(request->job_id());
  if (job == jobs_.end()) return {grpc::StatusCode::NOT_FOUND, "no job " + request->job_id()};
  job->second.set_state(v1::STOPPED);
  *response->mutable_job() = job->second;
  return fail_after ? Unavailable() : grpc::Status::OK;
}

grpc::Status FakeService::ChangeState(grpc::ServerContext* context, const std::string& call, const std::string& job_id,
                                      v1::JobState state, v1::Job* job) {
  bool fail_after;
  if (grpc::Status status = Enter(context, &fail_after); !status.ok()) return status;
  MutexLock lock(&mutex_);
  controls_.push_back(call + " " + job_id);
  const auto known = jobs_.find(job_id);
  if (known == jobs_.end()) return {grpc::StatusCode::NOT_FOUND, "no job " + job_id};
  if (known->second.state() == v1::SUCCEEDED) {
    return {grpc::StatusCode::FAILED_PRECONDITION, "job " + job_id + " is SUCCEEDED"};
  }
  known->second.set_state(state);
  *job = known->second;
  return fail_after ? Unavailable() : grpc::Status::OK;
}

grpc::Status FakeService::Pause(grpc::ServerContext* context, const v1::PauseRequest* request,
                                v1::PauseResponse* response) {
  return ChangeState(context, "pause", request->job_id(), v1::PAUSED, response->mutable_job());
}

grpc::Status FakeService::Resume(grpc::ServerContext* context, const v1::ResumeRequest* request,
                                 v1::ResumeResponse* response) {
  return ChangeState(context, "resume", request->job_id(), v1::QUEUED, response->mutable_job());
}

grpc::Status FakeService::DeleteJob(grpc::ServerContext* context, const v1::DeleteJobRequest* request,
                                    v1::DeleteJobResponse*) {
  bool fail_after;
  if (grpc::Status status = Enter(context, &fail_after); !status.ok()) return status;
  MutexLock lock(&mutex_);
  controls_.push_back("rm " + request->job_id());
  const auto job = jobs_.find(request->job_id());
  if (job == jobs_.end()) return {grpc::StatusCode::NOT_FOUND, "no job " + request->job_id()};
  if (job->second.state() == v1::RUNNING) {
    return {grpc::StatusCode::FAILED_PRECONDITION, "job " + request->job_id() + " is RUNNING"};
  }
  jobs_.erase(job);
  return fail_after ? Unavailable() : grpc::Status::OK;
}

grpc::Status FakeService::ListCheckpoints(grpc::ServerContext* context, const v1::ListCheckpointsRequest* request,
                                          v1::ListCheckpointsResponse* response) {
  bool fail_after;
  if (grpc::Status status = Enter(context, &fail_after); !status.ok()) return status;
  MutexLock lock(&mutex_);
  const auto job = jobs_.find(request->job_id());
  if (job == jobs_.end()) return {grpc::StatusCode::NOT_FOUND, "no job " + request->job_id()};
  *response->mutable_checkpoints() = job->second.checkpoints();
  return fail_after ? Unavailable() : grpc::Status::OK;
}

grpc::Status FakeService::StreamMetrics(grpc::ServerContext* context, const v1::StreamMetricsRequest* request,
                                        grpc::ServerWriter<v1::StreamMetricsResponse>* writer) {
  MutexLock lock(&mutex_);
  shutdown_ = false;
  streams_.push_back(*request);
  const std::string id = request->job_id();
  if (jobs_.count(id) == 0) return {grpc::StatusCode::NOT_FOUND, "no job " + id};
  int break_after = -1;
  if (!break_after_.empty()) {
    break_after = break_after_.front();
    break_after_.erase(break_after_.begin());
  }
  const int end_after = std::exchange(end_after_, -1);
  size_t next = std::max<uint64_t>(request->from_sequence(), 1) - 1;
  v1::StreamMetricsResponse response;
  const std::vector<uint64_t> starts = epoch_starts_[id];
  if (request->log_epoch() > 0 && request->log_epoch() <= starts.size()) {
    const uint64_t first = starts[request->log_epoch() - 1];
    if (first < next + 1) {
      v1::MetricRecord* rewound = response.add_records();
      rewound->set_sequence(first - 1);
      rewound->mutable_rewound()->set_first_sequence(first);
      rewound->mutable_rewound()->set_log_epoch(static_cast<uint32_t>(starts.size() + 1));
      next = first - 1;
    }
  }
  int sent = 0;
  while (true) {
    if (sent == break_after) return break_status_;
    if (sent == end_after) return grpc::Status::OK;
    if (next >= logs_[id].size() && !logs_[id].empty() && logs_[id].back().has_terminal()) return grpc::Status::OK;
    while (next >= logs_[id].size() && !shutdown_ && !context->IsCancelled()) changed_.WaitUntil(&mutex_, Soon());
    if (shutdown_ || context->IsCancelled()) return Unavailable();
    response.set_log_epoch(static_cast<uint32_t>(starts.size() + 1));
    while (next < logs_[id].size() && response.records_size() < batch_size_ && sent != break_after &&
           sent != end_after) {
      *response.add_records() = logs_[id][next++];
      ++sent;
    }
    const bool last = response.records(response.records_size() - 1).has_terminal();
    mutex_.Unlock();
    const bool written = writer->Write(response);
    response.Clear();
    mutex_.Lock();
    if (last || !written) return grpc::Status::OK;
  }
}

grpc::Status FakeService::GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                                 v1::GetJobResponse* response) {
  bool fail_after;
  if (grpc::Status status = Enter(context, &fail_after); !status.ok()) return status;
  MutexLock lock(&mutex_);
  const auto job = jobs_.find(request->job_id());
  if (job == jobs_.end()) return {grpc::StatusCode::NOT_FOUND, "no job " + request->job_id()};
  *response->mutable_job() = job->second;
  response->mutable_job()->set_last_sequence(logs_[request->job_id()].size());
  return grpc::Status::OK;
}

grpc::Status FakeService::ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                                   v1::ListJobsResponse* response) {
  bool fail_after;
  if (grpc::Status status = Enter(context, &fail_after); !status.ok()) return status;
  MutexLock lock(&mutex_);
  std::vector<v1::Job> jobs;
  for (const auto& [id, job] : jobs_) {
    if (request->states().empty() || std::count(request->states().begin(), request->states().end(), job.state()) > 0) {
      jobs.push_back(job);
    }
  }
  const size_t begin = request->page_token().empty() ? 0 : std::stoul(request->page_token());
  size_t page_size = request->page_size();
  if (!page_sizes_.empty()) {
    page_size = std::min<size_t>(page_size, page_sizes_.front());
    page_sizes_.erase(page_sizes_.begin());
  }
  const size_t end = std::min<size_t>(jobs.size(), begin + page_size);
  for (size_t i = begin; i < end; ++i) *response->add_jobs() = jobs[i];
  if (end < jobs.size()) response->set_next_page_token(std::to_string(end));
  return grpc::Status::OK;
}

grpc::Status FakeService::ListDatasets(grpc::ServerContext* context, const v1::ListDatasetsRequest*,
                                       v1::ListDatasetsResponse* response) {
  bool fail_after;
  if (grpc::Status status = Enter(context, &fail_after); !status.ok()) return status;
  MutexLock lock(&mutex_);
  for (const v1::DatasetInfo& dataset : datasets_) *response->add_datasets() = dataset;
  return grpc::Status::OK;
}

grpc::Status FakeService::GetServerInfo(grpc::ServerContext* context, const v1::GetServerInfoRequest*,
                                        v1::GetServerInfoResponse* response) {
  bool fail_after;
  if (grpc::Status status = Enter(context, &fail_after); !status.ok()) return status;
  response->set_version("1.2.3");
  response->set_backend("cpu");
  response->set_backend_reason("no CUDA driver");
  for (int id = 0; id < 2; ++id) {
    v1::Device* device = response->add_devices();
    device->set_id(id);
    device->set_name("Test CPU");
    device->set_kind("cpu avx2");
  }
  MutexLock lock(&mutex_);
  response->mutable_devices(0)->set_unhealthy(unhealthy_);
  return grpc::Status::OK;
}

FakeServer::FakeServer(FakeService* service, int port) : service_(service) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(service);
  server_ = builder.BuildAndStart();
}

FakeServer::~FakeServer() {
  if (server_ == nullptr) return;
  service_->Shutdown();
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

v1::MetricRecord StepRecord(int64_t step, const std::vector<float>& loss_of_rank, double time) {
  v1::MetricRecord record;
  SetTime(time, &record);
  for (size_t rank = 0; rank < loss_of_rank.size(); ++rank) {
    record.mutable_step_losses()->add_steps(step);
    record.mutable_step_losses()->add_ranks(static_cast<int>(rank));
    record.mutable_step_losses()->add_losses(loss_of_rank[rank]);
  }
  return record;
}

v1::MetricRecord StateRecord(v1::JobState from, v1::JobState to, double time) {
  v1::MetricRecord record;
  SetTime(time, &record);
  record.mutable_state_change()->set_from(from);
  record.mutable_state_change()->set_to(to);
  return record;
}

v1::MetricRecord TerminalRecord(v1::JobState state, int64_t last_step) {
  v1::MetricRecord record;
  record.mutable_terminal()->set_state(state);
  record.mutable_terminal()->set_last_step(last_step);
  return record;
}

}  // namespace lenet
