#include "server/selftest.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/selftest_machine.h"
#include "trainer/backend/backend.h"
#include "trainer/base/mutex.h"
#include "trainer/base/status.h"
#include "trainer/nn/net.h"
#include "trainer/train/safetensors.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLeastDeviceMemory = 1024 * kMiB;  // contexts, communicator, data set and a job
constexpr double kValueBound = 1e-5;                 // relative 2-norms, as of float32 results
constexpr double kStepsBound = 1e-4;
constexpr char kReferenceSteps[] = "nesterov";

double Seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; }

// Runs body(rank) on a thread for each rank of the group. The group is aborted at the first error, and when the time is
// up; the first error is given.
absl::Status RunRanks(RankGroup* group, std::chrono::milliseconds timeout,
                      const std::function<absl::Status(int rank)>& body) {
  Mutex mutex;
  CondVar changed;
  int running = group->size();
  absl::Status first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group->size(); ++rank) {
    threads.emplace_back([&, rank] {
      const absl::Status status = body(rank);
      if (!status.ok()) group->Abort(status.message());
      MutexLock lock(&mutex);
      if (first.ok() && !status.ok()) first = status;
      --running;
      changed.SignalAll();
    });
  }
  {
    const Clock::time_point deadline = Clock::now() + timeout;
    MutexLock lock(&mutex);
    while (running > 0 && changed.WaitUntil(&mutex, deadline)) {
    }
    if (running > 0 && first.ok()) {
      first = absl::DeadlineExceededError(
          absl::StrCat(running, " of ", group->size(), " ranks did not end within ", Seconds(timeout), " s"));
    }
  }
  if (!first.ok()) group->Abort(first.message());
  for (std::thread& thread : threads) thread.join();
  return first;
}

// What `work` gives, on a thread of its own; or nothing if that takes longer, and then it goes on with what it owns.
template <typename Result>
std::optional<Result> RunWithin(std::chrono::milliseconds timeout, std::function<Result()> work) {
  struct Shared {
    Mutex mutex;
    CondVar changed;
    std::optional<Result> result ABSL_GUARDED_BY(mutex);
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, work = std::move(work)] {
    Result result = work();
    MutexLock lock(&shared->mutex);
    shared->result = std::move(result);
    shared->changed.SignalAll();
  }).detach();
  const Clock::time_point deadline = Clock::now() + timeout;
  MutexLock lock(&shared->mutex);
  while (!shared->result && shared->changed.WaitUntil(&shared->mutex, deadline)) {
  }
  return std::move(shared->result);
}

// Of f32 or f64.
std::vector<double> Values(const Tensor& tensor) {
  const size_t width = tensor.dtype == DType::kF64 ? sizeof(double) : sizeof(float);
  std::vector<double> values(tensor.data.size() / width);
  for (size_t i = 0; i < values.size(); ++i) {
    if (width == sizeof(double)) {
      std::memcpy(&values[i], tensor.data.data() + i * width, width);
    } else {
      float value = 0;
      std::memcpy(&value, tensor.data.data() + i * width, width);
      values[i] = value;
    }
  }
  return values;
}

