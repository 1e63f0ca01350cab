#include "server/job/job_runner.h"

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/job/convert.h"
#include "server/store/job_state.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

// How long FailQueuedJob, which keeps other jobs waiting, tries.
constexpr std::chrono::seconds kFailPatience(1);

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

// Puts what the ranks report into the log, the progress and the store.
class LogObserver : public TrainObserver {
 public:
  LogObserver(LiveJob* live, int64_t steps_per_epoch) : live_(*live), steps_per_epoch_(steps_per_epoch) {}

  void OnRunning(absl::string_view engine) override {
    live_.progress.Begin(steps_per_epoch_, JobProgress::Clock::now());
    {
      MutexLock lock(&live_.mutex);
      live_.engine = std::string(engine);
    }
    const absl::Status status = RecordRunning(&live_).status();
    // ABORTED: a stop came first, and the job stays in STOPPING.
    if (!status.ok() && !absl::IsAborted(status)) {
      Log(LogLevel::kError, absl::StrCat("job ", live_.id, ": RUNNING is not recorded: ", status.ToString()));
    }
  }

  void OnSteps(int rank, int64_t first_step, std::span<const float> losses) override {
    if (losses.empty()) return;
    live_.log->AddLosses(rank, first_step, losses);
    live_.progress.AddSteps(rank, first_step + static_cast<int64_t>(losses.size()) - 1, losses.back(),
                            JobProgress::Clock::now());
  }

  void OnEpoch(const EpochSummary& summary) override { live_.log->Add(ToRecord(summary)); }

  void OnEvaluation(const Evaluation& evaluation) override {
    live_.log->Add(ToRecord(evaluation));
    live_.progress.AddEvaluation(evaluation);
  }

  void OnCheckpoint(const CheckpointSaved& saved) override { live_.log->Add(ToRecord(saved)); }

  void OnWarning(absl::string_view message) override {
    Log(LogLevel::kWarning, absl::StrCat("job ", live_.id, ": ", message));
    live_.log->Add(ToWarning(message));
  }

 private:
  LiveJob& live_;
  const int64_t steps_per_epoch_;
};

class FlusherEntry {
 public:
  FlusherEntry(MetricsFlusher* flusher, std::shared_ptr<MetricsLog> log) : flusher_(flusher), log_(std::move(log)) {
    flusher_->Add(log_);
  }
  ~FlusherEntry() { flusher_->Remove(log_.get()); }
  FlusherEntry(const FlusherEntry&) = delete;
  FlusherEntry& operator=(const FlusherEntry&) = delete;

 private:
  MetricsFlusher* const flusher_;
  const std::shared_ptr<MetricsLog> log_;
};

TrainResult WithoutAStep(const LiveJob& live, TrainEnd end) {
  TrainResult result = {.end = end};
  result.rank_steps.assign(static_cast<size_t>(live.admitted.devices.ranks), 0);
  return result;
}

TrainResult Failed(const LiveJob& live, std::string phase, absl::Status status) {
  TrainResult result = WithoutAStep(live, TrainEnd::kFailed);
  result.failure = RankFailure{.phase = std::move(phase), .status = std::move(status)};
  return result;
}

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

// `asked`: the reason that the job has in STOPPING.
std::string EndReason(const TrainResult& result, absl::string_view asked) {
  const std::string unsaved =
      result.save.ok() ? "" : absl::StrCat("; the last state was not saved: ", result.save.message());
  switch (result.end) {
    case TrainEnd::kCompleted:
      return ValidUtf8(absl::StrCat("completed ", result.steps, " steps", unsaved));
    case TrainEnd::kStopped:
    case TrainEnd::kAborted:
      return ValidUtf8(absl::StrCat(asked, ", at step ", result.steps, unsaved));
    case TrainEnd::kFailed:
      break;
  }
  const RankFailure& failure = *result.failure;
  const std::string rank = failure.rank < 0 ? "" : absl::StrCat("rank ", failure.rank, " ");
  return ValidUtf8(
      absl::StrCat(rank, "failed after step ", failure.step, ", in ", failure.phase, ": ", failure.status.ToString()));
}

