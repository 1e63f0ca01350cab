#include "server/job/job_runner.h"

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/job/checkpoint_keeper.h"
#include "server/job/convert.h"
#include "server/job/job_end.h"
#include "server/job/start_request.h"
#include "server/job/step_meter.h"
#include "server/store/job_state.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

std::filesystem::path JobFolder(const JobServices& services, const LiveJob& live) {
  return services.checkpoint_root / live.id;
}

// Puts what the ranks report into the log, the progress and the store.
class LogObserver : public TrainObserver {
 public:
  LogObserver(LiveJob* live, const JobServices& services, const TrainPlan& plan, const std::vector<int>& device_ids)
      : live_(*live),
        services_(services),
        steps_per_epoch_(plan.steps_per_epoch),
        meter_(services.counters, device_ids, plan.batch_size) {}

  void OnRunning(absl::string_view engine) override {
    const JobProgress::Clock::time_point now = JobProgress::Clock::now();
    live_.progress.Begin(steps_per_epoch_, now);
    meter_.StepsFollow(now);
    {
      MutexLock lock(&live_.mutex);
      live_.engine = std::string(engine);
    }
    const absl::Status status = RecordRunning(&live_).status();
    // ABORTED: a stop came first, and the job stays in STOPPING.
    if (!status.ok() && !absl::IsAborted(status)) {
      LogOfJob(LogLevel::kError, live_.id, absl::StrCat("RUNNING is not recorded: ", status.ToString()));
    }
  }

  void OnSteps(int rank, int64_t first_step, std::span<const float> losses) override {
    if (losses.empty()) return;
    live_.log->AddLosses(rank, first_step, losses);
    const JobProgress::Clock::time_point now = JobProgress::Clock::now();
    live_.progress.AddSteps(rank, first_step + static_cast<int64_t>(losses.size()) - 1, losses.back(), now);
    meter_.AddSteps(rank, losses.size(), now);
  }

  void OnEpoch(const EpochSummary& summary) override { live_.log->Add(ToRecord(summary)); }

  void OnEvaluation(const Evaluation& evaluation) override {
    live_.log->Add(ToRecord(evaluation));
    live_.progress.AddEvaluation(evaluation);
    meter_.StepsFollow(JobProgress::Clock::now());
  }

  void OnCheckpoint(const CheckpointSaved& saved) override {
    live_.log->Add(ToRecord(saved));
    // Older files go only once the record of the new one is safe.
    absl::Status dropped = live_.log->Flush();
    if (dropped.ok()) dropped = DropSurplus(services_.store, live_.id, JobFolder(services_, live_));
    if (!dropped.ok()) {
      LogOfJob(LogLevel::kWarning, live_.id, absl::StrCat("older checkpoints stay: ", dropped.ToString()));
    }
    meter_.StepsFollow(JobProgress::Clock::now());
  }

  void OnWarning(absl::string_view message) override {
    LogOfJob(LogLevel::kWarning, live_.id, message);
    live_.log->Add(ToWarning(message));
  }

  void OnRanksStuck(const std::string& message) override {
    // The next process must not take it up again.
    const absl::StatusOr<v1::Job> failed = EndAttempt(&live_, services_.store, services_.patience,
                                                      Failed(live_, "step", absl::DeadlineExceededError(message)));
    LogOfJob(LogLevel::kError, live_.id, absl::StrCat(message, failed.ok() ? "" : failed.status().ToString()));
    if (services_.stuck) services_.stuck(message);
  }

 private:
  LiveJob& live_;
  const JobServices& services_;
  const int64_t steps_per_epoch_;
  StepMeter meter_;
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
  LogObserver observer(live, services, job.plan, device_ids);
  TrainResult result = Train(job, group->get(), &live->stop, &observer);
  if (result.end != TrainEnd::kFailed) {
    services.groups->Give(*std::move(group));
  } else if (!result.failure) {
    result.failure = RankFailure{.phase = "step", .status = absl::InternalError("unknown")};
  }
  // The group of a failed job goes: what the job met may lie in it.
  return result;
}

// DATA_LOSS, too, if it is the state after another step.
absl::StatusOr<Checkpoint> LoadStep(const std::filesystem::path& path, int64_t step, const Net& net,
                                    const OptimizerSpec& optimizer) {
  LENET_ASSIGN_OR_RETURN(Checkpoint checkpoint, LoadCheckpoint(path, net, optimizer));
  if (checkpoint.step == step) return checkpoint;
  return absl::DataLossError(absl::StrCat(path.string(), ": is the state after step ", checkpoint.step));
}