// What PyTorch computed in float64: see the file's metadata.
class Reference {
 public:
  static absl::StatusOr<std::shared_ptr<Reference>> Read(const fs::path& path) {
    std::shared_ptr<Reference> made(new Reference());
    LENET_ASSIGN_OR_RETURN(made->file_, ReadTensorFile(path));
    LENET_ASSIGN_OR_RETURN(const Tensor* images, made->Find("images", DType::kU8));
    LENET_ASSIGN_OR_RETURN(const Tensor* labels, made->Find("labels", DType::kU8));
    const auto batch = made->file_.metadata.find("batch");
    if (images->shape.size() != 3 || labels->shape != std::vector<int64_t>{images->shape[0]} ||
        batch == made->file_.metadata.end() || !absl::SimpleAtoi(batch->second, &made->batch_) || made->batch_ < 1 ||
        made->batch_ > images->shape[0]) {
      return absl::DataLossError(absl::StrCat("'", path.string(), "' is not what it should be: images, labels, batch"));
    }
    Split split = {.shape = {1, static_cast<int>(images->shape[1]), static_cast<int>(images->shape[2])},
                   .count = images->shape[0]};
    const auto bytes = [](const Tensor& tensor) {
      const auto* data = reinterpret_cast<const uint8_t*>(tensor.data.data());
      return std::vector<uint8_t>(data, data + tensor.data.size());
    };
    split.images = bytes(*images);
    split.labels = bytes(*labels);
    auto dataset = std::make_shared<Dataset>();
    dataset->name = "reference";
    dataset->classes = 10;
    dataset->train = split;
    dataset->test = std::move(split);
    made->dataset_ = std::move(dataset);
    LENET_ASSIGN_OR_RETURN(NetSpec spec, PresetNet("lenet", made->dataset_->train.shape, made->dataset_->classes));
    LENET_ASSIGN_OR_RETURN(Net net, Net::Create(std::move(spec)));
    made->net_ = std::make_unique<Net>(std::move(net));
    return made;
  }

  const Net& net() const { return *net_; }
  const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }
  int batch() const { return batch_; }

  absl::StatusOr<std::vector<float>> Flat(const std::string& prefix) const {
    std::vector<float> flat(static_cast<size_t>(net_->flat_size()));
    for (const Parameter& parameter : net_->parameters()) {
      LENET_ASSIGN_OR_RETURN(const Tensor* tensor, Find(prefix + parameter.name, DType::kF32));
      const std::vector<double> values = Values(*tensor);
      if (static_cast<int64_t>(values.size()) != parameter.size) {
        return absl::DataLossError(absl::StrCat(prefix, parameter.name, " has ", values.size(), " values"));
      }
      std::copy(values.begin(), values.end(), flat.begin() + parameter.offset);
    }
    return flat;
  }

  absl::StatusOr<std::vector<double>> Numbers(const std::string& name) const {
    LENET_ASSIGN_OR_RETURN(const Tensor* tensor, Find(name, DType::kF32));
    return Values(*tensor);
  }

 private:
  Reference() = default;

  // `dtype` kF32 stands for kF64, too.
  absl::StatusOr<const Tensor*> Find(const std::string& name, DType dtype) const {
    const auto found = file_.tensors.find(name);
    if (found == file_.tensors.end()) return absl::DataLossError(absl::StrCat("the reference has no ", name));
    const bool fits = found->second.dtype == dtype || (dtype == DType::kF32 && found->second.dtype == DType::kF64);
    if (!fits) return absl::DataLossError(absl::StrCat("the reference's ", name, " has another type"));
    return &found->second;
  }

  TensorFile file_;
  int batch_ = 0;
  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<Net> net_;
};

// The 2-norm of the difference over that of what was wanted.
template <typename Wanted>
double Difference(std::span<const float> got, const std::vector<Wanted>& wanted) {
  if (got.size() != wanted.size()) return INFINITY;
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += double{wanted[i]} * wanted[i];
  }
  return std::sqrt(difference / norm);
}

absl::Status CheckDifference(absl::string_view what, double difference, double bound) {
  if (difference <= bound) return absl::OkStatus();  // a NaN is not
  return absl::InternalError(
      absl::StrFormat("%s differ from PyTorch's by %.1e of their norm; the bound is %.0e", what, difference, bound));
}

