// The two streaming calls.
#ifndef LENET_SERVER_RPC_STREAMS_H_
#define LENET_SERVER_RPC_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "lenet/v1/training_service.pb.h"
#include "server/job/job_manager.h"
#include "server/metrics/metrics_reader.h"
#include "server/rpc/stream_reactor.h"

namespace lenet {

// StreamMetrics: a job's log from a sequence on, then as it grows, up to its end.
class MetricsStream : public StreamReactor<v1::StreamMetricsResponse> {
 public:
  MetricsStream(std::string client, MetricsReader reader)
      : StreamReactor(std::move(client)), reader_(std::move(reader)), next_(reader_.next()) {}

  uint64_t lag() const override;

 private:
  absl::StatusOr<Step> Next(bool eager, v1::StreamMetricsResponse* response) override;

  MetricsReader reader_;
  std::atomic<uint64_t> next_;  // the reader's, for other threads
};

// WatchJobs: every job as it is, then those whose state has changed.
class JobsStream : public StreamReactor<v1::WatchJobsResponse> {
 public:
  // The manager outlives it.
  JobsStream(std::string client, const JobManager* manager) : StreamReactor(std::move(client)), manager_(manager) {}

 private:
  absl::StatusOr<Step> Next(bool eager, v1::WatchJobsResponse* response) override;

  const JobManager* const manager_;
  uint64_t revision_ = 0;  // of the newest change sent
  bool snapshot_complete_ = false;
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_STREAMS_H_
