#include "server/job/job_manager.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/job/convert.h"
#include "server/job/warm_up.h"
#include "server/store/job_state.h"
#include "server/store/timestamp.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxRequestIdBytes = 128;
constexpr char kShutdown[] = "the server is shutting down";

absl::Status CheckText(absl::string_view field, absl::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", text.size(), " bytes long; must be at most ", max_bytes));
  }
  if (std::any_of(text.begin(), text.end(), absl::ascii_iscntrl)) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": must not hold control characters"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> SameRequest(v1::Job job, const v1::StartRequest& request) {
  if (google::protobuf::util::MessageDifferencer::Equals(job.spec(), request.spec())) return job;
  return absl::AlreadyExistsError(
      absl::StrCat("request_id \"", request.request_id(), "\" is that of job \"", job.id(), "\", with another spec"));
}

absl::string_view StopReason(StopMode mode) {
  return mode == StopMode::kAbort ? "aborted on request" : "stopped on request";
}

}  // namespace

JobManager::JobManager(const JobManagerOptions& options, Backend* backend, DatasetCatalog* catalog, JobStore* store)
    : options_(options),
      backend_(backend),
      catalog_(catalog),
      store_(store),
      groups_(backend, options.max_cached_groups),
      services_{.backend = backend,
                .catalog = catalog,
                .store = store,
                .groups = &groups_,
                .flusher = &flusher_,
                .patience = &patience_,
                .checkpoint_root = options.checkpoint_root},
      pool_(static_cast<int>(backend->devices().size())) {
  // CheckFieldsKnown uses it. Made before there are calls: ThreadSanitizer does not see how libprotobuf guards it.
  google::protobuf::UnknownFieldSet::default_instance();
}

JobManager::~JobManager() {
  BeginDrain();
  AbortAll();
  while (!WaitIdle(std::chrono::steady_clock::now() + std::chrono::seconds(10))) {
    Log(LogLevel::kError, "aborted jobs have not ended; still waiting for them");
  }
  JoinFinished();
}

absl::Status JobManager::WarmUp() { return lenet::WarmUp(*backend_, &groups_, &warm_up_stop_); }

void JobManager::Serve() {
  MutexLock admit(&admit_mutex_);
  MutexLock lock(&mutex_);
  if (phase_ == Phase::kStarting) phase_ = Phase::kServing;
}

absl::StatusOr<v1::Job> JobManager::Start(const v1::StartRequest& request) {
  LENET_RETURN_IF_ERROR(CheckText("request_id", request.request_id(), kMaxRequestIdBytes));
  LENET_RETURN_IF_ERROR(CheckText("name", request.name(), kMaxNameBytes));
  LENET_RETURN_IF_ERROR(CheckFieldsKnown(request.spec()));
  if (!request.request_id().empty()) {
    absl::StatusOr<v1::Job> known = store_->FindByRequestId(request.request_id());
    if (!absl::IsNotFound(known.status())) {
      LENET_RETURN_IF_ERROR(known.status());
      LENET_ASSIGN_OR_RETURN(const v1::Job job, SameRequest(*std::move(known), request));
      return GetJob(job.id());
    }
  }
  LENET_RETURN_IF_ERROR(CheckAccepting());
  LENET_ASSIGN_OR_RETURN(Admitted admitted, Admit(request.spec(), *backend_, *catalog_));

  LivePtr created;
  v1::Job job;
  {
    MutexLock admit(&admit_mutex_);
    LENET_RETURN_IF_ERROR(CheckAccepting());
    LENET_ASSIGN_OR_RETURN(job, CreateJob(request, std::move(admitted), &created));
  }
  if (created == nullptr) return GetJob(job.id());
  Complete(created, &job);
  Dispatch();
  return job;
}

