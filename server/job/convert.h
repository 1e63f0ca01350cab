// Between the protocol's messages and the trainer's types.
#ifndef LENET_SERVER_JOB_CONVERT_H_
#define LENET_SERVER_JOB_CONVERT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lenet/v1/job.pb.h"
#include "lenet/v1/metrics.pb.h"
#include "lenet/v1/training_service.pb.h"
#include "lenet/v1/training_spec.pb.h"
#include "trainer/train/observer.h"
#include "trainer/train/train_spec.h"
#include "trainer/train/trainer.h"

namespace lenet {

// INVALID_ARGUMENT, with its number, for a field that this server does not know: to leave it out would be to train
// something else than what was asked for.
absl::Status CheckFieldsKnown(const v1::StartRequest& request);

// Takes what is written and puts the defaults of training_spec.proto for what is not. INVALID_ARGUMENT names the field
// by its path, "spec.optimizer.beta1", for a value that is no member of its enum, a field of another kind than the
// chosen one, and all that ValidateTrainSpec refuses. device_ids have no place in a TrainSpec; see PlaceRanks.
absl::StatusOr<TrainSpec> ToTrainSpec(const v1::TrainingSpec& message);

// When the job saves and what it keeps, with the defaults of training_spec.proto for what is not written.
v1::CheckpointPolicy ResolvedPolicy(const v1::TrainingSpec& message);

// All that the plan alone decides.
v1::ResolvedSpec ToResolvedSpec(const TrainPlan& plan);

v1::MetricRecord ToRecord(const EpochSummary& summary);
v1::MetricRecord ToRecord(const Evaluation& evaluation);
v1::MetricRecord ToRecord(const CheckpointSaved& saved);
v1::MetricRecord ToWarning(absl::string_view message);
v1::Evaluation ToMessage(const Evaluation& evaluation);
v1::Failure ToMessage(const RankFailure& failure);

}  // namespace lenet

#endif  // LENET_SERVER_JOB_CONVERT_H_
