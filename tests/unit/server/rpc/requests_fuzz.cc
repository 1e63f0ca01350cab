// libFuzzer's entry to what checks requests: whatever a client sends, it is taken with all values in their bounds, or
// refused with a reason. The first byte says which request the others are.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "lenet/v1/training_service.pb.h"
#include "server/job/admission.h"
#include "server/job/convert.h"
#include "server/job/start_request.h"
#include "server/rpc/requests.h"
#include "server/store/memory_store.h"
#include "trainer/backend/engine_checks.h"
#include "trainer/base/text.h"
#include "trainer/data/catalog.h"

namespace {

using namespace lenet;  // NOLINT(google-build-using-namespace): a file of nothing else

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "a check broke its promise: %s\n", what);
  std::abort();
}

void RequireReason(const absl::Status& status) {
  Require(status.code() == absl::StatusCode::kInvalidArgument || status.code() == absl::StatusCode::kNotFound ||
              status.code() == absl::StatusCode::kFailedPrecondition,
          "the code of a refusal");
  Require(!status.message().empty(), "a reason");
  Require(ValidUtf8(status.message()) == status.message(), "a reason that a status can carry");
}

// Two devices; nothing runs on them.
class IdleBackend : public Backend {
 public:
  absl::string_view name() const override { return "idle"; }
  std::span<const DeviceInfo> devices() const override { return devices_; }
  std::vector<std::pair<std::string, std::string>> versions() const override { return {}; }
  std::vector<std::pair<std::string, std::string>> built_with() const override { return {}; }
  absl::StatusOr<DeviceStatus> Inspect(int /*id*/) const override { return DeviceStatus(); }
  bool supports(Precision precision) const override { return precision == Precision::kFp32; }
  absl::Status CheckEngine(EngineKind engine, const Net& /*net*/, Precision /*precision*/) const override {
    return NoFusedEngine(engine, name());
  }
  bool oversubscribable() const override { return false; }
  bool failures_last() const override { return false; }
  absl::StatusOr<std::unique_ptr<RankGroup>> NewGroup(std::span<const int>) override {
    return absl::UnimplementedError("nothing runs here");
  }

 private:
  const std::vector<DeviceInfo> devices_ = {{.id = 0, .name = "Idle", .kind = "idle"},
                                            {.id = 1, .name = "Idle", .kind = "idle"}};
};

void CheckPlan(const TrainSpec& spec, int ranks) {
  Dataset dataset = {.name = spec.dataset, .classes = 10};
  dataset.train.shape = {.channels = 1, .height = 28, .width = 28};
  dataset.train.count = 60000;
  const absl::StatusOr<TrainPlan> plan = PlanTraining(spec, ranks, dataset);
  if (!plan.ok()) return RequireReason(plan.status());
  Require(plan->total_steps >= 1 && plan->total_steps <= kMaxSteps, "steps in their bounds");
  Require(plan->steps_per_epoch >= 1, "an epoch of steps");
  Require(plan->batch_size >= 1 && plan->batch_size * int64_t{ranks} == plan->global_batch_size, "a batch");
  Require(std::isfinite(plan->learning_rate) && plan->learning_rate > 0, "a rate");
}

void CheckStart(const v1::StartRequest& request) {
  static const IdleBackend backend;
  static const DatasetCatalog catalog({"/nonexistent"});
  static const MemoryStore store;
  if (const absl::Status checked = CheckRequest(request); !checked.ok()) RequireReason(checked);
  const absl::StatusOr<DeviceRequest> devices = RequestDevices(request.spec(), backend);
  if (!devices.ok()) RequireReason(devices.status());
  if (devices.ok()) Require(devices->ranks >= 1 && devices->ranks <= 2, "ranks that there are devices for");
  const absl::StatusOr<TrainSpec> spec = ToTrainSpec(request.spec());
  if (!spec.ok()) RequireReason(spec.status());
  if (spec.ok()) {
    Require(ValidateTrainSpec(*spec).ok(), "a spec that is valid");
    if (devices.ok()) CheckPlan(*spec, devices->ranks);
  }
  // There is no data set to be found.
  const absl::StatusOr<Admitted> admitted = Admit(request.spec(), backend, catalog);
  Require(!admitted.ok(), "no job without a data set");
  RequireReason(admitted.status());
  const absl::StatusOr<StartFile> start = ReadStartFile(request, Admitted(), store, "/nonexistent");
  if (!start.ok()) RequireReason(start.status());
}

template <typename Request, typename Check>
void Parse(const uint8_t* data, size_t size, const Check& check) {
  Request request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return;
  check(request);
}

}  // namespace

// Protobuf logs every string that is not UTF-8.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t kind = data[0] % 3;
  ++data;
  --size;
  switch (kind) {
    case 0:
      Parse<v1::StartRequest>(data, size, CheckStart);
      break;
    case 1:
      Parse<v1::ListJobsRequest>(data, size, [](const v1::ListJobsRequest& request) {
        const absl::StatusOr<JobQuery> query = ToQuery(request);
        if (!query.ok()) return RequireReason(query.status());
        Require(query->limit >= 1 && query->limit <= 1000, "a page size in its bounds");
        const absl::StatusOr<JobPage> page = MemoryStore().ListJobs(*query);
        if (!page.ok()) RequireReason(page.status());
      });
      break;
    default:
      Parse<v1::StreamMetricsRequest>(data, size, [](const v1::StreamMetricsRequest& request) {
        const absl::StatusOr<RecordWishes> wishes = ToWishes(request);
        if (!wishes.ok()) return RequireReason(wishes.status());
        Require(wishes->every_n_steps >= 1, "a stride");
        Require(std::isfinite(wishes->max_rate) && wishes->max_rate >= 0, "a rate");
      });
  }
  return 0;
}
