#include "server/job/job_end.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/job/convert.h"
#include "server/store/job_state.h"
#include "server/store/timestamp.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

// How long FailQueuedJob, which keeps other jobs waiting, tries.
constexpr std::chrono::seconds kFailPatience(1);

// How many of a log's newest records tell how far each rank was, and far more bytes than they take.
constexpr uint64_t kTailRecords = 16;
constexpr int64_t kTailBytes = int64_t{4} << 20;

// How often SettleWaiting, which keeps others waiting, reads a job.
constexpr int kReadTries = 5;
constexpr std::chrono::milliseconds kReadInterval(100);

v1::JobState EndState(TrainEnd end) {
  switch (end) {
    case TrainEnd::kCompleted:
      return v1::SUCCEEDED;
    case TrainEnd::kStopped:
    case TrainEnd::kAborted:
      return v1::STOPPED;
    case TrainEnd::kFailed:
      break;
  }
  return v1::FAILED;
}

// What a reason ends with if the state at the end could not be saved.
std::string Unsaved(const TrainResult& result) {
  return result.save.ok() ? "" : absl::StrCat("; the last state was not saved: ", result.save.message());
}

// `asked`: the reason that the job has in STOPPING.
std::string EndReason(const TrainResult& result, absl::string_view asked) {
  switch (result.end) {
    case TrainEnd::kCompleted:
      if (!result.early_end.empty()) return absl::StrCat(result.early_end, Unsaved(result));
      return absl::StrCat("completed ", result.steps, " steps", Unsaved(result));
    case TrainEnd::kStopped:
    case TrainEnd::kAborted:
      return absl::StrCat(asked, Unsaved(result));
    case TrainEnd::kFailed:
      break;
  }
  const RankFailure& failure = *result.failure;
  std::vector<std::string> where;
  if (failure.rank >= 0) where.push_back(absl::StrCat("rank ", failure.rank));
  if (failure.step > 0) where.push_back(absl::StrCat("after step ", failure.step));
  return absl::StrCat(absl::StrJoin(where, " "), where.empty() ? "in " : ", in ", failure.phase, ": ",
                      failure.status.ToString());
}

const v1::Checkpoint* Newest(const v1::Job& job) {
  return job.checkpoints().empty() ? nullptr : &*job.checkpoints().rbegin();
}

std::string GoesOn(const v1::Job& job) {
  const v1::Checkpoint* const newest = Newest(job);
  if (newest != nullptr) return absl::StrCat("goes on from step ", newest->step());
  return job.has_resumed_from() ? "goes on from where it began" : "begins again";
}

int64_t SavedStep(const v1::Job& job) {
  const v1::Checkpoint* const newest = Newest(job);
  return newest != nullptr ? newest->step() : job.resumed_from().step();
}

int64_t SavedEpoch(const v1::Job& job) {
  return SavedStep(job) / std::max<int64_t>(job.resolved().steps_per_epoch(), 1);
}

// The state that the job is left in, without a training that would know more.
TrainResult StoppedAsSaved(const v1::Job& job) {
  TrainResult result = {.end = TrainEnd::kStopped, .steps = SavedStep(job), .epochs = SavedEpoch(job)};
  if (const v1::Checkpoint* const newest = Newest(job)) {
    result.rank_checksums.assign(static_cast<size_t>(job.resolved().ranks()), newest->weights_checksum());
  }
  result.rank_steps.assign(static_cast<size_t>(job.resolved().ranks()), result.steps);
  return result;
}

// How far an earlier server came in the job; its rate of images is not known.
void AddLosses(const RecordPage& page, int ranks, JobProgress* progress) {
  for (const RecordPtr& record : page.records) {
    const v1::StepLosses& losses = record->step_losses();
    const int count = std::min({losses.steps_size(), losses.ranks_size(), losses.losses_size()});
    for (int i = 0; i < count; ++i) {
      const int rank = losses.ranks(i);
      if (rank >= 0 && rank < ranks) progress->AddSteps(rank, losses.steps(i), losses.losses(i), {});
    }
  }
}