// One rank's forward and backward pass, then the reference's steps, all ranks on parts of its batches.
absl::Status CheckAgainst(const Reference& reference, RankGroup* group, int rank) {
  const int ranks = group->size();
  const int batch = reference.batch() / ranks;
  LENET_ASSIGN_OR_RETURN(const std::vector<float> initial, reference.Flat("init/"));
  LENET_ASSIGN_OR_RETURN(const std::vector<double> losses, reference.Numbers(absl::StrCat(kReferenceSteps, "/losses")));
  LENET_ASSIGN_OR_RETURN(const std::vector<float> final, reference.Flat(absl::StrCat(kReferenceSteps, "/final/")));
  LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                         group->NewEngine(rank, {.net = &reference.net(),
                                                 .dataset = reference.dataset(),
                                                 .batch_size = batch,
                                                 .optimizer = {.momentum = 0.9, .nesterov = true}}));
  LENET_RETURN_IF_ERROR(engine->WriteParameters(initial));
  const int steps = static_cast<int>(losses.size());
  std::vector<uint32_t> indices;
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < batch; ++i) {
      const int64_t image = int64_t{step} * reference.batch() + rank * batch + i;
      indices.push_back(static_cast<uint32_t>(image % reference.dataset()->train.count));
    }
  }
  if (ranks == 1) {
    LENET_ASSIGN_OR_RETURN(const std::vector<double> wanted_logits, reference.Numbers("logits"));
    LENET_ASSIGN_OR_RETURN(const std::vector<float> wanted_gradient, reference.Flat("grad/"));
    std::vector<float> logits(wanted_logits.size());
    std::vector<float> gradient(wanted_gradient.size());
    LENET_RETURN_IF_ERROR(engine->Gradient(std::span(indices).first(batch), logits, {}, gradient));
    LENET_RETURN_IF_ERROR(CheckDifference("logits", Difference(logits, wanted_logits), kValueBound));
    LENET_RETURN_IF_ERROR(CheckDifference("gradients", Difference(gradient, wanted_gradient), kValueBound));
  }
  LENET_RETURN_IF_ERROR(engine->Broadcast());
  LENET_RETURN_IF_ERROR(engine->WarmUp());
  const std::vector<float> rates(losses.size(), 0.05f);
  LENET_RETURN_IF_ERROR(engine->Enqueue({.first_step = 0, .indices = indices, .learning_rates = rates}));
  std::vector<float> got(losses.size());
  LENET_RETURN_IF_ERROR(engine->Wait(got));
  if (ranks == 1) LENET_RETURN_IF_ERROR(CheckDifference("losses", Difference(got, losses), kStepsBound));
  std::vector<float> parameters(initial.size());
  LENET_RETURN_IF_ERROR(engine->ReadParameters(parameters));
  return CheckDifference(absl::StrCat("weights after ", steps, " steps"), Difference(parameters, final), kStepsBound);
}

// Sums whose values are known, which float32 holds exactly.
absl::Status CheckAllReduce(const Reference& reference, RankGroup* group, int rank) {
  LENET_ASSIGN_OR_RETURN(
      const std::unique_ptr<Engine> engine,
      group->NewEngine(rank, {.net = &reference.net(), .dataset = reference.dataset(), .batch_size = 1}));
  std::vector<float> values(static_cast<size_t>(reference.net().flat_size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 4096));
  LENET_RETURN_IF_ERROR(engine->AllReduceSum(values));
  const int factor = group->size() * (group->size() + 1) / 2;
  for (size_t i = 0; i < values.size(); ++i) {
    const float wanted = static_cast<float>(factor * static_cast<int>(i % 4096));
    if (values[i] != wanted) {
      return absl::InternalError(
          absl::StrCat("on rank ", rank, " the sum of value ", i, " is ", values[i], ", not ", wanted));
    }
  }
  return absl::OkStatus();
}

// What a training tells, as far as it is of interest.
class LossObserver : public TrainObserver {
 public:
  void OnRunning(absl::string_view engine) override { engine_ = std::string(engine); }
  void OnSteps(int rank, int64_t /*first_step*/, std::span<const float> losses) override {
    if (rank == 0) last_loss_ = losses.back();
  }
  void OnEpoch(const EpochSummary& /*summary*/) override {}
  void OnEvaluation(const Evaluation& /*evaluation*/) override {}
  void OnCheckpoint(const CheckpointSaved& /*saved*/) override {}
  void OnWarning(absl::string_view /*message*/) override {}
  void OnRanksStuck(const std::string& /*message*/) override {}