absl::Status JobManager::CheckAccepting() const {
  MutexLock lock(&mutex_);
  switch (phase_) {
    case Phase::kStarting:
      return absl::UnavailableError("the server is starting");
    case Phase::kDraining:
      return absl::UnavailableError(kShutdown);
    case Phase::kServing:
      break;
  }
  if (queue_.size() >= options_.max_queued) {
    return absl::ResourceExhaustedError(
        absl::StrCat(queue_.size(), " jobs are queued; the limit is ", options_.max_queued));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> JobManager::CreateJob(const v1::StartRequest& request, Admitted admitted, LivePtr* created) {
  const absl::Time now = absl::Now();
  const LivePtr live = NewLive(ids_.Next(now), std::move(admitted));
  v1::Job job;
  job.set_id(live->id);
  job.set_request_id(request.request_id());
  job.set_name(request.name());
  job.set_state(v1::QUEUED);
  job.set_reason("waiting for its turn");
  *job.mutable_spec() = request.spec();
  *job.mutable_resolved() = live->admitted.resolved;
  *job.mutable_created_at() = ToTimestamp(now);
  v1::MetricRecord record;
  *record.mutable_time() = job.created_at();
  record.mutable_state_change()->set_to(v1::QUEUED);
  record.mutable_state_change()->set_reason(job.reason());

  // Live first: from the moment that others see the job in the store they can stop it.
  {
    MutexLock lock(&mutex_);
    live_[live->id] = live;
  }
  absl::StatusOr<CreateResult> result = store_->CreateJob(job, {std::move(record)});
  MutexLock lock(&mutex_);
  if (!result.ok() || !result->created) {
    live_.erase(live->id);
    LENET_RETURN_IF_ERROR(result.status());
    return SameRequest(std::move(result->job), request);
  }
  *created = live;
  Log(LogLevel::kInfo, absl::StrCat("job ", live->id, ": accepted: ", request.spec().dataset(), ", ",
                                    live->admitted.devices.ranks, " ranks"));
  if (live_.contains(live->id)) queue_.push_back(live);
  return std::move(result->job);
}

JobManager::LivePtr JobManager::NewLive(std::string id, Admitted admitted) {
  auto live = std::make_shared<LiveJob>(std::move(id), std::move(admitted));
  MetricsLog::Hooks hooks;
  hooks.wake = [this] { flusher_.Wake(); };
  hooks.stuck = [weak = std::weak_ptr<LiveJob>(live)](const absl::Status& why) {
    const LivePtr stuck = weak.lock();
    if (stuck == nullptr) return;
    {
      MutexLock lock(&stuck->mutex);
      stuck->log_error = why;
    }
    stuck->stop.Request(StopMode::kAbort);
  };
  // The job is created with one record.
  live->log = std::make_shared<MetricsLog>(store_, live->id, 1, std::move(hooks));
  return live;
}

absl::StatusOr<v1::Job> JobManager::Stop(absl::string_view id, StopMode mode) {
  const LivePtr live = FindLive(id);
  if (live == nullptr) return GetJob(id);
  return StopLive(live, mode, StopReason(mode));
}

absl::StatusOr<v1::Job> JobManager::StopLive(const LivePtr& live, StopMode mode, absl::string_view reason) {
  for (;;) {
    absl::StatusOr<v1::Job> job = store_->GetJob(live->id);
    if (job.ok() && IsTerminal(job->state())) return job;
    absl::StatusOr<v1::Job> changed;
    if (!job.ok()) {
      changed = job.status();
    } else if (job->state() == v1::QUEUED) {
      changed = StopQueuedJob(live.get(), reason);
      if (changed.ok()) {
        Ended(live, changed);
        // It may have kept those behind it waiting.
        Dispatch();
        return changed;
      }
    } else if (job->state() != v1::STOPPING) {
      changed = live->log->ChangeState(
          {.from = job->state(), .to = v1::STOPPING, .time = absl::Now(), .reason = std::string(reason)});
    } else if (live->stop.mode() < mode) {
      changed = store_->UpdateJob(live->id, [reason](v1::Job* stopping) {
        if (stopping->state() == v1::STOPPING) stopping->set_reason(std::string(reason));
      });
    } else {
      changed = std::move(job);
    }
    // Another call or the job's own thread was quicker.
    if (absl::IsAborted(changed.status())) continue;
    // The state is recorded before the job can end by it. What cannot be recorded is stopped all the same.
    live->stop.Request(mode);
    if (changed.ok()) Complete(live, &*changed);
    return changed;
  }
}

uint64_t JobManager::WaitForEnd(absl::string_view id, EndCallback done) {
  {
    MutexLock lock(&mutex_);
    if (live_.contains(id)) {
      waiters_[std::string(id)][++last_token_] = std::move(done);
      return last_token_;
    }
  }
  absl::StatusOr<v1::Job> job = store_->GetJob(id);
  if (job.ok() && !IsTerminal(job->state())) job = UnrecordedEnd(id, "");
  done(std::move(job));
  return 0;
}

bool JobManager::StopWaiting(absl::string_view id, uint64_t token) {
  EndCallback dropped;
  MutexLock lock(&mutex_);
  const auto it = waiters_.find(id);
  if (it == waiters_.end()) return false;
  const auto waiter = it->second.find(token);
  if (waiter == it->second.end()) return false;
  dropped = std::move(waiter->second);
  it->second.erase(waiter);
  if (it->second.empty()) waiters_.erase(it);
  return true;
}

absl::StatusOr<v1::Job> JobManager::GetJob(absl::string_view id) const {
  const LivePtr live = FindLive(id);
  LENET_ASSIGN_OR_RETURN(v1::Job job, store_->GetJob(id));
  Complete(live, &job);
  return job;
}

absl::StatusOr<JobPage> JobManager::ListJobs(const JobQuery& query) const {
  const LiveJobs live = AllLive();
  LENET_ASSIGN_OR_RETURN(JobPage page, store_->ListJobs(query));
  CompleteAll(live, &page.jobs);
  return page;
}

absl::StatusOr<ChangePage> JobManager::ListChanges(uint64_t after, int limit, int64_t max_bytes) const {
  const LiveJobs live = AllLive();
  LENET_ASSIGN_OR_RETURN(ChangePage page, store_->ListChanges(after, limit, max_bytes));
  CompleteAll(live, &page.jobs);
  return page;
}

absl::StatusOr<MetricsReader> JobManager::ReadMetrics(absl::string_view id, uint64_t from_sequence,
                                                      RecordWishes wishes) const {
  // The live log first: a job that is not live is over.
  const LivePtr live = FindLive(id);
  LENET_ASSIGN_OR_RETURN(const v1::Job job, store_->GetJob(id));
  for (int rank : wishes.ranks) {
    if (rank < 0 || rank >= job.resolved().ranks()) {
      return absl::InvalidArgumentError(
          absl::StrCat("ranks: ", rank, " is no rank of job \"", id, "\"; must be 0 to ", job.resolved().ranks() - 1));
    }
  }
  return MetricsReader(store_, std::string(id), live == nullptr ? nullptr : live->log, from_sequence,
                       std::move(wishes));
}

ServerLoad JobManager::Load() const {
  MutexLock lock(&mutex_);
  return {.device_jobs = pool_.holders(),
          .queued = static_cast<int>(queue_.size()),
          .running = static_cast<int>(threads_.size()),
          .draining = phase_ == Phase::kDraining};
}

void JobManager::BeginDrain() {
  warm_up_stop_.Request(StopMode::kAbort);
  {
    MutexLock admit(&admit_mutex_);
    MutexLock lock(&mutex_);
    phase_ = Phase::kDraining;
  }
  for (const auto& [id, live] : AllLive()) {
    const absl::Status status = StopLive(live, StopMode::kCheckpoint, kShutdown).status();
    if (!status.ok()) Log(LogLevel::kError, absl::StrCat("job ", id, ": stopping it: ", status.ToString()));
  }
  // Those whose stop the store refused.
  Dispatch();
}

void JobManager::AbortAll() {
  patience_.EndAt(StorePatience::Clock::now() + options_.abort_patience);
  for (const auto& [id, live] : AllLive()) {
    const absl::Status status = StopLive(live, StopMode::kAbort, absl::StrCat("aborted: ", kShutdown)).status();
    if (!status.ok()) Log(LogLevel::kError, absl::StrCat("job ", id, ": aborting it: ", status.ToString()));
  }
}

bool JobManager::WaitIdle(std::chrono::steady_clock::time_point deadline) const {
  MutexLock lock(&mutex_);
  while (!live_.empty() || !threads_.empty()) {
    if (!idle_.WaitUntil(&mutex_, deadline)) return live_.empty() && threads_.empty();
  }
  return true;
}

JobManager::LivePtr JobManager::FindLive(absl::string_view id) const {
  MutexLock lock(&mutex_);
  const auto it = live_.find(id);
  return it == live_.end() ? nullptr : it->second;
}

JobManager::LiveJobs JobManager::AllLive() const {
  MutexLock lock(&mutex_);
  return live_;
}

void JobManager::Complete(const LivePtr& live, v1::Job* job) const {
  if (live == nullptr || IsTerminal(job->state())) return;
  *job->mutable_progress() = live->progress.Get();
  if (job->state() != v1::QUEUED) return;
  MutexLock lock(&mutex_);
  // One that has just left the queue for its thread counts as first.
  const auto place = std::find(queue_.begin(), queue_.end(), live);
  job->set_queue_position(place == queue_.end() ? 1 : static_cast<int>(place - queue_.begin()) + 1);
}

void JobManager::CompleteAll(const LiveJobs& live, std::vector<v1::Job>* jobs) const {
  for (v1::Job& job : *jobs) {
    const auto it = live.find(job.id());
    if (it != live.end()) Complete(it->second, &job);
  }
}

void JobManager::Dispatch() {
  JoinFinished();
  std::vector<std::pair<LivePtr, std::string>> unstarted;
  {
    MutexLock lock(&mutex_);
    while (!queue_.empty()) {
      const LivePtr live = queue_.front();
      // In a drain the thread records the stop that the store has refused.
      if (phase_ != Phase::kServing && live->stop.mode() == StopMode::kNone) break;
      const std::optional<std::vector<int>> device_ids = pool_.Acquire(live->admitted.devices, live->id);
      if (!device_ids) break;
      queue_.pop_front();
      try {
        threads_[live.get()] = std::thread([this, live, ids = *device_ids] { RunOnThread(live, ids); });
      } catch (const std::system_error& error) {
        threads_.erase(live.get());
        pool_.Release(live->id);
        unstarted.emplace_back(live, error.what());
      }
    }
  }
  for (const auto& [live, why] : unstarted) {
    const absl::StatusOr<v1::Job> job =
        FailQueuedJob(live.get(), store_, absl::ResourceExhaustedError(absl::StrCat("a thread for the job: ", why)));
    if (!absl::IsAborted(job.status())) Ended(live, job);
  }
}

void JobManager::RunOnThread(const LivePtr& live, const std::vector<int>& device_ids) {
  pthread_setname_np(pthread_self(), "job");
  const absl::StatusOr<v1::Job> job = RunJob(services_, live.get(), device_ids);
  {
    MutexLock lock(&mutex_);
    pool_.Release(live->id);
  }
  // ABORTED: a Stop ended the job while it was queued, and has reported it.
  if (!absl::IsAborted(job.status())) Ended(live, job);
  Dispatch();
  MutexLock lock(&mutex_);
  const auto own = threads_.find(live.get());
  finished_.push_back(std::move(own->second));
  threads_.erase(own);
  idle_.SignalAll();
}

void JobManager::Ended(const LivePtr& live, absl::StatusOr<v1::Job> job) {
  if (job.ok()) {
    Log(LogLevel::kInfo,
        absl::StrCat("job ", live->id, ": ", absl::string_view(StateName(job->state())), ": ", job->reason()));
  } else {
    job = UnrecordedEnd(live->id, job.status().ToString());
    Log(LogLevel::kError, job.status().message());
    live->log->Close(job.status());
  }
  std::map<uint64_t, EndCallback> waiters;
  {
    MutexLock lock(&mutex_);
    live_.erase(live->id);
    std::erase(queue_, live);
    const auto it = waiters_.find(live->id);
    if (it != waiters_.end()) {
      waiters.swap(it->second);
      waiters_.erase(it);
    }
    idle_.SignalAll();
  }
  for (const auto& [token, done] : waiters) done(job);
}

void JobManager::JoinFinished() {
  std::vector<std::thread> finished;
  {
    MutexLock lock(&mutex_);
    finished.swap(finished_);
  }
  for (std::thread& thread : finished) thread.join();
}

}  // namespace lenet
