// Runs one training over a group of ranks, one thread each.
#ifndef LENET_TRAINER_TRAIN_TRAINER_H_
#define LENET_TRAINER_TRAIN_TRAINER_H_

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
};

struct TrainJob {
  TrainPlan plan;
  std::shared_ptr<const Dataset> dataset;
  std::filesystem::path checkpoint_folder;  // made if missing; empty: nothing is saved
  // Goes on from here instead of from initial weights; its step must lie in this plan, and its epoch be that step's.
  std::optional<Checkpoint> resume;
  std::map<std::string, std::string> environment;  // device kind, library versions: into each checkpoint's metadata
};

// Blocks until every rank's thread has been joined. group->size() == job.plan.ranks. A group that is aborted when this
// returns must be thrown away.
//
// `stop` may rise at any time. With kCheckpoint all ranks end at one step, which is at most a few tens of milliseconds
// (or two steps) ahead, save, and evaluate nothing more; before the first step there is nothing to save. With kAbort
// they end at one step in the same way, but save nothing; where that takes longer than two seconds the group is
// aborted.
//
// The end of a job that was not stopped in time is saved as step-<10 digits>.safetensors in the checkpoint folder,
// after the ranks' weights have been compared. What fails in saving is a warning and TrainResult::save, and leaves the
// job's end as it is.
TrainResult Train(const TrainJob& job, RankGroup* group, const StopRequest* stop, TrainObserver* observer);

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_TRAINER_H_
