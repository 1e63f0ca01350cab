#include "client/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace lenet {
namespace {

// How often a wait looks whether the client was cancelled.
constexpr absl::Duration kSlice = absl::Milliseconds(50);

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(2);

constexpr absl::Duration kKeepalive = absl::Seconds(20);
constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(10);

std::shared_ptr<grpc::ChannelCredentials> Credentials(const TlsOptions& tls) {
  if (!tls.enabled) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials(
      {.pem_root_certs = tls.ca, .pem_private_key = tls.key, .pem_cert_chain = tls.certificate});
}

void Identify(const ClientOptions& options, grpc::ClientContext* context) {
  if (!options.token.empty()) context->AddMetadata("authorization", absl::StrCat("Bearer ", options.token));
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address, const TlsOptions& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(absl::ToInt64Milliseconds(kFirstPause)));
  // Finds a peer that has vanished without a word while a quiet job is followed; lenetd allows a ping in ten seconds.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(absl::ToInt64Milliseconds(kKeepalive)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(absl::ToInt64Milliseconds(kKeepaliveTimeout)));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(absl::ToInt64Milliseconds(kLongestPause)));
  return grpc::CreateCustomChannel(address, Credentials(tls), arguments);
}

// By these gRPC tells that the connection, or the server itself, broke off in the midst of a call. What the client
// cancels itself is known before.
bool BrokeOff(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return true;
    case grpc::StatusCode::UNKNOWN:
      return absl::StrContains(status.error_message(), "Stream removed");
    case grpc::StatusCode::INTERNAL:
      return absl::StrContains(status.error_message(), "RST_STREAM");
    default:
      return false;
  }
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (BrokeOff(status)) {
    return absl::UnavailableError(status.error_message().empty() ? "the connection broke" : status.error_message());
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::Status Cancelled() { return absl::CancelledError("cancelled"); }

absl::Status NoConnection(absl::Duration time) {
  // At least one: what is left of a very short time may be none.
  const absl::Duration rounded = std::max(absl::Ceil(time, absl::Milliseconds(1)), absl::Milliseconds(1));
  return absl::UnavailableError(absl::StrCat("no connection within ", absl::FormatDuration(rounded)));
}

absl::Status LogEnded() { return absl::OutOfRangeError("the job's log has ended"); }

template <typename Response>
absl::StatusOr<v1::Job> TakeJob(absl::StatusOr<Response> response) {
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::Duration LongerPause(absl::Duration pause) { return std::min(2 * pause, kLongestPause); }

}  // namespace

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      channel_(NewChannel(options_.address, options_.tls)),
      stub_(v1::TrainingService::NewStub(channel_)) {}

void Client::Connect(absl::Time deadline) const {
  while (!cancelled() && absl::Now() < deadline) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) ever_connected_ = true;
    if (state != GRPC_CHANNEL_IDLE && state != GRPC_CHANNEL_CONNECTING) return;
    channel_->WaitForStateChange(state, absl::ToChronoTime(std::min(deadline, absl::Now() + kSlice)));
  }
}

void Client::Rest(absl::Time until) const {
  for (absl::Time now = absl::Now(); !cancelled() && now < until; now = absl::Now()) {
    // gRPC makes connections in the threads that wait for it. In a mere sleep it would look after them every five
    // seconds.
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    channel_->WaitForStateChange(state, absl::ToChronoTime(std::min(until, now + kSlice)));
  }
}

