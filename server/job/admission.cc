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

absl::Status CheckNet(const TrainSpec& spec, const ImageShape& shape) {
  LENET_ASSIGN_OR_RETURN(NetSpec net, PresetNet(spec.net, shape, kAnyClasses));
  return Net::Create(std::move(net)).status();
}

}  // namespace

absl::StatusOr<Admitted> Admit(const v1::TrainingSpec& spec, const Backend& backend, const DatasetCatalog& catalog) {
  Admitted admitted;
  LENET_ASSIGN_OR_RETURN(admitted.devices, RequestDevices(spec, backend));
  LENET_ASSIGN_OR_RETURN(admitted.spec, ToTrainSpec(spec));
  LENET_RETURN_IF_ERROR(CheckPrecision(admitted.spec, backend));

  const absl::StatusOr<DatasetInfo> info = catalog.Inspect(spec.dataset());
  if (!info.ok()) return Annotate(info.status(), "spec.dataset");
  if (!info->valid) {
    return absl::FailedPreconditionError(
        absl::StrCat("spec.dataset: the data set \"", spec.dataset(), "\" is damaged: ", info->error));
  }
  LENET_RETURN_IF_ERROR(Annotate(CheckNet(admitted.spec, info->shape), "spec.net"));

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

}  // namespace lenet