  // After the training.
  const std::string& engine() const { return engine_; }
  float last_loss() const { return last_loss_; }

 private:
  std::string engine_;
  float last_loss_ = NAN;
};

class Selftest {
 public:
  Selftest(const SelftestOptions& options, const std::function<void(const Check&)>& done)
      : options_(options), done_(done) {}

  // False if a check hangs.
  bool Run(absl::StatusOr<SelectedBackend> selected) {
    CheckBackend(std::move(selected));
    CheckLibraries();
    CheckDevices();
    Tell(CheckEcc(options_.nvml));
    Tell(needs_nccl() ? CheckSharedMemory() : Check::Skipped("shared memory", "only several GPUs need it"));
    Tell(needs_nccl() ? CheckInterfaces() : Check::Skipped("network", "only several GPUs need it"));
    Tell(CheckDisk(options_.state_dir));
    CheckRanks();
    CheckTraining();
    return !hangs_;
  }

 private:
  void Tell(Check check) { done_(check); }
  int devices() const { return static_cast<int>(backend_->devices().size()); }
  bool needs_nccl() const { return backend_ != nullptr && backend_->name() == "cuda" && devices() > 1; }

  void CheckBackend(absl::StatusOr<SelectedBackend> selected) {
    if (!selected.ok()) return Tell(Check::Failed("backend", selected.status()));
    backend_ = std::move(selected->backend);
    std::string text = absl::StrCat(backend_->name(), ", ", devices(), " devices");
    if (!selected->reason.empty()) absl::StrAppend(&text, "; no GPU: ", selected->reason);
    Tell(Check::Ok("backend", text));
  }

  void CheckLibraries() {
    if (backend_ == nullptr) return Tell(Check::Skipped("libraries", "no backend"));
    const auto running = backend_->versions();
    const auto built = backend_->built_with();
    Check check = Check::Ok("libraries", "");
    std::vector<std::string> parts;
    for (const auto& [name, version] : running) {
      const auto wanted = std::find_if(built.begin(), built.end(), [&n = name](const auto& b) { return b.first == n; });
      if (wanted == built.end() || wanted->second == version) {
        parts.push_back(absl::StrCat(name, " ", version));
        continue;
      }
      parts.push_back(absl::StrCat(name, " ", version, " (built with ", wanted->second, ")"));
      const CheckResult result = CompareVersions(version, wanted->second);
      if (result == CheckResult::kFailed || check.result == CheckResult::kOk) check.result = result;
    }
    check.detail = absl::StrJoin(parts, ", ");
    Tell(check);
  }

  void CheckDevices() {
    if (backend_ == nullptr) return Tell(Check::Skipped("devices", "no backend"));
    for (const DeviceInfo& device : backend_->devices()) {
      const std::string name = absl::StrCat("device ", device.id);
      const absl::StatusOr<DeviceStatus> status = backend_->Inspect(device.id);
      if (!status.ok()) {
        Tell(Check::Failed(name, status.status()));
        continue;
      }
      Check check = Check::Ok(name, absl::StrCat(device.name, " (", device.kind, ")"));
      if (device.memory_bytes > 0) {
        absl::StrAppend(&check.detail, ", ", status->free_bytes / kMiB, " of ", device.memory_bytes / kMiB,
                        " MiB free");
        if (status->free_bytes < kLeastDeviceMemory) {
          check.result = CheckResult::kFailed;
          absl::StrAppend(&check.detail, "; ", kLeastDeviceMemory / kMiB, " are needed");
        } else if (static_cast<int>(status->reaches.size()) < devices() - 1) {
          check.result = CheckResult::kWarning;
          absl::StrAppend(&check.detail, "; reaches the memory of ", status->reaches.size(), " of ", devices() - 1,
                          " others: sums over ranks are slower");
        } else if (devices() > 1) {
          absl::StrAppend(&check.detail, ", reaches the others' memory");
        }
      }
      Tell(check);
    }
  }

