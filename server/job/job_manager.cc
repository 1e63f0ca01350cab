#include "server/job/job_manager.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/protobuf/unknown_field_set.h"
#include "server/job/checkpoint_keeper.h"
#include "server/job/job_end.h"
#include "server/store/job_state.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

constexpr char kShutdown[] = "the server is shutting down";

absl::string_view StopReason(StopMode mode) {
  return mode == StopMode::kAbort ? "aborted on request" : "stopped on request";
}

bool Waiting(v1::JobState state) { return state == v1::QUEUED || state == v1::PAUSED; }

void LogState(const v1::Job& job, absl::string_view found = "") {
  LogOfJob(LogLevel::kInfo, job.id(),
           absl::StrCat(found, absl::string_view(StateName(job.state())), ": ", job.reason()));
}

absl::Status WrongState(const v1::Job& job, absl::string_view wanted) {
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", job.id(), "\" is ", StateName(job.state()), ": ", wanted));
}

}  // namespace

JobManager::JobManager(const JobManagerOptions& options, Backend* backend, DatasetCatalog* catalog, JobStore* store)
    : options_(options),
      backend_(backend),
      catalog_(catalog),
      store_(store),
      groups_(backend, options.max_cached_groups),
      counters_(backend->devices().size()),
      services_{.backend = backend,
                .catalog = catalog,
                .store = store,
                .groups = &groups_,
                .flusher = &flusher_,
                .patience = &patience_,
                .counters = &counters_,
                .stuck = options.unusable,
                .checkpoint_root = options.checkpoint_root,
                .collective_timeout = options.collective_timeout,
                .join_timeout = options.join_timeout,
                .faults = options.faults},
      limits_(options.limits),
      pool_(static_cast<int>(backend->devices().size())),
      health_(backend, &groups_, options.probe_interval,
              {.collective = options.collective_timeout, .join = options.join_timeout},
              {.excluded =
                   [this](int device, const absl::Status& why) {
                     MutexLock lock(&mutex_);
                     pool_.SetUnhealthy(device, Shown(why.message()));
                   },
               .restored = [this](int device) { Restore(device); },
               .unusable = options.unusable}) {
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

absl::Status JobManager::Recover(bool running_go_on) {
  std::vector<v1::Job> jobs;
  JobQuery query = {.states = {v1::QUEUED, v1::STARTING, v1::RUNNING, v1::STOPPING, v1::PAUSED}};
  do {
    LENET_ASSIGN_OR_RETURN(JobPage page, store_->ListJobs(query));
    std::move(page.jobs.begin(), page.jobs.end(), std::back_inserter(jobs));
    query.page_token = page.next_page_token;
  } while (!query.page_token.empty());

  LENET_ASSIGN_OR_RETURN(const JobPage newest, store_->ListJobs({.limit = 1}));
  MutexLock admit(&admit_mutex_);
  if (!newest.jobs.empty()) ids_.StartAfter(newest.jobs.front().id());
  for (auto found = jobs.rbegin(); found != jobs.rend(); ++found) {
    v1::Job& job = *found;
    const LivePtr live = NewLive(job.id(), Readmit(job, *backend_, *catalog_), job.client(), job.last_sequence());
    live->progress.Restore(job.progress());
    if (!Waiting(job.state())) {
      LENET_ASSIGN_OR_RETURN(job, EndLostAttempt(live.get(), *store_, job, running_go_on));
    }
    LogState(job, "found, ");
    if (IsTerminal(job.state())) continue;
    MutexLock lock(&mutex_);
    live_[live->id] = live;
    if (job.state() == v1::QUEUED) Enqueue(live);
  }
  return absl::OkStatus();
}

void JobManager::SetLimits(const JobLimits& limits) {
  MutexLock lock(&mutex_);
  limits_ = limits;
}

void JobManager::Serve() {
  {
    MutexLock admit(&admit_mutex_);
    MutexLock lock(&mutex_);
    if (phase_ == Phase::kStarting) phase_ = Phase::kServing;
  }
  Dispatch();
}

absl::StatusOr<v1::Job> JobManager::Start(const v1::StartRequest& request, absl::string_view client) {
  LENET_RETURN_IF_ERROR(CheckRequest(request));
  LENET_ASSIGN_OR_RETURN(std::optional<v1::Job> known, FindRequest(request));
  if (known) return *std::move(known);
  LENET_RETURN_IF_ERROR(CheckServing());
  LENET_ASSIGN_OR_RETURN(Admitted admitted, Admit(request.spec(), *backend_, *catalog_));
  LENET_ASSIGN_OR_RETURN(const StartFile start, ReadStartFile(request, admitted, *store_, options_.checkpoint_root));
  LENET_RETURN_IF_ERROR(CheckLimits(client));
  if (!options_.checkpoint_root.empty()) {
    LENET_RETURN_IF_ERROR(Annotate(ProbeFolder(options_.checkpoint_root, admitted.checkpoint_bytes), "checkpoints"));
  }

  v1::Job job;
  {
    MutexLock admit(&admit_mutex_);
    // An equal call may have been quicker; the limits do not hold for it.
    LENET_ASSIGN_OR_RETURN(known, FindRequest(request));
    if (known) return *std::move(known);
    LENET_RETURN_IF_ERROR(CheckServing());
    LENET_RETURN_IF_ERROR(CheckLimits(client));
    LENET_ASSIGN_OR_RETURN(job, CreateJob(request, client, std::move(admitted), start));
  }
  Complete(FindLive(job.id()), &job);
  Dispatch();
  return job;
}

absl::StatusOr<std::optional<v1::Job>> JobManager::FindRequest(const v1::StartRequest& request) const {
  if (request.request_id().empty()) return std::nullopt;
  absl::StatusOr<v1::Job> known = store_->FindByRequestId(request.request_id());
  if (absl::IsNotFound(known.status())) return std::nullopt;
  LENET_RETURN_IF_ERROR(known.status());
  LENET_ASSIGN_OR_RETURN(const v1::Job same, SameRequest(*std::move(known), request));
  absl::StatusOr<v1::Job> job = GetJob(same.id());
  // It has just been deleted.
  if (absl::IsNotFound(job.status())) return std::nullopt;
  LENET_RETURN_IF_ERROR(job.status());
  return std::optional<v1::Job>(*std::move(job));
}

absl::Status JobManager::CheckServing() const {
  MutexLock lock(&mutex_);
  if (phase_ == Phase::kStarting) return absl::UnavailableError("the server is starting");
  if (phase_ == Phase::kDraining) return absl::UnavailableError(kShutdown);
  return absl::OkStatus();
}

absl::Status JobManager::CheckLimits(absl::string_view client) const {
  MutexLock lock(&mutex_);
  size_t waiting = live_.size();
  for (const auto& [live, thread] : threads_) waiting -= live_.contains(live->id) ? 1 : 0;
  if (waiting >= limits_.max_queued) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting, " jobs are queued or paused; the limit is ", limits_.max_queued, " (limits.max_queued)"));
  }
  if (limits_.max_jobs_per_client == 0) return absl::OkStatus();
  const auto held = static_cast<size_t>(
      std::count_if(live_.begin(), live_.end(), [&](const auto& entry) { return entry.second->client == client; }));
  if (held < limits_.max_jobs_per_client) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("client \"", client, "\" has ", held,
                                                   " jobs that have not ended; the limit is ",
                                                   limits_.max_jobs_per_client, " (limits.max_jobs_per_client)"));
}

