#include "server/job/admission.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/job/convert.h"
#include "trainer/base/status.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

// Stands for the number of classes, which only the labels tell: no check depends on it.
constexpr int kAnyClasses = 10;

absl::Status CheckPrecision(const TrainSpec& spec, const Backend& backend) {
  if (backend.supports(spec.precision)) return absl::OkStatus();
  const absl::string_view name = spec.precision == Precision::kTf32 ? "PRECISION_TF32" : "PRECISION_FP32";
  return absl::InvalidArgumentError(
      absl::StrCat("spec.precision = ", name, ": the ", backend.name(), " backend does not offer it"));
}

absl::StatusOr<Net> MakeNet(const TrainSpec& spec, const ImageShape& shape) {
  LENET_ASSIGN_OR_RETURN(NetSpec net, PresetNet(spec.net, shape, kAnyClasses));
  return Net::Create(std::move(net));
}

absl::Status CheckScheduling(const v1::TrainingSpec& spec) {
  if (spec.priority() < -kMaxPriority || spec.priority() > kMaxPriority) {
    return BadValue("spec.priority", spec.priority(), absl::StrCat(-kMaxPriority, " to ", kMaxPriority));
  }
  if (spec.checkpoints().has_keep_last() && spec.checkpoints().keep_last() < 1) {
    return BadValue("spec.checkpoints.keep_last", spec.checkpoints().keep_last(), "at least 1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Admitted> Admit(const v1::TrainingSpec& spec, const Backend& backend, const DatasetCatalog& catalog) {
  Admitted admitted;
  LENET_ASSIGN_OR_RETURN(admitted.devices, RequestDevices(spec, backend));
  LENET_ASSIGN_OR_RETURN(admitted.spec, ToTrainSpec(spec));
  LENET_RETURN_IF_ERROR(CheckPrecision(admitted.spec, backend));
  LENET_RETURN_IF_ERROR(CheckScheduling(spec));
  admitted.priority = spec.priority();
  admitted.preemptible = spec.preemptible();

  const absl::StatusOr<DatasetInfo> info = catalog.Inspect(spec.dataset());
  if (!info.ok()) return Annotate(info.status(), "spec.dataset");
  if (!info->valid) {
    return absl::FailedPreconditionError(
        absl::StrCat("spec.dataset: the data set \"", spec.dataset(), "\" is damaged: ", info->error));
  }
  const absl::StatusOr<Net> net = MakeNet(admitted.spec, info->shape);
  if (!net.ok()) return Annotate(net.status(), "spec.net");
  admitted.checkpoint_bytes = (1 + StateSlots(admitted.spec.optimizer)) * net->flat_size() * int64_t{sizeof(float)};

  Dataset headers = {.name = spec.dataset(), .classes = kAnyClasses};
  headers.train.shape = info->shape;
  headers.train.count = info->train_count;
  const absl::StatusOr<TrainPlan> plan = PlanTraining(admitted.spec, admitted.devices.ranks, headers);
  if (!plan.ok()) return absl::Status(plan.status().code(), absl::StrCat("spec.", plan.status().message()));

  admitted.resolved = ToResolvedSpec(*plan);
  admitted.resolved.set_train_images(info->train_count);
  admitted.resolved.set_test_images(info->test_count);
  return admitted;
}

Admitted Readmit(const v1::Job& job, const Backend& backend, const DatasetCatalog& catalog) {
  absl::StatusOr<Admitted> admitted = Admit(job.spec(), backend, catalog);
  if (admitted.ok()) return *std::move(admitted);
  Admitted refused = {.resolved = job.resolved(), .error = admitted.status()};
  // It gets devices only to fail on them.
  refused.devices.ranks = job.resolved().ranks();
  refused.priority = job.spec().priority();
  return refused;
}

}  // namespace lenet