  static std::vector<int> Ids(int first, int count) {
    std::vector<int> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  }

  // What `work` tells, given time for the making of a group and for the work itself. Once one hangs no other is begun.
  void TellWithin(const std::string& name, std::chrono::milliseconds timeout, std::function<Check()> work) {
    if (hangs_) return Tell(Check::Skipped(name, "an earlier check hangs"));
    const std::optional<Check> check = RunWithin<Check>(timeout + options_.grace, std::move(work));
    if (check) return Tell(*check);
    hangs_ = true;
    Tell({name, CheckResult::kFailed,
          absl::StrCat("hangs: neither ended nor heeded an abort within ", Seconds(timeout + options_.grace), " s")});
  }

  void CheckOnGroup(const std::string& name, std::vector<int> ids,
                    absl::Status (*check)(const Reference&, RankGroup*, int), const std::string& detail) {
    // What outlives this object if it hangs.
    const auto work = [=, backend = backend_, reference = reference_, timeout = options_.timeout]() -> Check {
      const auto run = [&]() -> absl::Status {
        LENET_ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> group, backend->NewGroup(ids));
        return RunRanks(group.get(), timeout, [&](int rank) { return check(*reference, group.get(), rank); });
      };
      const absl::Status status = run();
      return status.ok() ? Check::Ok(name, detail) : Check::Failed(name, status);
    };
    TellWithin(name, options_.timeout, work);
  }

  // The largest number of devices that the reference's batch can be divided among.
  int Parts() const {
    int parts = std::min(devices(), reference_->batch());
    while (reference_->batch() % parts != 0) --parts;
    return parts;
  }

  void CheckRanks() {
    if (backend_ == nullptr) return Tell(Check::Skipped("reference", "no backend"));
    absl::StatusOr<std::shared_ptr<Reference>> reference = Reference::Read(options_.reference);
    if (!reference.ok()) return Tell(Check::Failed("reference", reference.status()));
    reference_ = *std::move(reference);
    for (int id = 0; id < devices(); ++id) {
      CheckOnGroup(absl::StrCat("reference on ", id), Ids(id, 1), CheckAgainst,
                   "logits, gradients and weights after some steps are PyTorch's within float32 rounding");
    }
    if (devices() == 1) return Tell(Check::Skipped("all-reduce", "one device"));
    CheckOnGroup("all-reduce", Ids(0, devices()), CheckAllReduce,
                 absl::StrCat("known sums over ", devices(), " ranks"));
    const int parts = Parts();
    const std::string name = absl::StrCat("reference on 0-", parts - 1);
    if (parts == 1) {
      return Tell(Check::Skipped("reference on all",
                                 absl::StrCat("its batch of ", reference_->batch(), " has no equal parts")));
    }
    CheckOnGroup(name, Ids(0, parts), CheckAgainst,
                 absl::StrCat("weights after some steps on ", parts, " ranks are PyTorch's on one"));
  }

  // Over all devices: so many steps as it takes to learn the few images by heart, then as many as there is time for.
  void CheckTraining() {
    if (reference_ == nullptr) return Tell(Check::Skipped("training", "no backend or no reference"));
    const auto work = [backend = backend_, reference = reference_, options = options_, ids = Ids(0, devices())] {
      const absl::StatusOr<std::string> trained = Train(backend.get(), *reference, options, ids);
      return trained.ok() ? Check::Ok("training", *trained) : Check::Failed("training", trained.status());
    };
    TellWithin("training", 2 * options_.timeout + options_.training, work);
  }

  static absl::StatusOr<std::string> Train(Backend* backend, const Reference& reference, const SelftestOptions& options,
                                           const std::vector<int>& ids) {
    constexpr int kSteps = 400;
    constexpr float kMostLoss = 0.1f;
    const int ranks = static_cast<int>(ids.size());
    LENET_ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> group, backend->NewGroup(ids));
    TrainSpec spec = {.dataset = reference.dataset()->name};
    spec.batch_size = std::max<int>(1, static_cast<int>(reference.dataset()->train.count) / (4 * ranks));
    spec.evaluate_every_epochs = 0;
    spec.schedule = {.kind = ScheduleKind::kConstant};
    spec.learning_rate = 0.02;
    const auto run = [&](LossObserver* observer) -> absl::StatusOr<int64_t> {
      LENET_ASSIGN_OR_RETURN(TrainPlan plan, PlanTraining(spec, ranks, *reference.dataset()));
      const StopRequest stop;
      const TrainResult result =
          lenet::Train({.plan = std::move(plan), .dataset = reference.dataset(), .collective_timeout = options.timeout},
                       group.get(), &stop, observer);
      if (!result.failure) return result.steps;
      return Annotate(result.failure->status, absl::StrCat("rank ", result.failure->rank, ", ", result.failure->phase));
    };
    LossObserver observer;
    spec.max_steps = kSteps;
    spec.max_duration = Seconds(options.timeout);
    LENET_ASSIGN_OR_RETURN(const int64_t learned, run(&observer));
    if (learned < kSteps) {
      return absl::DeadlineExceededError(
          absl::StrCat(learned, " of ", kSteps, " steps within ", Seconds(options.timeout), " s"));
    }
    if (!(observer.last_loss() < kMostLoss)) {
      return absl::InternalError(absl::StrFormat("the loss is %g after %d steps; it should be below %g",
                                                 observer.last_loss(), kSteps, kMostLoss));
    }
    const std::string loss = absl::StrFormat("loss %.2g after %d steps", observer.last_loss(), kSteps);
    spec.max_steps.reset();
    spec.epochs = 1'000'000;
    spec.max_duration = Seconds(options.training);
    const Clock::time_point start = Clock::now();
    LENET_ASSIGN_OR_RETURN(const int64_t steps, run(&observer));
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    return absl::StrFormat("%s; %d steps of %d ranks in %.1f s (%s)", loss, steps, ranks, elapsed.count(),
                           observer.engine());
  }

  const SelftestOptions options_;
  const std::function<void(const Check&)>& done_;
  bool hangs_ = false;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Reference> reference_;
};

}  // namespace