template <typename Request, typename Response>
absl::StatusOr<Response> Client::Call(Method<Request, Response> method, const Request& request, absl::Time deadline,
                                      bool repeat, bool* repeated) const {
  const absl::Time began = absl::Now();
  // A server that is not there must be told from one that is slow, so the connection comes first.
  Connect(std::min(deadline, began + options_.timeout));
  const bool connected = ever_connected_;
  absl::Time give_up = deadline;
  absl::Duration pause = kFirstPause;
  while (true) {
    if (cancelled()) return Cancelled();
    const absl::Time call_deadline = connected ? deadline : std::min(deadline, began + options_.timeout);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    Response response;
    grpc::Status grpc_status;
    Identify(options_, &context);
    context.set_deadline(absl::ToChronoTime(call_deadline));
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader = (*stub_.*method)(&context, request, &queue);
    reader->Finish(&response, &grpc_status, nullptr);
    void* tag;
    bool ok;
    while (queue.AsyncNext(&tag, &ok, absl::ToChronoTime(absl::Now() + kSlice)) == grpc::CompletionQueue::TIMEOUT) {
      if (cancelled()) context.TryCancel();
    }
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    if (grpc_status.ok()) return response;
    if (cancelled()) return Cancelled();
    const absl::Status status = FromGrpc(grpc_status);
    if (!connected && absl::IsDeadlineExceeded(status)) return NoConnection(call_deadline - began);
    if (!absl::IsUnavailable(status) || !connected || !repeat) return status;

    const absl::Time now = absl::Now();
    give_up = std::min(give_up, now + options_.reconnect_timeout);
    const absl::Time again = now + pause;
    if (again >= give_up) return status;
    Rest(again);
    pause = LongerPause(pause);
    if (repeated != nullptr) *repeated = true;
  }
}

absl::StatusOr<v1::Job> Client::Start(const v1::StartRequest& request) const {
  return TakeJob(Call(&v1::TrainingService::Stub::AsyncStart, request, absl::Now() + options_.timeout,
                      !request.request_id().empty()));
}

absl::StatusOr<v1::Job> Client::Stop(const std::string& job_id, v1::StopRequest::Mode mode, absl::Duration wait) const {
  v1::StopRequest request;
  request.set_job_id(job_id);
  request.set_mode(mode);
  request.set_wait(wait > absl::ZeroDuration());
  const absl::Duration time = request.wait() ? wait : options_.timeout;
  return TakeJob(Call(&v1::TrainingService::Stub::AsyncStop, request, absl::Now() + time, true));
}

absl::StatusOr<v1::Job> Client::Pause(const std::string& job_id, absl::Duration wait) const {
  v1::PauseRequest request;
  request.set_job_id(job_id);
  return TakeJob(Call(&v1::TrainingService::Stub::AsyncPause, request, absl::Now() + wait, true));
}

absl::StatusOr<v1::Job> Client::Resume(const std::string& job_id) const {
  v1::ResumeRequest request;
  request.set_job_id(job_id);
  return TakeJob(Call(&v1::TrainingService::Stub::AsyncResume, request, absl::Now() + options_.timeout, true));
}

