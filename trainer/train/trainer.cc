#include "trainer/train/trainer.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/base/log.h"
#include "trainer/base/seconds.h"
#include "trainer/base/status.h"
#include "trainer/nn/net.h"
#include "trainer/train/early_end.h"
#include "trainer/train/rank_worker.h"
#include "trainer/train/run_state.h"
#include "trainer/train/watchdog.h"

namespace lenet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval(50);
// How long an abort waits for the ranks to reach the end of a chunk, where it costs no communicator.
constexpr std::chrono::seconds kAbortGrace(2);
constexpr std::chrono::seconds kStuckLogInterval(10);

absl::StatusOr<Net> MakeNet(const TrainPlan& plan, const Dataset& dataset) {
  LENET_ASSIGN_OR_RETURN(NetSpec spec, PresetNet(plan.spec.net, dataset.train.shape, plan.classes));
  return Net::Create(std::move(spec));
}

absl::Status CheckResume(const TrainPlan& plan, const Net& net, const Checkpoint& resume) {
  const size_t flat_size = static_cast<size_t>(net.flat_size());
  const size_t state_size = static_cast<size_t>(StateSlots(plan.spec.optimizer)) * flat_size;
  if (resume.parameters.size() != flat_size || resume.state.size() != state_size) {
    return absl::FailedPreconditionError("the checkpoint does not fit the net or the optimizer");
  }
  if (resume.step < 0 || resume.step > plan.total_steps) {
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoint's step = ", resume.step, ": must be 0 to ", plan.total_steps));
  }
  if (const int64_t epoch = resume.step / plan.steps_per_epoch; resume.epoch != epoch) {
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint's epoch = ", resume.epoch, ": must be ", epoch,
                                                      ", as ", plan.steps_per_epoch, " steps are an epoch"));
  }
  return EarlyEnd(plan.spec, plan.steps_per_epoch).Restore(resume.step, resume.metadata);
}

TrainResult Failed(const TrainJob& job, absl::Status status) {
  TrainResult result;
  result.rank_steps.assign(static_cast<size_t>(std::max(job.plan.ranks, 0)), 0);
  result.failure = {.phase = "init", .status = std::move(status)};
  return result;
}

std::string StuckMessage(const RunState& run) {
  std::vector<int> stuck;
  const std::vector<RankPosition> positions = run.positions();
  for (size_t r = 0; r < positions.size(); ++r) {
    if (positions[r].phase != Phase::kEnded) stuck.push_back(static_cast<int>(r));
  }
  return absl::StrCat(stuck.size() == 1 ? "rank " : "ranks ", absl::StrJoin(stuck, ", "), " did not end within ",
                      Seconds(run.job().join_timeout), " s after the training was aborted");
}

// Waits for the ranks' end, and sees that an abort gets there.
void WatchRanks(RunState* run, int ranks) {
  Watchdog watchdog(run->job().collective_timeout);
  std::optional<Clock::time_point> abort_at;
  std::optional<Clock::time_point> late_at;
  bool aborted = false;
  bool stuck = false;
  while (!run->WaitForEnd(ranks, Clock::now() + kPollInterval)) {
    const Clock::time_point now = Clock::now();
    if (run->stop().mode() == StopMode::kAbort && !aborted) {
      if (!abort_at) abort_at = now + kAbortGrace;
      if (now >= *abort_at) {
        aborted = true;
        run->AbortForStop();
      }
    }
    if (!run->aborted()) {
      if (const std::optional<RankFailure> failure = watchdog.Look(run->positions(), now)) {
        run->Fail(*failure);
        run->Abort(failure->status.message());
      }
      continue;
    }
    if (!late_at) late_at = now + run->job().join_timeout;
    if (now >= *late_at) {
      const std::string message = StuckMessage(*run);
      Log(LogLevel::kError, absl::StrCat(message, "; still waiting"));
      if (!stuck) run->observer()->OnRanksStuck(message);
      stuck = true;
      late_at = now + kStuckLogInterval;
    }
  }
}

}  // namespace

TrainResult Train(const TrainJob& job, RankGroup* group, const StopRequest* stop, TrainObserver* observer) {
  if (group->size() != job.plan.ranks) {
    return Failed(
        job, absl::InternalError(absl::StrCat("a group of ", group->size(), " ranks for a plan of ", job.plan.ranks)));
  }
  absl::StatusOr<Net> net = MakeNet(job.plan, *job.dataset);
  if (!net.ok()) return Failed(job, net.status());
  if (job.resume) {
    if (absl::Status status = CheckResume(job.plan, *net, *job.resume); !status.ok()) return Failed(job, status);
  }

  RunState run(job, *net, group, stop, observer);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(job.plan.ranks));
  for (int rank = 0; rank < job.plan.ranks; ++rank) {
    try {
      threads.emplace_back([&run, rank, subject = LogSubject{.job = ThreadLogSubject().job, .rank = rank}] {
        pthread_setname_np(pthread_self(), absl::StrCat("rank ", rank).c_str());
        const ScopedLogSubject scope(subject);
        RankWorker(&run, rank).Run();
        run.RankEnded();
      });
    } catch (const std::exception& error) {
      run.Fail({.rank = rank,
                .phase = "init",
                .status = absl::ResourceExhaustedError(absl::StrCat("a thread for rank ", rank, ": ", error.what()))});
      run.Abort("a rank has no thread");
      for (int r = rank; r < job.plan.ranks; ++r) run.EnterPhase(r, Phase::kEnded);
      break;
    }
  }
  WatchRanks(&run, static_cast<int>(threads.size()));
  for (std::thread& thread : threads) thread.join();

  TrainResult result = std::move(run.result);
  result.rank_steps = run.rank_steps();
  result.steps = *std::min_element(result.rank_steps.begin(), result.rank_steps.end());
  result.epochs = result.steps / job.plan.steps_per_epoch;
  result.failure = run.failure();
  const bool stopped_hard = stop->mode() == StopMode::kAbort;
  if (result.failure && !(stopped_hard && absl::IsAborted(result.failure->status))) {
    result.end = TrainEnd::kFailed;
  } else if (group->aborted() && result.end == TrainEnd::kFailed) {
    result.end = TrainEnd::kAborted;
  }
  if (result.end == TrainEnd::kAborted) result.failure.reset();
  if (result.end == TrainEnd::kFailed || result.end == TrainEnd::kAborted) result.rank_checksums.clear();
  return result;
}

}  // namespace lenet