// The state that the attempt goes on from: the job's newest checkpoint that can be read, else what the job was begun
// from; none: initial weights.
absl::StatusOr<std::optional<Checkpoint>> FindStart(const JobServices& services, LiveJob* live, const v1::Job& job,
                                                    const Net& net, const OptimizerSpec& optimizer) {
  const std::filesystem::path folder = JobFolder(services, *live);
  for (auto saved = job.checkpoints().rbegin(); saved != job.checkpoints().rend(); ++saved) {
    absl::StatusOr<Checkpoint> checkpoint = LoadStep(CheckpointFile(folder, *saved), saved->step(), net, optimizer);
    if (checkpoint.ok()) {
      LENET_RETURN_IF_ERROR(ForgetAfter(services.store, job, saved->step()));
      return std::optional<Checkpoint>(*std::move(checkpoint));
    }
    const std::string warning =
        absl::StrCat("the checkpoint of step ", saved->step(), " cannot be read: ", checkpoint.status().message());
    LogOfJob(LogLevel::kWarning, live->id, warning);
    live->log->Add(ToWarning(warning));
  }
  LENET_RETURN_IF_ERROR(ForgetAfter(services.store, job, -1));
  if (!job.has_resumed_from()) return std::optional<Checkpoint>();
  const std::filesystem::path start = folder / kStartFile;
  if (job.resumed_from().job_id().empty()) {
    Checkpoint checkpoint;
    LENET_ASSIGN_OR_RETURN(checkpoint.parameters, LoadWeights(start, net));
    checkpoint.state.resize(static_cast<size_t>(StateSlots(optimizer)) * checkpoint.parameters.size());
    return std::optional<Checkpoint>(std::move(checkpoint));
  }
  absl::StatusOr<Checkpoint> checkpoint = LoadStep(start, job.resumed_from().step(), net, optimizer);
  if (!checkpoint.ok()) return Annotate(checkpoint.status(), ResumeSource(job.resumed_from()));
  return std::optional<Checkpoint>(*std::move(checkpoint));
}

// Of the attempts that have ended.
absl::StatusOr<double> SecondsBefore(const JobServices& services, const LiveJob& live) {
  LENET_ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, services.store->ListAttempts(live.id));
  absl::Duration sum;
  for (const Attempt& attempt : attempts) {
    if (attempt.ended_at) sum += *attempt.ended_at - attempt.started_at;
  }
  return absl::ToDoubleSeconds(sum);
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
  const absl::StatusOr<v1::Job> updated = services.store->UpdateJob(live->id, [&](v1::Job* job) {
    v1::ResolvedSpec resolved = ToResolvedSpec(*plan);
    resolved.set_parameters(net->parameter_count());
    resolved.set_classes(plan->classes);
    resolved.set_train_images((*dataset)->train.count);
    resolved.set_test_images((*dataset)->test.count);
    v1::ResolvedSpec* old = job->mutable_resolved();
    resolved.mutable_device_ids()->Swap(old->mutable_device_ids());
    *resolved.mutable_checkpoints() = ResolvedPolicy(job->spec());
    resolved.set_backend(old->backend());
    resolved.set_device_kind(old->device_kind());
    resolved.mutable_library_versions()->swap(*old->mutable_library_versions());
    old->Swap(&resolved);
  });
  const absl::StatusOr<v1::Job> stored = updated.ok() ? updated : services.store->GetJob(live->id);
  if (!stored.ok()) return Failed(*live, "load", stored.status());

  const std::string& device_kind = services.backend->devices()[static_cast<size_t>(device_ids.front())].kind;
  TrainJob job = {.plan = *std::move(plan), .dataset = *dataset};
  job.environment = Environment(*services.backend, device_kind, attempt);
  if (!services.checkpoint_root.empty()) {
    job.checkpoint_folder = JobFolder(services, *live);
    RemoveTemporaries(job.checkpoint_folder);
    absl::StatusOr<std::optional<Checkpoint>> start = FindStart(services, live, *stored, *net, job.plan.spec.optimizer);
    if (!start.ok()) return Failed(*live, "load", start.status());
    job.resume = *std::move(start);
    live->progress.MoveTo(job.resume ? job.resume->step : 0);
  }
  if (job.plan.spec.max_duration > 0) {
    const absl::StatusOr<double> seconds_before = SecondsBefore(services, *live);
    if (!seconds_before.ok()) return Failed(*live, "load", seconds_before.status());
    job.seconds_before = *seconds_before;
  }
  job.collective_timeout = services.collective_timeout;
  job.join_timeout = services.join_timeout;
  job.faults = services.faults;
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

}  // namespace

absl::StatusOr<v1::Job> RunJob(const JobServices& services, LiveJob* live, const std::vector<int>& device_ids) {
  absl::StatusOr<v1::Job> begun = BeginAttempt(live, services.store, services.patience, [&](v1::Job* job) {
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
  const TrainResult result = !live->admitted.error.ok() ? Failed(*live, "load", live->admitted.error)
                                                        : ExecuteSafely(services, live, device_ids, begun->attempt());
  return EndAttempt(live, services.store, services.patience, result);
}

}  // namespace lenet