absl::StatusOr<v1::Job> JobManager::CreateJob(const v1::StartRequest& request, absl::string_view client,
                                              Admitted admitted, const StartFile& start) {
  const absl::Time now = absl::Now();
  // The job is created with one record.
  const LivePtr live = NewLive(ids_.Next(now), std::move(admitted), std::string(client), 1);
  const v1::Job job = NewJob(request, start, *live, now);

  const std::filesystem::path folder = options_.checkpoint_root / live->id;
  const auto remove_folder = [&] {
    std::error_code ignored;
    if (start.from) std::filesystem::remove_all(folder, ignored);
  };
  if (const absl::Status placed = PlaceStartFile(start, folder); !placed.ok()) {
    remove_folder();
    return placed;
  }
  // Live first: from the moment that others see the job in the store they can stop it.
  {
    MutexLock lock(&mutex_);
    live_[live->id] = live;
  }
  absl::StatusOr<CreateResult> result = store_->CreateJob(job, {FirstRecord(job)});
  if (!result.ok() || !result->created) {
    remove_folder();
    MutexLock lock(&mutex_);
    live_.erase(live->id);
    LENET_RETURN_IF_ERROR(result.status());
    return SameRequest(std::move(result->job), request);
  }
  LogOfJob(LogLevel::kInfo, live->id,
           absl::StrCat("accepted: ", request.spec().dataset(), ", ", live->admitted.devices.ranks, " ranks"));
  MutexLock lock(&mutex_);
  Enqueue(live);
  return std::move(result->job);
}

