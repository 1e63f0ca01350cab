// A client of lenetd's TrainingService: calls with deadlines and safe repeats, and a job's metrics as one unbroken
// sequence of records, whatever happens to the connection.
#ifndef LENET_CLIENT_CLIENT_H_
#define LENET_CLIENT_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "lenet/v1/training_service.grpc.pb.h"

namespace lenet {

class Client;

// How the server is known and this client to it.
struct TlsOptions {
  bool enabled = false;
  std::string ca;           // PEM of the roots that the server's certificate may lead to; empty: the system's
  std::string certificate;  // PEM of this client's, for servers that ask for one; or empty
  std::string key;          // PEM of its private key
};

struct ClientOptions {
  // "HOST:PORT", "[IPv6]:PORT" or "unix:PATH". Connected to directly: the proxies that the environment names are for
  // the web.
  std::string address = "unix:/run/lenet/lenetd.sock";
  TlsOptions tls;
  std::string token;  // by which the server knows who calls; empty: none
  // Bound of each call, connecting and repeats included.
  absl::Duration timeout = absl::Seconds(10);
  // How long a stream or a call whose connection was lost tries to get it back; a call no longer than its own bound.
  // Zero: not at all.
  absl::Duration reconnect_timeout = absl::Seconds(60);
  // Once true, every call and stream of the client ends with CANCELLED within a tenth of a second. May be set in a
  // signal handler. It outlives the client; may be null.
  const std::atomic<bool>* cancelled = nullptr;
};

// The records of one job's log, in order, each once, over lost connections and restarts of the server. Made by
// Client::StreamMetrics; used by one thread at a time; outlives neither its client nor the client's `cancelled`.
class RecordStream {
 public:
  ~RecordStream();
  RecordStream(const RecordStream&) = delete;
  RecordStream& operator=(const RecordStream&) = delete;

  // The next record. Waits for it until `until`, then gives nothing; that it also does, once, when the connection is
  // lost, so that the caller can tell of each outage(). The record with `terminal` is the last; a call
  // after it gives OUT_OF_RANGE, and so does the first one where an ended job has no records from the first wanted on.
  // When the connection is lost, or the server ends the stream before the job's log, the stream opens another one by
  // itself, after pauses that grow from 50 ms to 2 s, and goes on behind the last record that it gave. Where the log
  // has lost records that were given already, one with `rewound` comes in between, and those after it take the place of
  // the lost ones. UNAVAILABLE: there was no server to begin with, or none for `reconnect_timeout`. Other errors are
  // the server's: NOT_FOUND, INVALID_ARGUMENT. After an error every call gives the same error.
  absl::StatusOr<std::optional<v1::MetricRecord>> Next(absl::Time until);

  // Why the connection was lost, while it is being restored; else OK.
  const absl::Status& outage() const { return outage_; }

  // Sequence of the last record given; before the first, that of the one before the first wanted.
  uint64_t last_sequence() const { return last_sequence_; }

 private:
  friend class Client;
  struct Call;

  RecordStream(const Client* client, v1::StreamMetricsRequest request);

  void Open(absl::Time now);
  void OnEvent(bool ok, absl::Time now);
  void OnCallEnd(const absl::Status& status, absl::Time now);
  void OnJob(const v1::Job& job, absl::Time now);
  void CheckConnection(absl::Time now);
  // The connection is there, or there again.
  void EndOutage();

  const Client* const client_;
  v1::StreamMetricsRequest request_;

  std::unique_ptr<Call> call_;
  v1::StreamMetricsResponse batch_;  // records from next_in_batch_ on are still to be given
  int next_in_batch_ = 0;
  uint64_t last_sequence_ = 0;
  absl::Status outage_;
  absl::Time lost_at_ = absl::InfiniteFuture();
  absl::Time retry_at_ = absl::InfinitePast();
  absl::Duration pause_;
  absl::Status error_;
};

// Safe from any thread; makes no thread of its own. No call blocks beyond its deadline. The status of a failed call has
// the server's code and message. UNAVAILABLE alone stands for "no server there, one that is starting or draining, or a
// connection that broke". A call that meets UNAVAILABLE is repeated, with growing pauses, until its time is up,
// provided that a connection was made at all and that repeating is safe: every call but a Start without a request id.
class Client {
 public:
  explicit Client(ClientOptions options);

  // Queues a job, which begins from initial weights, from uploaded ones or from another job's state, as the request
  // says. With a request_id, an answer that was lost does not lead to a second job.
  absl::StatusOr<v1::Job> Start(const v1::StartRequest& request) const;

  // Asks for a job's end and gives its state. With `wait` above zero the answer comes once the job has ended, or
  // DEADLINE_EXCEEDED after that time.
  absl::StatusOr<v1::Job> Stop(const std::string& job_id, v1::StopRequest::Mode mode,
                               absl::Duration wait = absl::ZeroDuration()) const;

  // Gives the job once it is PAUSED, or DEADLINE_EXCEEDED after `wait`, by which the request stands all the same.
  absl::StatusOr<v1::Job> Pause(const std::string& job_id, absl::Duration wait) const;
  // Queues a paused job; one that waits or runs already is given as it is.
  absl::StatusOr<v1::Job> Resume(const std::string& job_id) const;
  // OK also if it was gone when the call had to be repeated.
  absl::Status DeleteJob(const std::string& job_id) const;
  // Oldest first.
  absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(const std::string& job_id) const;

  absl::StatusOr<v1::Job> GetJob(const std::string& job_id) const;

  // The newest `limit` jobs, newest first; those in `states` alone unless it is empty. Sets `*more` where there are
  // others.
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const std::vector<v1::JobState>& states, int64_t limit,
                                                bool* more) const;

  absl::StatusOr<std::vector<v1::DatasetInfo>> ListDatasets() const;
  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo() const;

  // The job's log from request.from_sequence on; see RecordStream. Connects on the first Next.
  std::unique_ptr<RecordStream> StreamMetrics(v1::StreamMetricsRequest request) const;

  const ClientOptions& options() const { return options_; }

 private:
  friend class RecordStream;

  template <typename Request, typename Response>
  using Method = std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (v1::TrainingService::Stub::*)(
      grpc::ClientContext*, const Request&, grpc::CompletionQueue*);

  // `*repeated`, unless null, is set if the call was made more than once.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(Method<Request, Response> method, const Request& request, absl::Time deadline,
                                bool repeat, bool* repeated = nullptr) const;

  bool cancelled() const { return options_.cancelled != nullptr && options_.cancelled->load(); }
  // Waits until there is a connection, or the attempt to make one has failed, or the deadline.
  void Connect(absl::Time deadline) const;
  // Sleeps, and lets the channel go on with its connection meanwhile.
  void Rest(absl::Time until) const;

  const ClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::TrainingService::Stub> stub_;
  mutable std::atomic<bool> ever_connected_{false};
};

}  // namespace lenet

#endif  // LENET_CLIENT_CLIENT_H_
