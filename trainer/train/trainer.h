// Runs one training over a group of ranks, one thread each.
#ifndef LENET_TRAINER_TRAIN_TRAINER_H_
#define LENET_TRAINER_TRAIN_TRAINER_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/backend/backend.h"
#include "trainer/data/dataset.h"
#include "trainer/train/checkpoint.h"
#include "trainer/train/fault_injector.h"
#include "trainer/train/observer.h"
#include "trainer/train/stop_request.h"
#include "trainer/train/train_spec.h"

namespace lenet {

enum class TrainEnd { kCompleted, kStopped, kAborted, kFailed };

// The first error of any rank; what others met because of it is not kept.
struct RankFailure {
  int rank = -1;      // -1: none in particular
  int64_t step = 0;   // steps that the rank had finished
  std::string phase;  // "init", "broadcast", "warm-up", "step", "evaluation", "checkpoint"
  absl::Status status;
};

struct TrainResult {
  TrainEnd end = TrainEnd::kFailed;
  int64_t steps = 0;                     // done in the job, the same on every rank unless kAborted or kFailed
  int64_t epochs = 0;                    // completed, those before a resume included
  std::vector<int64_t> rank_steps;       // done by each rank
  std::vector<uint64_t> rank_checksums;  // of each rank's parameters at the end; empty if kAborted or kFailed
  std::optional<Evaluation> evaluation;  // the last one
  std::optional<RankFailure> failure;    // if kFailed
  absl::Status save;                     // why the last state was not saved, where it was to be
  std::string early_end;                 // if kCompleted: why before the last step; empty: all steps are done
};

struct TrainJob {
  TrainPlan plan;
  std::shared_ptr<const Dataset> dataset;
  std::filesystem::path checkpoint_folder;  // made if missing; empty: nothing is saved
  // Goes on from here instead of from initial weights; its step must lie in this plan, and its epoch be that step's.
  // After step 0 its metadata tell what accuracy was reached before, see early_end.h.
  std::optional<Checkpoint> resume;
  std::map<std::string, std::string> environment;  // device kind, library versions: into each checkpoint's metadata
  double seconds_before = 0;                       // of training, by earlier attempts; counts towards max_duration
  // How long the ranks may stand still in a collective, see watchdog.h; 0: for ever. Must be well above a step's time,
  // as ranks report a chunk at a time: of about 10 ms, or of one step where that takes longer.
  std::chrono::milliseconds collective_timeout{0};
  std::chrono::milliseconds join_timeout{10'000};  // for the ranks' end after an abort, see OnRanksStuck
  FaultInjector* faults = nullptr;                 // in tests alone; outlives the training
};

// Blocks until every rank's thread has been joined. group->size() == job.plan.ranks. A group that is aborted when this
// returns must be thrown away.
//
// `stop` may rise at any time. With kCheckpoint and kPause all ranks end at one step, which is at most a few tens of
// milliseconds (or two steps) ahead, save, and evaluate nothing more; before the first step there is nothing to save.
// With kAbort they end at one step in the same way, but save nothing; where that takes longer than two seconds the
// group is aborted.
//
// The end of a job that was not stopped in time is saved as step-<10 digits>.safetensors in the checkpoint folder,
// after the ranks' weights have been compared; so are the states that spec.checkpoints asks for, each step once. What
// fails in saving is a warning, and at the end TrainResult::save, and changes nothing else: the files saved before
// stay. Max_duration, target_accuracy and patience end a job as its last step would: evaluated, saved, kCompleted.
TrainResult Train(const TrainJob& job, RankGroup* group, const StopRequest* stop, TrainObserver* observer);

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_TRAINER_H_