v1::Terminal NeverRan(const LiveJob& live, absl::string_view reason) {
  v1::Terminal terminal;
  terminal.set_state(v1::STOPPED);
  terminal.set_reason(std::string(reason));
  for (int rank = 0; rank < live.admitted.devices.ranks; ++rank) terminal.add_rank_steps(0);
  return terminal;
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
      Log(LogLevel::kError, absl::StrCat("job ", live.id, ": a change of its state cannot be recorded, trying again: ",
                                         job.status().ToString()));
    }
    if (!patience->Pause(failures)) return job;
  }
}

// The change that ends the job in the state it is in.
absl::StatusOr<v1::Job> TryRecordEnd(LiveJob* live, JobStore* store, TrainResult result) {
  {
    MutexLock lock(&live->mutex);
    if (!live->log_error.ok()) {
      result.end = TrainEnd::kFailed;
      result.rank_checksums.clear();
      result.failure = RankFailure{.step = result.steps, .phase = "metrics", .status = live->log_error};
    }
  }
  LENET_ASSIGN_OR_RETURN(v1::Job job, store->GetJob(live->id));
  const v1::JobState end = EndState(result.end);
  // A change that the store refused when it was due comes first.
  if (end == v1::SUCCEEDED && job.state() == v1::STARTING) {
    LENET_ASSIGN_OR_RETURN(job, RecordRunning(live));
  }
  if (end == v1::STOPPED && job.state() != v1::STOPPING) {
    StateUpdate stopping = {.from = job.state(), .to = v1::STOPPING, .time = absl::Now(), .reason = "stopped"};
    LENET_ASSIGN_OR_RETURN(job, live->log->ChangeState(std::move(stopping)));
  }
  StateUpdate update = {.from = job.state(), .to = end, .time = absl::Now()};
  update.reason = EndReason(result, job.reason());

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

absl::StatusOr<v1::Job> RecordEnd(LiveJob* live, JobStore* store, StorePatience* patience, const TrainResult& result) {
  const auto record = [&] {
    for (;;) {
      absl::StatusOr<v1::Job> job = TryRecordEnd(live, store, result);
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

std::map<std::string, std::string> Environment(const Backend& backend, absl::string_view device_kind,
                                               uint32_t attempt) {
  std::map<std::string, std::string> environment = {{"device_kind", std::string(device_kind)},
                                                    {"attempt", absl::StrCat(attempt)}};
  for (const auto& [library, version] : backend.versions()) environment[library] = version;
  return environment;
}

// Before the first step.
bool FoundNoMemory(const TrainResult& result) {
  return result.end == TrainEnd::kFailed && absl::IsResourceExhausted(result.failure->status) &&
         (result.failure->phase == "init" || result.failure->phase == "warm-up");
}

TrainResult TrainInGroup(const JobServices& services, LiveJob* live, const TrainJob& job,
                         const std::vector<int>& device_ids) {
  absl::StatusOr<std::unique_ptr<RankGroup>> group = services.groups->Take(device_ids);
  if (!group.ok()) return Failed(*live, "init", group.status());
  LogObserver observer(live, job.plan.steps_per_epoch);
  TrainResult result = Train(job, group->get(), &live->stop, &observer);
  if (result.end != TrainEnd::kFailed) {
    services.groups->Give(*std::move(group));
  } else if (!result.failure) {
    result.failure = RankFailure{.phase = "step", .status = absl::InternalError("unknown")};
  }
  // The group of a failed job goes: what the job met may lie in it.
  return result;
}

TrainResult Execute(const JobServices& services, LiveJob* live, const std::vector<int>& device_ids, uint32_t attempt) {
  const absl::StatusOr<std::shared_ptr<const Dataset>> dataset =
      services.catalog->Load(live->admitted.spec.dataset, [live] { return live->stop.mode() != StopMode::kNone; });
  if (absl::IsCancelled(dataset.status())) return WithoutAStep(*live, TrainEnd::kStopped);
  if (!dataset.ok()) return Failed(*live, "load", dataset.status());
  absl::StatusOr<TrainPlan> plan = PlanTraining(live->admitted.spec, live->admitted.devices.ranks, **dataset);
  if (!plan.ok()) return Failed(*live, "load", plan.status());
  absl::StatusOr<NetSpec> net_spec = PresetNet(plan->spec.net, (*dataset)->train.shape, plan->classes);
  if (!net_spec.ok()) return Failed(*live, "load", net_spec.status());
  const absl::StatusOr<Net> net = Net::Create(*std::move(net_spec));
  if (!net.ok()) return Failed(*live, "load", net.status());

  // The files may have been replaced since the job was accepted.
  const absl::Status updated =
      services.store
          ->UpdateJob(live->id,
                      [&](v1::Job* job) {
                        v1::ResolvedSpec resolved = ToResolvedSpec(*plan);
                        resolved.set_parameters(net->parameter_count());
                        resolved.set_classes(plan->classes);
                        resolved.set_train_images((*dataset)->train.count);
                        resolved.set_test_images((*dataset)->test.count);
                        v1::ResolvedSpec* old = job->mutable_resolved();
                        resolved.mutable_device_ids()->Swap(old->mutable_device_ids());
                        resolved.set_backend(old->backend());
                        resolved.set_device_kind(old->device_kind());
                        resolved.mutable_library_versions()->swap(*old->mutable_library_versions());
                        old->Swap(&resolved);
                      })
          .status();
  if (!updated.ok()) return Failed(*live, "load", updated);

  const std::string& device_kind = services.backend->devices()[static_cast<size_t>(device_ids.front())].kind;
  TrainJob job = {.plan = *std::move(plan), .dataset = *dataset};
  job.environment = Environment(*services.backend, device_kind, attempt);
  if (!services.checkpoint_root.empty()) job.checkpoint_folder = services.checkpoint_root / live->id;
  TrainResult result = TrainInGroup(services, live, job, device_ids);
  // The groups kept for later jobs hold memory of the devices.
  if (FoundNoMemory(result) && services.groups->Clear()) result = TrainInGroup(services, live, job, device_ids);
  return result;
}

TrainResult ExecuteSafely(const JobServices& services, LiveJob* live, const std::vector<int>& device_ids,
                          uint32_t attempt) {
  try {
    return Execute(services, live, device_ids, attempt);
  } catch (const std::exception& error) {
    return Failed(*live, "init", absl::InternalError(absl::StrCat("exception: ", error.what())));
  }
}

// QUEUED to STARTING, or to STOPPED if a stop was asked for and could not be recorded.
absl::StatusOr<v1::Job> BeginAttempt(LiveJob* live, StorePatience* patience, const JobEdit& edit) {
  return Persist(*live, patience, [&] {
    if (live->stop.mode() != StopMode::kNone) return StopQueuedJob(live, "stopped before it ran");
    StateUpdate update = {.from = v1::QUEUED, .to = v1::STARTING, .time = absl::Now()};
    update.reason = "loading the data and setting up the devices";
    update.edit = edit;
    return live->log->ChangeState(std::move(update));
  });
}

}  // namespace

absl::StatusOr<v1::Job> RunJob(const JobServices& services, LiveJob* live, const std::vector<int>& device_ids) {
  absl::StatusOr<v1::Job> begun = BeginAttempt(live, services.patience, [&](v1::Job* job) {
    v1::ResolvedSpec* resolved = job->mutable_resolved();
    resolved->set_backend(std::string(services.backend->name()));
    resolved->mutable_device_ids()->Assign(device_ids.begin(), device_ids.end());
    resolved->set_device_kind(services.backend->devices()[static_cast<size_t>(device_ids.front())].kind);
    for (const auto& [library, version] : services.backend->versions()) {
      (*resolved->mutable_library_versions())[library] = version;
    }
  });
  if (!begun.ok() || IsTerminal(begun->state())) return begun;
  const FlusherEntry entry(services.flusher, live->log);
  const TrainResult result = ExecuteSafely(services, live, device_ids, begun->attempt());
  return RecordEnd(live, services.store, services.patience, result);
}

absl::StatusOr<v1::Job> FailQueuedJob(LiveJob* live, JobStore* store, const absl::Status& why) {
  StorePatience patience(StorePatience::Clock::now() + kFailPatience);
  absl::StatusOr<v1::Job> begun = BeginAttempt(live, &patience, nullptr);
  if (!begun.ok() || IsTerminal(begun->state())) return begun;
  return RecordEnd(live, store, &patience, Failed(*live, "init", why));
}

absl::StatusOr<v1::Job> StopQueuedJob(LiveJob* live, absl::string_view reason) {
  StateUpdate update = {.from = v1::QUEUED, .to = v1::STOPPED, .time = absl::Now(), .reason = std::string(reason)};
  return live->log->ChangeState(std::move(update), NeverRan(*live, reason));
}

}  // namespace lenet