Check Check::Ok(std::string name, std::string detail) { return {std::move(name), CheckResult::kOk, std::move(detail)}; }
Check Check::Failed(std::string name, const absl::Status& status) {
  return {std::move(name), CheckResult::kFailed, std::string(status.message())};
}
Check Check::Skipped(std::string name, std::string why) {
  return {std::move(name), CheckResult::kSkipped, std::move(why)};
}

CheckResult CompareVersions(const std::string& running, const std::string& built_with) {
  const auto numbers = [](const std::string& version) {
    std::vector<int> parts;
    for (const absl::string_view part : absl::StrSplit(version, '.')) {
      int number = 0;
      if (!absl::SimpleAtoi(part, &number)) number = -1;
      parts.push_back(number);
    }
    return parts;
  };
  const std::vector<int> now = numbers(running);
  const std::vector<int> then = numbers(built_with);
  if (now.front() != then.front()) return CheckResult::kFailed;
  return now < then ? CheckResult::kWarning : CheckResult::kOk;
}

std::filesystem::path ReferenceFile() {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  fs::path installed = executable.parent_path().parent_path() / "share/lenet/reference.safetensors";
  if (!error && fs::exists(installed, error)) return installed;
  return LENET_REFERENCE_FILE;
}

bool RunSelftest(const SelftestOptions& options, absl::StatusOr<SelectedBackend> selected,
                 const std::function<void(const Check&)>& done) {
  return Selftest(options, done).Run(std::move(selected));
}

}  // namespace lenet