absl::Status Client::DeleteJob(const std::string& job_id) const {
  v1::DeleteJobRequest request;
  request.set_job_id(job_id);
  bool repeated = false;
  const absl::Status status =
      Call(&v1::TrainingService::Stub::AsyncDeleteJob, request, absl::Now() + options_.timeout, true, &repeated)
          .status();
  // An earlier try, whose answer was lost, may have done it.
  return repeated && absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<v1::Checkpoint>> Client::ListCheckpoints(const std::string& job_id) const {
  v1::ListCheckpointsRequest request;
  request.set_job_id(job_id);
  absl::StatusOr<v1::ListCheckpointsResponse> response =
      Call(&v1::TrainingService::Stub::AsyncListCheckpoints, request, absl::Now() + options_.timeout, true);
  if (!response.ok()) return response.status();
  return std::vector<v1::Checkpoint>(response->checkpoints().begin(), response->checkpoints().end());
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& job_id) const {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return TakeJob(Call(&v1::TrainingService::Stub::AsyncGetJob, request, absl::Now() + options_.timeout, true));
}

absl::StatusOr<std::vector<v1::Job>> Client::ListJobs(const std::vector<v1::JobState>& states, int64_t limit,
                                                      bool* more) const {
  constexpr int64_t kPageSize = 100;
  const absl::Time deadline = absl::Now() + options_.timeout;
  v1::ListJobsRequest request;
  for (v1::JobState state : states) request.add_states(state);
  std::vector<v1::Job> jobs;
  *more = false;
  while (static_cast<int64_t>(jobs.size()) < limit) {
    request.set_page_size(static_cast<int>(std::min(kPageSize, limit - static_cast<int64_t>(jobs.size()))));
    absl::StatusOr<v1::ListJobsResponse> response =
        Call(&v1::TrainingService::Stub::AsyncListJobs, request, deadline, true);
    if (!response.ok()) return response.status();
    for (v1::Job& job : *response->mutable_jobs()) jobs.push_back(std::move(job));
    request.set_page_token(response->next_page_token());
    *more = !response->next_page_token().empty();
    if (!*more) break;
  }
  return jobs;
}

absl::StatusOr<std::vector<v1::DatasetInfo>> Client::ListDatasets() const {
  absl::StatusOr<v1::ListDatasetsResponse> response = Call(
      &v1::TrainingService::Stub::AsyncListDatasets, v1::ListDatasetsRequest(), absl::Now() + options_.timeout, true);
  if (!response.ok()) return response.status();
  return std::vector<v1::DatasetInfo>(response->datasets().begin(), response->datasets().end());
}

absl::StatusOr<v1::GetServerInfoResponse> Client::GetServerInfo() const {
  return Call(&v1::TrainingService::Stub::AsyncGetServerInfo, v1::GetServerInfoRequest(),
              absl::Now() + options_.timeout, true);
}

std::unique_ptr<RecordStream> Client::StreamMetrics(v1::StreamMetricsRequest request) const {
  return std::unique_ptr<RecordStream>(new RecordStream(this, std::move(request)));
}

// One StreamMetrics call, and the GetJob that may follow it. `pending` is the one operation in the queue; there is none
// between a batch and the next Read.
struct RecordStream::Call {
  enum class Operation { kNone, kStart, kRead, kFinish, kGetJob };

  explicit Call(const ClientOptions& options) {
    Identify(options, &context);
    Identify(options, &job_context);
  }
  ~Call() {
    context.TryCancel();
    job_context.TryCancel();
    queue.Shutdown();
    void* tag;
    bool ok;
    while (queue.Next(&tag, &ok)) {
    }
  }

  void Read() {
    pending = Operation::kRead;
    reader->Read(&response, nullptr);
  }
  void Finish() {
    pending = Operation::kFinish;
    reader->Finish(&status, nullptr);
  }
  void GetJob(v1::TrainingService::Stub* stub, const std::string& job_id, absl::Time deadline) {
    pending = Operation::kGetJob;
    job_context.set_deadline(absl::ToChronoTime(deadline));
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    job_reader = stub->AsyncGetJob(&job_context, request, &queue);
    job_reader->Finish(&job_response, &status, nullptr);
  }

  grpc::ClientContext context;
  grpc::ClientContext job_context;
  grpc::CompletionQueue queue;
  std::unique_ptr<grpc::ClientAsyncReader<v1::StreamMetricsResponse>> reader;
  Operation pending = Operation::kNone;
  absl::Time opened_at;
  absl::Time started_at = absl::InfiniteFuture();  // when the request went out
  v1::StreamMetricsResponse response;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::GetJobResponse>> job_reader;
  v1::GetJobResponse job_response;
  grpc::Status status;  // of the operation that ended last
};

RecordStream::RecordStream(const Client* client, v1::StreamMetricsRequest request)
    : client_(client), request_(std::move(request)), pause_(kFirstPause) {
  if (request_.from_sequence() > 0) last_sequence_ = request_.from_sequence() - 1;
}

RecordStream::~RecordStream() = default;

void RecordStream::Open(absl::Time now) {
  request_.set_from_sequence(last_sequence_ + 1);
  call_ = std::make_unique<Call>(client_->options_);
  call_->opened_at = now;
  call_->reader = client_->stub_->PrepareAsyncStreamMetrics(&call_->context, request_, &call_->queue);
  call_->pending = Call::Operation::kStart;
  call_->reader->StartCall(nullptr);
}

// `status` OK: the server ended the stream, and there is more to come.
void RecordStream::OnCallEnd(const absl::Status& status, absl::Time now) {
  call_.reset();
  if (!status.ok() && (!absl::IsUnavailable(status) || !client_->ever_connected_)) {
    error_ = status;
    return;
  }
  const absl::Status why =
      status.ok() ? absl::UnavailableError("the server ended the stream before the job's end") : status;
  if (outage_.ok()) {
    outage_ = why;
    lost_at_ = now;
    pause_ = kFirstPause;
  } else {
    pause_ = LongerPause(pause_);
  }
  const absl::Duration patience = client_->options_.reconnect_timeout;
  if (patience <= absl::ZeroDuration()) {
    error_ = why;
  } else if (now - lost_at_ >= patience) {
    error_ = absl::UnavailableError(
        absl::StrCat("no stream for ", absl::FormatDuration(patience), ": ", std::string(why.message())));
  }
  retry_at_ = now + pause_;
}

void RecordStream::EndOutage() {
  outage_ = absl::OkStatus();
  lost_at_ = absl::InfiniteFuture();
}

void RecordStream::OnJob(const v1::Job& job, absl::Time now) {
  const bool ended = job.state() == v1::SUCCEEDED || job.state() == v1::FAILED || job.state() == v1::STOPPED;
  // The job may have ended since the stream did, and then its last records are still to be read.
  if (ended && job.last_sequence() <= last_sequence_) {
    call_.reset();
    EndOutage();
    error_ = LogEnded();
  } else {
    OnCallEnd(absl::OkStatus(), now);
  }
}

// The call is on its way or open, and nothing has come from it.
void RecordStream::CheckConnection(absl::Time now) {
  const ClientOptions& options = client_->options_;
  if (call_->pending == Call::Operation::kGetJob) return;
  if (now >= call_->started_at) {
    // An open stream of a quiet job says nothing: that it lasts shows that the server has taken it.
    if (now - call_->started_at >= absl::Seconds(1)) EndOutage();
  } else if (!client_->ever_connected_ && now - call_->opened_at >= options.timeout) {
    error_ = NoConnection(options.timeout);
  } else if (now - lost_at_ >= options.reconnect_timeout) {
    error_ = NoConnection(options.reconnect_timeout);
  }
}

void RecordStream::OnEvent(bool ok, absl::Time now) {
  switch (call_->pending) {
    case Call::Operation::kStart:
      if (!ok) return call_->Finish();
      client_->ever_connected_ = true;
      call_->started_at = now;
      return call_->Read();
    case Call::Operation::kRead:
      if (!ok) return call_->Finish();
      EndOutage();
      batch_.Swap(&call_->response);
      next_in_batch_ = 0;
      // All that lies before the next request will have been read in this epoch.
      if (batch_.log_epoch() != 0) request_.set_log_epoch(batch_.log_epoch());
      call_->pending = Call::Operation::kNone;
      return;
    case Call::Operation::kFinish:
      if (!call_->status.ok()) return OnCallEnd(FromGrpc(call_->status), now);
      // Without the terminal record: the server goes, or the first record wanted is beyond the end of the log.
      return call_->GetJob(client_->stub_.get(), request_.job_id(), now + client_->options_.timeout);
    case Call::Operation::kGetJob: {
      const absl::Status status = FromGrpc(call_->status);
      if (status.ok()) return OnJob(call_->job_response.job(), now);
      return OnCallEnd(absl::IsDeadlineExceeded(status) ? absl::UnavailableError(status.message()) : status, now);
    }
    case Call::Operation::kNone:
      return;
  }
}

absl::StatusOr<std::optional<v1::MetricRecord>> RecordStream::Next(absl::Time until) {
  while (error_.ok()) {
    if (next_in_batch_ < batch_.records_size()) {
      v1::MetricRecord record = std::move(*batch_.mutable_records(next_in_batch_++));
      last_sequence_ = record.sequence();
      if (record.has_terminal()) error_ = LogEnded();
      return std::optional<v1::MetricRecord>(std::move(record));
    }
    if (client_->cancelled()) {
      error_ = Cancelled();
      break;
    }
    absl::Time now = absl::Now();
    if (call_ == nullptr) {
      if (now < retry_at_) {
        if (now >= until) return std::optional<v1::MetricRecord>();
        client_->Rest(std::min(retry_at_, until));
        continue;
      }
      Open(now);
    }
    if (call_->pending == Call::Operation::kNone) call_->Read();
    void* tag;
    bool ok;
    const auto event = call_->queue.AsyncNext(&tag, &ok, absl::ToChronoTime(std::min(until, now + kSlice)));
    now = absl::Now();
    if (event != grpc::CompletionQueue::GOT_EVENT) {
      CheckConnection(now);
      if (error_.ok() && now >= until) return std::optional<v1::MetricRecord>();
      continue;
    }
    const bool connected = outage_.ok();
    OnEvent(ok, now);
    if (connected && !outage_.ok() && error_.ok()) return std::optional<v1::MetricRecord>();
  }
  return error_;
}

}  // namespace lenet
