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

// Puts what the ranks report into the log, the progress and the store.
class LogObserver : public TrainObserver {
 public:
  explicit LogObserver(LiveJob* live) : live_(*live) {}

  void OnRunning(absl::string_view engine) override {
    live_.progress.Begin(JobProgress::Clock::now());
    StateUpdate update = {.from = v1::STARTING, .to = v1::RUNNING, .time = absl::Now(), .reason = "training"};
    update.edit = [engine](v1::Job* job) { job->mutable_resolved()->set_engine(std::string(engine)); };
    const absl::Status status = live_.log->ChangeState(std::move(update)).status();
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

  void OnEpoch(const EpochSummary& summary) override {
    live_.log->Add(ToRecord(summary));
    live_.progress.AddEpoch(summary);
  }

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

TrainResult Failed(const LiveJob& live, std::string phase, absl::Status status) {
  TrainResult result;
  result.rank_steps.assign(static_cast<size_t>(live.admitted.devices.ranks), 0);
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
  switch (result.end) {
    case TrainEnd::kCompleted:
      return absl::StrCat("completed ", result.steps, " steps");
    case TrainEnd::kStopped:
    case TrainEnd::kAborted:
      return absl::StrCat(asked, ", at step ", result.steps);
    case TrainEnd::kFailed:
      break;
  }
  const RankFailure& failure = *result.failure;
  return ValidUtf8(absl::StrCat("rank ", failure.rank, " failed after step ", failure.step, ", in ", failure.phase,
                                ": ", failure.status.ToString()));
}

// The change that ends the job in the state it is in.
absl::StatusOr<v1::Job> TryRecordEnd(LiveJob* live, JobStore* store, const TrainResult& result) {
  LENET_ASSIGN_OR_RETURN(v1::Job job, store->GetJob(live->id));
  StateUpdate update = {.from = job.state(), .to = EndState(result.end), .time = absl::Now()};
  if (update.to == v1::STOPPED && job.state() != v1::STOPPING) {
    update.to = v1::STOPPING;
    update.reason = "stopped";
    LENET_ASSIGN_OR_RETURN(job, live->log->ChangeState(update));
    update = {.from = v1::STOPPING, .to = v1::STOPPED, .time = absl::Now()};
  }
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

absl::StatusOr<v1::Job> RecordEnd(LiveJob* live, JobStore* store, const TrainResult& result) {
  for (;;) {
    absl::StatusOr<v1::Job> job = TryRecordEnd(live, store, result);
    // ABORTED: a Stop changed the state in between.
    if (!absl::IsAborted(job.status())) return job;
  }
}

std::map<std::string, std::string> Environment(const Backend& backend, absl::string_view device_kind) {
  std::map<std::string, std::string> environment = {{"device_kind", std::string(device_kind)}};
  for (const auto& [library, version] : backend.versions()) environment[library] = version;
  return environment;
}

TrainResult Execute(const JobServices& services, LiveJob* live, const std::vector<int>& device_ids) {
  const absl::StatusOr<std::shared_ptr<const Dataset>> dataset = services.catalog->Load(live->admitted.spec.dataset);
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

  absl::StatusOr<std::unique_ptr<RankGroup>> group = services.groups->Take(device_ids);
  if (!group.ok()) return Failed(*live, "init", group.status());

  const std::string& device_kind = services.backend->devices()[static_cast<size_t>(device_ids.front())].kind;
  TrainJob job = {.plan = *std::move(plan), .dataset = *dataset};
  job.environment = Environment(*services.backend, device_kind);
  if (!services.checkpoint_root.empty()) job.checkpoint_folder = services.checkpoint_root / live->id;
  LogObserver observer(live);
  TrainResult result = Train(job, group->get(), &live->stop, &observer);
  if (result.end == TrainEnd::kFailed) {
    // What it met may lie in the group.
    if (!result.failure) result.failure = RankFailure{.phase = "step", .status = absl::InternalError("unknown")};
    group->reset();
  } else {
    services.groups->Give(*std::move(group));
  }
  return result;
}

TrainResult ExecuteSafely(const JobServices& services, LiveJob* live, const std::vector<int>& device_ids) {
  try {
    return Execute(services, live, device_ids);
  } catch (const std::exception& error) {
    return Failed(*live, "init", absl::InternalError(absl::StrCat("exception: ", error.what())));
  }
}

absl::Status BeginAttempt(LiveJob* live, JobEdit edit) {
  StateUpdate update = {.from = v1::QUEUED, .to = v1::STARTING, .time = absl::Now()};
  update.reason = "loading the data and setting up the devices";
  update.edit = std::move(edit);
  return live->log->ChangeState(std::move(update)).status();
}

}  // namespace

absl::StatusOr<v1::Job> RunJob(const JobServices& services, LiveJob* live, const std::vector<int>& device_ids) {
  LENET_RETURN_IF_ERROR(BeginAttempt(live, [&](v1::Job* job) {
    v1::ResolvedSpec* resolved = job->mutable_resolved();
    resolved->set_backend(std::string(services.backend->name()));
    resolved->mutable_device_ids()->Assign(device_ids.begin(), device_ids.end());
    resolved->set_device_kind(services.backend->devices()[static_cast<size_t>(device_ids.front())].kind);
    for (const auto& [library, version] : services.backend->versions()) {
      (*resolved->mutable_library_versions())[library] = version;
    }
  }));
  const FlusherEntry entry(services.flusher, live->log);
  TrainResult result = ExecuteSafely(services, live, device_ids);
  {
    MutexLock lock(&live->mutex);
    if (!live->log_error.ok()) {
      result.end = TrainEnd::kFailed;
      result.failure = RankFailure{.step = result.steps, .phase = "metrics", .status = live->log_error};
    }
  }
  return RecordEnd(live, services.store, result);
}

absl::StatusOr<v1::Job> FailQueuedJob(LiveJob* live, JobStore* store, const absl::Status& why) {
  LENET_RETURN_IF_ERROR(BeginAttempt(live, nullptr));
  return RecordEnd(live, store, Failed(*live, "init", why));
}

}  // namespace lenet