// One change to a terminal state.
absl::StatusOr<v1::Job> RecordTerminal(LiveJob* live, v1::JobState from, const TrainResult& result,
                                       absl::string_view reason, absl::Time time = absl::Now()) {
  StateUpdate update = {.from = from, .to = EndState(result.end), .time = time, .reason = Shown(reason)};
  v1::Terminal terminal;
  terminal.set_state(update.to);
  terminal.set_reason(update.reason);
  terminal.set_last_step(result.steps);
  terminal.mutable_rank_steps()->Add(result.rank_steps.begin(), result.rank_steps.end());
  if (result.end == TrainEnd::kFailed) *terminal.mutable_failure() = ToMessage(*result.failure);
  if (result.evaluation) *terminal.mutable_evaluation() = ToMessage(*result.evaluation);

  v1::Progress progress = live->progress.Get();
  progress.set_step(result.steps);
  progress.set_epoch(result.epochs);
  update.edit = [&](v1::Job* ended) {
    *ended->mutable_progress() = progress;
    ended->mutable_weights_checksums()->Add(result.rank_checksums.begin(), result.rank_checksums.end());
    if (terminal.has_failure()) *ended->mutable_failure() = terminal.failure();
  };
  return live->log->ChangeState(update, terminal);
}

bool MayPass(const absl::Status& error) {
  return !absl::IsNotFound(error) && !absl::IsInternal(error) && !absl::IsFailedPrecondition(error);
}

// Repeats `change` until it succeeds, fails with ABORTED or an error that stays, or the patience is at its end.
template <typename Change>
absl::StatusOr<v1::Job> Persist(const LiveJob& live, StorePatience* patience, const Change& change) {
  for (int failures = 1;; ++failures) {
    absl::StatusOr<v1::Job> job = change();
    if (job.ok() || absl::IsAborted(job.status()) || !MayPass(job.status())) return job;
    if (failures == 1) {
      LogOfJob(LogLevel::kError, live.id,
               absl::StrCat("a change of its state cannot be recorded, trying again: ", job.status().ToString()));
    }
    if (!patience->Pause(failures)) return job;
  }
}

// The change that ends the attempt in the state it is in.
absl::StatusOr<v1::Job> TryEndAttempt(LiveJob* live, JobStore* store, TrainResult result) {
  Yield yield = Yield::kNone;
  std::string yield_reason;
  {
    MutexLock lock(&live->mutex);
    if (!live->log_error.ok()) {
      result.end = TrainEnd::kFailed;
      result.rank_checksums.clear();
      result.failure = RankFailure{.step = result.steps, .phase = "metrics", .status = live->log_error};
    }
    yield = live->yield;
    yield_reason = live->yield_reason;
  }
  LENET_ASSIGN_OR_RETURN(v1::Job job, store->GetJob(live->id));
  if (IsTerminal(job.state())) return job;
  const v1::JobState end = EndState(result.end);
  if (end == v1::STOPPED && job.state() != v1::STOPPING && yield != Yield::kNone) {
    // What the job goes on from may be a record that is not stored yet.
    LENET_RETURN_IF_ERROR(live->log->Flush());
    LENET_ASSIGN_OR_RETURN(job, store->GetJob(live->id));
    return RecordWaiting(live, job, yield == Yield::kPause ? v1::PAUSED : v1::QUEUED,
                         absl::StrCat(yield_reason, "; ", GoesOn(job), Unsaved(result)));
  }
  // A change that the store refused when it was due comes first.
  if (end == v1::SUCCEEDED && job.state() == v1::STARTING) {
    LENET_ASSIGN_OR_RETURN(job, RecordRunning(live));
  }
  if (end == v1::STOPPED && job.state() != v1::STOPPING) {
    StateUpdate stopping = {.from = job.state(), .to = v1::STOPPING, .time = absl::Now(), .reason = "stopped"};
    LENET_ASSIGN_OR_RETURN(job, live->log->ChangeState(std::move(stopping)));
  }
  return RecordTerminal(live, job.state(), result, EndReason(result, job.reason()));
}

}  // namespace

TrainResult WithoutAStep(const LiveJob& live, TrainEnd end) {
  const v1::Progress progress = live.progress.Get();
  TrainResult result = {.end = end, .steps = progress.step(), .epochs = progress.epoch()};
  result.rank_steps.assign(static_cast<size_t>(live.admitted.devices.ranks), result.steps);
  return result;
}

TrainResult Failed(const LiveJob& live, std::string phase, absl::Status status) {
  TrainResult result = WithoutAStep(live, TrainEnd::kFailed);
  result.failure = RankFailure{.step = result.steps, .phase = std::move(phase), .status = std::move(status)};
  return result;
}

absl::StatusOr<v1::Job> BeginAttempt(LiveJob* live, JobStore* store, StorePatience* patience, const JobEdit& edit) {
  return Persist(*live, patience, [&]() -> absl::StatusOr<v1::Job> {
    Yield yield = Yield::kNone;
    {
      MutexLock lock(&live->mutex);
      yield = live->yield;
    }
    if (live->stop.mode() != StopMode::kNone && yield == Yield::kNone) {
      LENET_ASSIGN_OR_RETURN(const v1::Job job, store->GetJob(live->id));
      return StopWaitingJob(live, job, "stopped before it ran");
    }
    StateUpdate update = {.from = v1::QUEUED, .to = v1::STARTING, .time = absl::Now()};
    update.reason = "loading the data and setting up the devices";
    update.edit = edit;
    return live->log->ChangeState(std::move(update));
  });
}

