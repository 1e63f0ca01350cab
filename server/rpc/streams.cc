#include "server/rpc/streams.h"

#include <algorithm>

#include "trainer/base/status.h"

namespace lenet {
namespace {

// Of a reader that stalls, this much and its packed form are held. At 20 messages a second a whole log of 64 MiB is
// replayed in 13 seconds.
constexpr int64_t kMaxResponseBytes = int64_t{256} << 10;
constexpr int kMaxJobs = 500;

}  // namespace

uint64_t MetricsStream::lag() const {
  const uint64_t end = reader_.last_written() + 1;
  return end - std::min(end, next_.load(std::memory_order_relaxed));
}

absl::StatusOr<MetricsStream::Step> MetricsStream::Next(bool eager, v1::StreamMetricsResponse* response) {
  LENET_ASSIGN_OR_RETURN(const MetricsReader::Place place,
                         reader_.Read(kMaxResponseBytes, response->mutable_records()));
  next_.store(reader_.next(), std::memory_order_relaxed);
  response->set_log_epoch(reader_.log_epoch());
  const bool empty = response->records().empty();
  if (place == MetricsReader::Place::kEnd) return empty ? Step::kEnd : Step::kLastWrite;
  // A busy stream asks in the next tick, with what has come until then written in one piece.
  if (place == MetricsReader::Place::kNewest && (empty || eager)) reader_.AwaitMore();
  return empty ? Step::kNothing : Step::kWrite;
}

absl::StatusOr<JobsStream::Step> JobsStream::Next(bool /*eager*/, v1::WatchJobsResponse* response) {
  if (snapshot_complete_ && manager_->revision() == revision_) return Step::kNothing;
  LENET_ASSIGN_OR_RETURN(ChangePage page, manager_->ListChanges(revision_, kMaxJobs, kMaxResponseBytes));
  revision_ = page.revision;
  for (v1::Job& job : page.jobs) *response->add_jobs() = std::move(job);
  if (!snapshot_complete_ && page.complete) {
    snapshot_complete_ = true;
    response->set_snapshot_complete(true);
    return Step::kWrite;
  }
  return page.jobs.empty() ? Step::kNothing : Step::kWrite;
}

}  // namespace lenet
