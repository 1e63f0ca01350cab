#include "trainer/train/rank_worker.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "trainer/base/file.h"
#include "trainer/base/seconds.h"
#include "trainer/base/status.h"
#include "trainer/nn/init.h"
#include "trainer/optim/schedule.h"
#include "trainer/train/checkpoint.h"

namespace lenet {
namespace {

// About what is evaluated between two looks at the stop request.
constexpr int64_t kEvaluationSlice = 1024;

// Without a NaN's sign, which means nothing.
const char* ShowBad(float loss) { return std::isnan(loss) ? "nan" : loss > 0 ? "inf" : "-inf"; }

}  // namespace

RankWorker::RankWorker(RunState* run, int rank)
    : run_(run),
      rank_(rank),
      plan_(run->plan()),
      sampler_(plan_.spec.seed, run->job().dataset->train.count, plan_.ranks, plan_.batch_size),
      early_end_(plan_.spec, plan_.steps_per_epoch),
      steps_(run->first_step()),
      epoch_first_step_(steps_) {}

void RankWorker::Run() {
  absl::Status status;
  try {
    status = Train();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory on the host");
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (!status.ok()) {
    run_->Fail({.rank = rank_, .step = steps_, .phase = std::string(PhaseName(phase_)), .status = status});
    run_->Abort(absl::StrCat("rank ", rank_, " failed"));
  }
  engine_.reset();
  EnterPhase(Phase::kEnded);
}

absl::Status RankWorker::Train() {
  LENET_RETURN_IF_ERROR(Start());
  LENET_RETURN_IF_ERROR(Steps());
  return over_ ? absl::OkStatus() : Finish();
}

absl::Status RankWorker::Start() {
  if (const std::optional<Checkpoint>& resume = run_->job().resume) {
    LENET_RETURN_IF_ERROR(early_end_.Restore(resume->step, resume->metadata));
  }
  const EngineOptions options = {.net = &run_->net(),
                                 .dataset = run_->job().dataset,
                                 .batch_size = plan_.batch_size,
                                 .optimizer = plan_.spec.optimizer,
                                 .clip_norm = plan_.spec.clip_norm,
                                 .precision = plan_.spec.precision,
                                 .engine = plan_.spec.engine};
  LENET_RETURN_IF_ERROR(Fault(FaultPoint::kEngine, 0, 0));
  LENET_ASSIGN_OR_RETURN(engine_, run_->group()->NewEngine(rank_, options));
  LENET_RETURN_IF_ERROR(Meet({}).status());

  EnterPhase(Phase::kBroadcast);
  if (rank_ == 0) {
    if (const std::optional<Checkpoint>& resume = run_->job().resume) {
      LENET_RETURN_IF_ERROR(engine_->WriteParameters(resume->parameters));
      if (!resume->state.empty()) LENET_RETURN_IF_ERROR(engine_->WriteState(resume->state));
    } else {
      std::vector<float> initial(static_cast<size_t>(run_->net().flat_size()));
      Initialize(run_->net(), plan_.spec.init, plan_.spec.seed, initial);
      LENET_RETURN_IF_ERROR(engine_->WriteParameters(initial));
    }
  }
  LENET_RETURN_IF_ERROR(engine_->Broadcast());
  if (stop_ != StopMode::kNone) return absl::OkStatus();

  EnterPhase(Phase::kWarmUp);
  LENET_RETURN_IF_ERROR(engine_->WarmUp());
  LENET_RETURN_IF_ERROR(Meet({}).status());
  if (rank_ == 0) run_->observer()->OnRunning(engine_->name());
  return Meet({}).status();
}

absl::Status RankWorker::Steps() {
  EnterPhase(Phase::kStep);
  LENET_RETURN_IF_ERROR(CatchUp());
  while (end_reason_.empty() && !over_) {
    const Chunk chunk = run_->chunks().Next(rank_, run_->halted());
    if (chunk.count > 0) LENET_RETURN_IF_ERROR(Enqueue(chunk));
    // The first chunk of a run is waited for alone, so that its losses come at once.
    const bool drain = chunk.count == 0 || chunk.ends_epoch || chunk.saves || chunk.first_step == run_->first_step();
    LENET_RETURN_IF_ERROR(Drain(drain ? 0 : Engine::kMaxChunksInFlight - 1));
    if (chunk.out_of_time) end_reason_ = absl::StrCat("max_duration of ", plan_.spec.max_duration, " s reached");
    if (chunk.ends_epoch || (chunk.out_of_time && steps_ > epoch_first_step_)) LENET_RETURN_IF_ERROR(EndEpoch());
    if (chunk.count == 0) break;
    if (chunk.saves && end_reason_.empty()) LENET_RETURN_IF_ERROR(SaveAndGoOn());
  }
  return absl::OkStatus();
}

// What an earlier run left undone at this step: the epoch's evaluation, or the end that it brought.
absl::Status RankWorker::CatchUp() {
  if (steps_ == plan_.total_steps || stop_ != StopMode::kNone) return absl::OkStatus();
  if (early_end_.due(steps_)) LENET_RETURN_IF_ERROR(Evaluate().status());
  end_reason_ = early_end_.Reason(steps_);
  return absl::OkStatus();
}

absl::Status RankWorker::Enqueue(const Chunk& chunk) {
  if (const FaultInjector* faults = run_->job().faults) {
    const int64_t step = chunk.first_step + 1;
    if (faults->NextStep(step - 1) == step) LENET_RETURN_IF_ERROR(Drain(0));
    LENET_RETURN_IF_ERROR(Fault(FaultPoint::kChunk, step, chunk.count));
  }
  if (in_flight_.empty()) last_wait_ = Clock::now();
  if (chunk.first_step == epoch_first_step_) epoch_start_ = last_wait_;
  const size_t batch = static_cast<size_t>(plan_.batch_size);
  const size_t count = static_cast<size_t>(chunk.count);
  if (indices_.size() < count * batch) indices_.resize(count * batch);
  const int64_t epoch = chunk.first_step / plan_.steps_per_epoch;
  const int64_t in_epoch = chunk.first_step % plan_.steps_per_epoch;
  for (size_t i = 0; i < count; ++i) {
    const int64_t offset = static_cast<int64_t>(i);
    sampler_.Batch(epoch, in_epoch + offset, rank_, std::span(indices_).subspan(i * batch, batch));
    rates_[i] = static_cast<float>(LearningRateAt(plan_.spec.schedule, plan_.learning_rate, chunk.first_step + offset,
                                                  plan_.total_steps, plan_.steps_per_epoch));
  }
  in_flight_.push_back(chunk);
  run_->Queued(rank_, chunk.first_step + chunk.count);
  return engine_->Enqueue({.first_step = chunk.first_step,
                           .indices = std::span(indices_).first(count * batch),
                           .learning_rates = std::span(rates_).first(count)});
}

absl::Status RankWorker::Drain(size_t left) {
  while (in_flight_.size() > left) LENET_RETURN_IF_ERROR(WaitOldest());
  return absl::OkStatus();
}

absl::Status RankWorker::WaitOldest() {
  const Chunk chunk = in_flight_.front();
  in_flight_.pop_front();
  const std::span<float> losses = std::span(losses_).first(static_cast<size_t>(chunk.count));
  LENET_RETURN_IF_ERROR(engine_->Wait(losses));
  if (rank_ == 0) {
    const Clock::time_point now = Clock::now();
    run_->chunks().Measured(chunk.count, Seconds(now - last_wait_));
    last_wait_ = now;
  }
  std::optional<BadLoss> bad;
  for (const float loss : losses) {
    ++steps_;
    epoch_loss_ += static_cast<double>(loss);
    if (!bad && !std::isfinite(loss)) bad = {.step = steps_, .rank = rank_, .value = loss};
  }
  run_->observer()->OnSteps(rank_, chunk.first_step + 1, losses);
  run_->Progress(rank_, steps_, bad);
  WarnOfBadLoss();
  return absl::OkStatus();
}

absl::Status RankWorker::EndEpoch() {
  LENET_ASSIGN_OR_RETURN(const std::span<const RankReport> reports, Meet({.loss_sum = epoch_loss_}));
  WarnOfBadLoss();
  const int64_t epoch = (steps_ - 1) / plan_.steps_per_epoch + 1;
  if (rank_ == 0) {
    double loss_sum = 0;
    for (const RankReport& report : reports) loss_sum += report.loss_sum;
    const int64_t steps = steps_ - epoch_first_step_;
    const int64_t visited = (steps_ - (epoch - 1) * plan_.steps_per_epoch) * plan_.global_batch_size;
    EpochSummary summary = {.epoch = epoch, .last_step = steps_};
    summary.mean_loss = loss_sum / (static_cast<double>(steps) * plan_.ranks);
    summary.learning_rate =
        LearningRateAt(plan_.spec.schedule, plan_.learning_rate, steps_ - 1, plan_.total_steps, plan_.steps_per_epoch);
    summary.seconds = Seconds(Clock::now() - epoch_start_);
    summary.images = steps * plan_.global_batch_size;
    summary.images_per_second = static_cast<double>(summary.images) / std::max(summary.seconds, 1e-9);
    summary.dropped_images = run_->job().dataset->train.count - visited;
    run_->observer()->OnEpoch(summary);
  }
  epoch_first_step_ = steps_;
  epoch_loss_ = 0;

  const bool due = early_end_.due(steps_) && steps_ < plan_.total_steps;
  if (!due || stop_ != StopMode::kNone || Diverged()) return absl::OkStatus();
  LENET_RETURN_IF_ERROR(Evaluate().status());
  end_reason_ = early_end_.Reason(steps_);
  return absl::OkStatus();
}

absl::StatusOr<bool> RankWorker::Evaluate() {
  EnterPhase(Phase::kEvaluation);
  const Clock::time_point start = Clock::now();
  const int64_t images = run_->job().dataset->test.count;
  const int64_t end = (rank_ + 1) * images / plan_.ranks;
  const int64_t slice = std::max<int64_t>(1, kEvaluationSlice / plan_.batch_size) * plan_.batch_size;
  RankReport report;
  for (int64_t begin = rank_ * images / plan_.ranks; begin < end && !report.cut_short; begin += slice) {
    if (run_->stop().mode() != StopMode::kNone) {
      report.cut_short = true;
      break;
    }
    LENET_ASSIGN_OR_RETURN(const EvalResult part,
                           engine_->Evaluate(SplitKind::kTest, begin, std::min(begin + slice, end)));
    report.evaluated.count += part.count;
    report.evaluated.correct += part.correct;
    report.evaluated.loss_sum += part.loss_sum;
  }
  LENET_ASSIGN_OR_RETURN(const std::span<const RankReport> reports, Meet(report));
  EnterPhase(Phase::kStep);
  if (std::any_of(reports.begin(), reports.end(), [](const RankReport& r) { return r.cut_short; })) return false;

  Evaluation evaluation = {.epoch = (steps_ + plan_.steps_per_epoch - 1) / plan_.steps_per_epoch, .step = steps_};
  double loss_sum = 0;
  for (const RankReport& r : reports) {
    evaluation.count += r.evaluated.count;
    evaluation.correct += r.evaluated.correct;
    loss_sum += r.evaluated.loss_sum;
  }
  evaluation.mean_loss = evaluation.count > 0 ? loss_sum / static_cast<double>(evaluation.count) : 0;
  evaluation.seconds = Seconds(Clock::now() - start);
  evaluated_step_ = steps_;
  early_end_.Add(steps_, evaluation.accuracy());
  if (rank_ != 0) return true;
  run_->result.evaluation = evaluation;
  run_->observer()->OnEvaluation(evaluation);
  return true;
}

absl::Status RankWorker::SaveAndGoOn() {
  const Clock::time_point start = Clock::now();
  LENET_RETURN_IF_ERROR(Meet({}).status());
  WarnOfBadLoss();
  // The next chunk is the end then, and Finish decides what is saved.
  if (stop_ != StopMode::kNone || Diverged()) return absl::OkStatus();
  LENET_ASSIGN_OR_RETURN(std::optional<Snapshot> snapshot, TakeSnapshot(/*with_state=*/true));
  if (snapshot && rank_ == 0) {
    Save(*std::move(snapshot)).IgnoreError();
    run_->chunks().Saved();
    epoch_start_ += Clock::now() - start;
  }
  EnterPhase(Phase::kStep);
  return absl::OkStatus();
}

absl::Status RankWorker::Finish() {
  LENET_RETURN_IF_ERROR(Meet({}).status());
  WarnOfBadLoss();
  if (Diverged()) {
    const std::optional<BadLoss> bad = run_->SettledBadLoss();
    if (rank_ == 0 && bad) {
      run_->Fail({.rank = bad->rank,
                  .step = bad->step,
                  .phase = std::string(PhaseName(phase_)),
                  .status = absl::FailedPreconditionError(absl::StrCat("rank ", bad->rank, ": the loss of step ",
                                                                       bad->step, " is ", ShowBad(bad->value),
                                                                       ": must be finite (nan_policy is stop)"))});
    }
    return absl::OkStatus();
  }

  bool completed = (steps_ == plan_.total_steps || !end_reason_.empty()) && stop_ == StopMode::kNone;
  if (completed && evaluated_step_ != steps_) {
    LENET_ASSIGN_OR_RETURN(completed, Evaluate());
  }
  if (!completed && stop_ == StopMode::kAbort) {
    if (rank_ == 0) run_->result.end = TrainEnd::kAborted;
    return absl::OkStatus();
  }

  const bool saves =
      !run_->job().checkpoint_folder.empty() && (completed || steps_ > run_->first_step()) && saved_step_ != steps_;
  LENET_ASSIGN_OR_RETURN(std::optional<Snapshot> snapshot, TakeSnapshot(saves));
  if (!snapshot || rank_ != 0) return absl::OkStatus();
  // From here on nothing of the engine is needed, so an abort comes too late.
  TrainResult& result = run_->result;
  result.rank_checksums = snapshot->checksums;
  result.end = completed ? TrainEnd::kCompleted : TrainEnd::kStopped;
  if (completed) result.early_end = end_reason_;
  if (saves) result.save = Save(*std::move(snapshot));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RankWorker::Snapshot>> RankWorker::TakeSnapshot(bool with_state) {
  EnterPhase(Phase::kCheckpoint);
  Snapshot snapshot = {.checkpoint = {.step = steps_, .epoch = steps_ / plan_.steps_per_epoch}};
  Checkpoint& checkpoint = snapshot.checkpoint;
  checkpoint.parameters.resize(static_cast<size_t>(run_->net().flat_size()));
  LENET_RETURN_IF_ERROR(engine_->ReadParameters(checkpoint.parameters));
  const uint64_t checksum = WeightsChecksum(run_->net(), checkpoint.parameters);
  LENET_ASSIGN_OR_RETURN(const std::span<const RankReport> reports, Meet({.checksum = checksum}));

  std::vector<int> others;
  for (const RankReport& report : reports) {
    if (report.checksum != reports[0].checksum) others.push_back(static_cast<int>(snapshot.checksums.size()));
    snapshot.checksums.push_back(report.checksum);
  }
  if (!others.empty()) {
    over_ = true;
    if (rank_ != 0) return std::nullopt;
    run_->Fail({.rank = others.front(),
                .step = steps_,
                .phase = std::string(PhaseName(phase_)),
                .status = absl::InternalError(absl::StrCat("after step ", steps_, " the weights of rank ",
                                                           absl::StrJoin(others, ", "), " differ from rank 0's"))});
    return std::nullopt;
  }
  if (with_state && rank_ == 0) {
    checkpoint.state.resize(static_cast<size_t>(StateSlots(plan_.spec.optimizer)) * checkpoint.parameters.size());
    if (!checkpoint.state.empty()) LENET_RETURN_IF_ERROR(engine_->ReadState(checkpoint.state));
  }
  return snapshot;
}

absl::Status RankWorker::Save(Snapshot snapshot) {
  Checkpoint& checkpoint = snapshot.checkpoint;
  std::map<std::string, std::string>& metadata = checkpoint.metadata;
  metadata = run_->job().environment;
  metadata["spec"] = TrainSpecJson(plan_.spec);
  metadata["engine"] = std::string(engine_->name());
  metadata["seed"] = absl::StrCat(plan_.spec.seed);
  metadata["ranks"] = absl::StrCat(plan_.ranks);
  metadata["global_batch_size"] = absl::StrCat(plan_.global_batch_size);
  metadata["steps_per_epoch"] = absl::StrCat(plan_.steps_per_epoch);
  metadata["total_steps"] = absl::StrCat(plan_.total_steps);
  early_end_.Store(checkpoint.step, &metadata);

  const std::filesystem::path path =
      run_->job().checkpoint_folder / absl::StrFormat("step-%010d.safetensors", checkpoint.step);
  const absl::StatusOr<int64_t> bytes = WriteCheckpoint(path, checkpoint);
  if (!bytes.ok()) {
    run_->observer()->OnWarning(absl::StrCat("the checkpoint of step ", checkpoint.step,
                                             " was not saved: ", path.string(), ": ", bytes.status().message()));
    return bytes.status();
  }
  saved_step_ = checkpoint.step;
  run_->observer()->OnCheckpoint({.step = checkpoint.step,
                                  .epoch = checkpoint.epoch,
                                  .path = path,
                                  .bytes = *bytes,
                                  .weights_checksum = snapshot.checksums.front(),
                                  .accuracy = early_end_.accuracy(checkpoint.step)});
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RankWorker::WriteCheckpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  LENET_RETURN_IF_ERROR(Fault(FaultPoint::kSave, checkpoint.step, 0));
  LENET_RETURN_IF_ERROR(MakeFolders(path.parent_path()));
  return SaveCheckpoint(path, run_->net(), plan_.spec.optimizer, checkpoint);
}

bool RankWorker::Diverged() const {
  return plan_.spec.nan_policy == NanPolicy::kStop && run_->SettledBadLoss().has_value();
}

void RankWorker::WarnOfBadLoss() {
  if (rank_ != 0 || warned_ || plan_.spec.nan_policy != NanPolicy::kContinue) return;
  const std::optional<BadLoss> bad = run_->SettledBadLoss();
  if (!bad) return;
  warned_ = true;
  run_->observer()->OnWarning(absl::StrCat("rank ", bad->rank, ": the loss of step ", bad->step, " is ",
                                           ShowBad(bad->value), "; training goes on (nan_policy is continue)"));
}

void RankWorker::EnterPhase(Phase phase) {
  phase_ = phase;
  run_->EnterPhase(rank_, phase);
}

absl::Status RankWorker::Fault(FaultPoint point, int64_t step, int count) {
  FaultInjector* const faults = run_->job().faults;
  if (faults == nullptr) return absl::OkStatus();
  return faults->At({.point = point, .rank = rank_, .step = step, .count = count}, [this] { return run_->aborted(); });
}

absl::StatusOr<std::span<const RankReport>> RankWorker::Meet(RankReport report) {
  report.stop = run_->stop().mode();
  LENET_ASSIGN_OR_RETURN(const std::span<const RankReport> reports, run_->Meet(rank_, meetings_++, report));
  for (const RankReport& r : reports) stop_ = std::max(stop_, r.stop);
  return reports;
}

}  // namespace lenet