void JobManager::Enqueue(const LivePtr& live) {
  // A Stop may have been quicker.
  if (!live_.contains(live->id)) return;
  queue_.Push({.id = live->id,
               .priority = live->admitted.priority,
               .devices = live->admitted.devices,
               .queued_at = std::chrono::steady_clock::now()});
}

void JobManager::OnWritten(std::function<void()> written) {
  MutexLock lock(&written_mutex_);
  written_ = std::move(written);
}

JobManager::LivePtr JobManager::NewLive(std::string id, Admitted admitted, std::string client, uint64_t last_sequence) {
  auto live = std::make_shared<LiveJob>(std::move(id), std::move(admitted), std::move(client));
  MetricsLog::Hooks hooks;
  hooks.wake = [this] { flusher_.Wake(); };
  hooks.written = [this] {
    MutexLock lock(&written_mutex_);
    if (written_) written_();
  };
  hooks.stuck = [weak = std::weak_ptr<LiveJob>(live)](const absl::Status& why) {
    if (const LivePtr stuck = weak.lock()) stuck->FailForLog(why);
  };
  live->log = std::make_shared<MetricsLog>(store_, live->id, last_sequence, std::move(hooks));
  return live;
}

absl::StatusOr<v1::Job> JobManager::Stop(absl::string_view id, StopMode mode) {
  const LivePtr live = FindLive(id);
  if (live == nullptr) return GetJob(id);
  const absl::string_view reason = StopReason(mode);
  for (;;) {
    absl::StatusOr<v1::Job> job = store_->GetJob(live->id);
    if (job.ok() && IsTerminal(job->state())) return job;
    absl::StatusOr<v1::Job> changed;
    if (!job.ok()) {
      changed = job.status();
    } else if (Waiting(job->state())) {
      changed = StopWaitingJob(live.get(), *job, reason);
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

uint64_t JobManager::Pause(absl::string_view id, EndCallback done) {
  for (;;) {
    const LivePtr live = FindLive(id);
    absl::StatusOr<v1::Job> job = store_->GetJob(id);
    if (!job.ok() || job->state() == v1::PAUSED) {
      if (job.ok()) Complete(live, &*job);
      done(std::move(job));
      return 0;
    }
    if (IsTerminal(job->state()) || job->state() == v1::STOPPING) {
      done(WrongState(*job, "must wait or run to be paused"));
      return 0;
    }
    if (live == nullptr) {
      done(UnrecordedEnd(id, ""));
      return 0;
    }
    absl::StatusOr<v1::Job> paused;
    {
      MutexLock admit(&admit_mutex_);
      {
        MutexLock lock(&mutex_);
        if (!queue_.Remove(id)) {
          // Else another call or the job's own thread was quicker.
          if (!live_.contains(id) || !threads_.contains(live)) continue;
          live->AskToYield(Yield::kPause, kPaused, StopMode::kPause);
          return waiters_.Add(id, {.done = std::move(done), .for_pause = true});
        }
      }
      paused = PauseQueued(live, *job);
    }
    // It may have kept those behind it waiting.
    Dispatch();
    if (absl::IsAborted(paused.status())) continue;
    done(std::move(paused));
    return 0;
  }
}

absl::StatusOr<v1::Job> JobManager::PauseQueued(const LivePtr& live, const v1::Job& job) {
  absl::StatusOr<v1::Job> paused = RecordWaiting(live.get(), job, v1::PAUSED, kPaused);
  if (!paused.ok()) {
    MutexLock lock(&mutex_);
    Enqueue(live);
  }
  return paused;
}

absl::StatusOr<v1::Job> JobManager::Resume(absl::string_view id) {
  LENET_RETURN_IF_ERROR(CheckServing());
  std::vector<JobWaiters::Waiter> paused;
  v1::Job before;
  for (;;) {
    const LivePtr live = FindLive(id);
    LENET_ASSIGN_OR_RETURN(const v1::Job job, store_->GetJob(id));
    if (IsTerminal(job.state()) || job.state() == v1::STOPPING) return WrongState(job, "must be PAUSED to be resumed");
    if (live == nullptr) return UnrecordedEnd(id, "");
    if (job.state() != v1::PAUSED) return GetJob(id);
    MutexLock admit(&admit_mutex_);
    absl::StatusOr<v1::Job> changed = RecordWaiting(live.get(), job, v1::QUEUED, "resumed on request");
    if (absl::IsAborted(changed.status())) continue;
    LENET_RETURN_IF_ERROR(changed.status());
    MutexLock lock(&mutex_);
    // The thread that has recorded the pause may still be at its end, and then queues the job. Who waits for that pause
    // got what it asked for.
    if (threads_.contains(live)) {
      live->ForgetYield();
      paused = waiters_.TakeForPause(id);
      before = job;
    } else {
      Enqueue(live);
    }
    break;
  }
  for (const JobWaiters::Waiter& waiter : paused) waiter.done(before);
  Dispatch();
  return GetJob(id);
}

uint64_t JobManager::WaitForEnd(absl::string_view id, EndCallback done) {
  {
    MutexLock lock(&mutex_);
    if (live_.contains(id)) return waiters_.Add(id, {.done = std::move(done)});
  }
  absl::StatusOr<v1::Job> job = store_->GetJob(id);
  if (job.ok() && !IsTerminal(job->state())) job = UnrecordedEnd(id, "");
  done(std::move(job));
  return 0;
}

bool JobManager::StopWaiting(absl::string_view id, uint64_t token) {
  EndCallback dropped;  // destroyed without the lock
  MutexLock lock(&mutex_);
  dropped = waiters_.Remove(id, token);
  return dropped != nullptr;
}

void JobManager::Restore(int device) {
  {
    MutexLock lock(&mutex_);
    pool_.SetHealthy(device);
  }
  Dispatch();
}

void JobManager::BeginDrain() {
  health_.Stop();
  {
    MutexLock admit(&admit_mutex_);
    MutexLock lock(&mutex_);
    phase_ = Phase::kDraining;
  }
  MutexLock lock(&mutex_);
  for (const auto& [live, thread] : threads_) live->AskToYield(Yield::kRequeue, kShutdown, StopMode::kPause);
}

void JobManager::AbortAll() {
  patience_.EndAt(StorePatience::Clock::now() + options_.abort_patience);
  MutexLock lock(&mutex_);
  for (const auto& [live, thread] : threads_) live->AskToYield(Yield::kRequeue, kShutdown, StopMode::kAbort);
}

bool JobManager::WaitIdle(std::chrono::steady_clock::time_point deadline) const {
  MutexLock lock(&mutex_);
  while (busy_ > 0) {
    if (!idle_.WaitUntil(&mutex_, deadline)) return busy_ == 0;
  }
  return true;
}

void JobManager::Dispatch() {
  JoinFinished();
  std::vector<std::pair<LivePtr, std::string>> unstarted;
  {
    MutexLock lock(&mutex_);
    while (phase_ == Phase::kServing) {
      std::optional<JobQueue::Start> start = queue_.Pop(&pool_);
      if (!start) break;
      const auto found = live_.find(start->id);
      // A Stop was quicker.
      if (found == live_.end()) {
        pool_.Release(start->id);
        continue;
      }
      const LivePtr live = found->second;
      try {
        threads_[live] = std::thread([this, live, ids = start->device_ids] { RunOnThread(live, ids); });
        ++busy_;
        const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start->queued_at;
        counters_.queue_wait.Observe(waited.count());
      } catch (const std::system_error& error) {
        threads_.erase(live);
        pool_.Release(live->id);
        unstarted.emplace_back(live, error.what());
      }
    }
    if (phase_ == Phase::kServing) {
      for (const std::string& victim : queue_.Victims(pool_, Holders())) {
        live_.find(victim)->second->AskToYield(Yield::kRequeue, "made room for a job of a higher priority",
                                               StopMode::kPause);
      }
    }
  }
  for (const auto& [live, why] : unstarted) {
    const absl::StatusOr<v1::Job> job =
        FailQueuedJob(live.get(), store_, absl::ResourceExhaustedError(absl::StrCat("a thread for the job: ", why)));
    if (!absl::IsAborted(job.status())) Ended(live, job);
  }
}

std::vector<Holder> JobManager::Holders() const {
  std::vector<Holder> holders;
  for (const auto& [live, thread] : threads_) {
    // One that is at its end makes room by itself.
    if (!live_.contains(live->id)) continue;
    MutexLock lock(&live->mutex);
    holders.push_back(
        {.entry = {.id = live->id, .priority = live->admitted.priority, .devices = live->admitted.devices},
         .preemptible = live->admitted.preemptible,
         .yielding = live->yield != Yield::kNone});
  }
  return holders;
}

void JobManager::RunOnThread(const LivePtr& live, const std::vector<int>& device_ids) {
  pthread_setname_np(pthread_self(), "job");
  const ScopedLogSubject subject({.job = live->id});
  const absl::StatusOr<v1::Job> job = RunJob(services_, live.get(), device_ids);
  if (job.ok() && job->state() == v1::FAILED) health_.CheckAfter(job->failure(), device_ids);
  {
    MutexLock lock(&mutex_);
    pool_.Release(live->id);
  }
  // ABORTED: a Stop ended the job while it was queued, and has reported it.
  const bool waits = job.ok() && Waiting(job->state());
  if (!waits && !absl::IsAborted(job.status())) Ended(live, job);
  if (waits) LogState(*job);
  std::thread own;
  absl::StatusOr<v1::Job> now = job;
  std::vector<JobWaiters::Waiter> paused;
  {
    MutexLock admit(&admit_mutex_);
    if (waits) now = SettleWaiting(live.get(), *store_, *job);
    MutexLock lock(&mutex_);
    const auto found = threads_.find(live);
    own = std::move(found->second);
    threads_.erase(found);
    // In one step with that: from now on the job may get its next thread.
    if (waits) {
      live->ForgetYield();
      if (!now.ok() || now->state() == v1::QUEUED) Enqueue(live);
      // ABORTED: a Stop ended it, and answers them.
      const bool settled = now.ok() ? now->state() == v1::PAUSED : !absl::IsAborted(now.status());
      if (settled) paused = waiters_.TakeForPause(live->id);
    }
  }
  for (const JobWaiters::Waiter& waiter : paused) waiter.done(now);
  Dispatch();
  MutexLock lock(&mutex_);
  finished_.push_back(std::move(own));
  --busy_;
  idle_.SignalAll();
}

void JobManager::Ended(const LivePtr& live, absl::StatusOr<v1::Job> job) {
  if (job.ok()) {
    LogState(*job);
  } else {
    job = UnrecordedEnd(live->id, job.status().ToString());
    Log(LogLevel::kError, job.status().message());
    live->log->Close(job.status());
  }
  std::vector<JobWaiters::Waiter> waiters;
  {
    MutexLock lock(&mutex_);
    live_.erase(live->id);
    queue_.Remove(live->id);
    waiters = waiters_.Take(live->id);
  }
  for (const JobWaiters::Waiter& waiter : waiters) {
    waiter.done(waiter.for_pause && job.ok() ? WrongState(*job, "it ended before it was paused") : job);
  }
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