absl::StatusOr<v1::Job> RecordRunning(LiveJob* live) {
  StateUpdate update = {.from = v1::STARTING, .to = v1::RUNNING, .time = absl::Now(), .reason = "training"};
  std::string engine;
  {
    MutexLock lock(&live->mutex);
    engine = live->engine;
  }
  update.edit = [&engine](v1::Job* job) { job->mutable_resolved()->set_engine(engine); };
  return live->log->ChangeState(std::move(update));
}

absl::StatusOr<v1::Job> EndAttempt(LiveJob* live, JobStore* store, StorePatience* patience, const TrainResult& result) {
  const auto record = [&] {
    for (;;) {
      absl::StatusOr<v1::Job> job = TryEndAttempt(live, store, result);
      // ABORTED: a Stop changed the state in between.
      if (!absl::IsAborted(job.status())) return job;
    }
  };
  absl::StatusOr<v1::Job> job = Persist(*live, patience, record);
  if (job.ok()) return job;
  // It may be the metrics alone that are refused.
  live->log->GiveUpUnsaved();
  return record();
}

absl::StatusOr<v1::Job> EndLostAttempt(LiveJob* live, const JobStore& store, const v1::Job& job, bool goes_on) {
  const uint64_t last = job.last_sequence();
  const absl::StatusOr<RecordPage> newest =
      store.ReadRecords(job.id(), last - std::min(last, kTailRecords) + 1, kTailBytes);
  const bool known = newest.ok() && !newest->records.empty();
  const absl::Time time = known ? FromTimestamp(newest->records.back()->time()) : absl::Now();
  const std::string lost = absl::StrCat("the server ended in attempt ", job.attempt());
  if (job.state() == v1::STOPPING) {
    return RecordTerminal(live, job.state(), StoppedAsSaved(job), absl::StrCat(job.reason(), "; ", lost), time);
  }
  if (goes_on) return RecordWaiting(live, job, v1::QUEUED, absl::StrCat(lost, "; ", GoesOn(job)), time);
  if (known) AddLosses(*newest, job.resolved().ranks(), &live->progress);
  const TrainResult result = Failed(*live, "restart", absl::AbortedError(lost));
  return RecordTerminal(live, job.state(), result, EndReason(result, ""), time);
}

absl::StatusOr<v1::Job> StopWaitingJob(LiveJob* live, const v1::Job& job, absl::string_view reason) {
  return RecordTerminal(live, job.state(), StoppedAsSaved(job), reason);
}

absl::StatusOr<v1::Job> RecordWaiting(LiveJob* live, const v1::Job& job, v1::JobState to, absl::string_view reason,
                                      absl::Time time) {
  StateUpdate update = {.from = job.state(), .to = to, .time = time, .reason = Shown(reason)};
  v1::Progress progress = live->progress.Get();
  progress.set_step(SavedStep(job));
  progress.set_epoch(SavedEpoch(job));
  update.edit = [&](v1::Job* waiting) { *waiting->mutable_progress() = progress; };
  absl::StatusOr<v1::Job> changed = live->log->ChangeState(std::move(update));
  if (changed.ok()) live->progress.Restore(progress);
  return changed;
}

absl::StatusOr<v1::Job> SettleWaiting(LiveJob* live, const JobStore& store, const v1::Job& job) {
  absl::StatusOr<v1::Job> now = store.GetJob(live->id);
  for (int tries = 1; !now.ok() && tries < kReadTries; ++tries) {
    std::this_thread::sleep_for(kReadInterval);
    now = store.GetJob(live->id);
  }
  if (!now.ok()) now = job;
  bool pause = false;
  {
    MutexLock lock(&live->mutex);
    pause = live->yield == Yield::kPause;
  }
  return pause && now->state() == v1::QUEUED ? RecordWaiting(live, *now, v1::PAUSED, kPaused) : now;
}

absl::StatusOr<v1::Job> FailQueuedJob(LiveJob* live, JobStore* store, const absl::Status& why) {
  StorePatience patience(StorePatience::Clock::now() + kFailPatience);
  absl::StatusOr<v1::Job> begun = BeginAttempt(live, store, &patience, nullptr);
  if (!begun.ok() || IsTerminal(begun->state())) return begun;
  return EndAttempt(live, store, &patience, Failed(*live, "init", why));
}

}  // namespace lenet
