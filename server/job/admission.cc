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

absl::StatusOr<Net> MakeNet(const TrainSpec& spec, const ImageShape& shape, int classes = kAnyClasses) {
  LENET_ASSIGN_OR_RETURN(NetSpec net, PresetNet(spec.net, shape, classes));
  return Net::Create(std::move(net));
}

// `other` has another number of classes.
std::vector<WeightForm> Forms(const Net& net, const Net& other) {
  std::vector<WeightForm> forms;
  for (size_t i = 0; i < net.parameters().size(); ++i) {
    const Parameter& parameter = net.parameters()[i];
    WeightForm& form = forms.emplace_back(WeightForm{.name = parameter.name});
    if (parameter.shape == other.parameters()[i].shape) form.shape = parameter.shape;
  }
  return forms;
}

// What decides the steps of a job that is to go on.
absl::Status CheckSame(const v1::ResolvedSpec& now, const v1::ResolvedSpec& was) {
  if (now.train_images() != was.train_images()) {
    return absl::FailedPreconditionError(absl::StrCat("the data set has ", now.train_images(),
                                                      " training images; it had ", was.train_images(),
                                                      " when the job was accepted"));
  }
  const bool same = now.global_batch_size() == was.global_batch_size() &&
                    now.steps_per_epoch() == was.steps_per_epoch() && now.total_steps() == was.total_steps();
  return same ? absl::OkStatus()
              : absl::FailedPreconditionError("the job's batch or steps would be others than when it was accepted");
}

absl::Status CheckScheduling(const v1::TrainingSpec& spec) {
  if (spec.priority() < -kMaxPriority || spec.priority() > kMaxPriority) {
    return BadValue("spec.priority", spec.priority(), absl::StrCat(-kMaxPriority, " to ", kMaxPriority));
  }
  const int keep_last = spec.checkpoints().keep_last();
  if (spec.checkpoints().has_keep_last() && (keep_last < 1 || keep_last > kMaxKeepLast)) {
    return BadValue("spec.checkpoints.keep_last", keep_last, absl::StrCat("1 to ", kMaxKeepLast));
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
  const absl::Status engine = backend.CheckEngine(admitted.spec.engine, *net, admitted.spec.precision);
  if (!engine.ok()) return absl::Status(engine.code(), absl::StrCat("spec.", engine.message()));
  LENET_ASSIGN_OR_RETURN(const Net other, MakeNet(admitted.spec, info->shape, kAnyClasses + 1));
  admitted.weights = Forms(*net, other);
  admitted.checkpoint_bytes = (1 + StateSlots(admitted.spec.optimizer)) * net->flat_size() * int64_t{sizeof(float)};

  Dataset headers = {.name = spec.dataset(), .classes = kAnyClasses};
  headers.train.shape = info->shape;
  headers.train.count = info->train_count;
  const absl::StatusOr<TrainPlan> plan = PlanTraining(admitted.spec, admitted.devices.ranks, headers);
  if (!plan.ok()) return absl::Status(plan.status().code(), absl::StrCat("spec.", plan.status().message()));

  admitted.resolved = ToResolvedSpec(*plan);
  *admitted.resolved.mutable_checkpoints() = ResolvedPolicy(spec);
  admitted.resolved.set_train_images(info->train_count);
  admitted.resolved.set_test_images(info->test_count);
  return admitted;
}

Admitted Readmit(const v1::Job& job, const Backend& backend, const DatasetCatalog& catalog) {
  // As many ranks as it had, however many devices there are by now, and the rate that was the default then.
  v1::TrainingSpec spec = job.spec();
  if (spec.device_ids().empty()) spec.set_ranks(job.resolved().ranks());
  if (!spec.has_learning_rate()) spec.set_learning_rate(job.resolved().learning_rate());
  absl::StatusOr<Admitted> admitted = Admit(spec, backend, catalog);
  const absl::Status same = admitted.ok() ? CheckSame(admitted->resolved, job.resolved()) : admitted.status();
  if (same.ok()) return *std::move(admitted);
  Admitted refused = {.resolved = job.resolved(), .error = same};
  // It gets devices only to fail on them.
  refused.devices.ranks = job.resolved().ranks();
  refused.priority = job.spec().priority();
  return refused;
}

}  // namespace lenet
