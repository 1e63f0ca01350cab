#include "tests/support/fake_backend.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"

namespace lenet {

class FakeEngine : public Engine {
 public:
  FakeEngine(FakeGroup* group, int rank, const EngineOptions& options)
      : group_(group),
        rank_(rank),
        options_(options),
        thread_(std::this_thread::get_id()),
        parameters_(static_cast<size_t>(options.net->flat_size())),
        state_(static_cast<size_t>(StateSlots(options.optimizer)) * parameters_.size()) {
    ++group_->engines_;
  }
  ~FakeEngine() override { --group_->engines_; }

  absl::string_view name() const override { return "fake"; }

  absl::Status WriteParameters(std::span<const float> flat) override { return Copy(flat, parameters_); }
  absl::Status ReadParameters(std::span<float> flat) override {
    LENET_RETURN_IF_ERROR(group_->Play(FakeCall::kReadParameters, rank_, 0));
    return Copy(parameters_, flat);
  }
  absl::Status WriteState(std::span<const float> state) override { return Copy(state, state_); }
  absl::Status ReadState(std::span<float> state) override { return Copy(state_, state); }

  absl::Status Broadcast() override {
    LENET_RETURN_IF_ERROR(CheckIdle("Broadcast"));
    LENET_RETURN_IF_ERROR(group_->Play(FakeCall::kBroadcast, rank_, 0));
    LENET_RETURN_IF_ERROR(comm()->Broadcast(parameters_.data(), static_cast<int64_t>(parameters_.size()), nullptr));
    return comm()->Broadcast(state_.data(), static_cast<int64_t>(state_.size()), nullptr);
  }

  absl::Status WarmUp() override {
    LENET_RETURN_IF_ERROR(CheckIdle("WarmUp"));
    LENET_RETURN_IF_ERROR(group_->Play(FakeCall::kWarmUp, rank_, 0));
    LENET_RETURN_IF_ERROR(group_->Pause(group_->script_.warm_up_time));
    warm_ = true;
    return group_->comm_.Barrier();
  }

  absl::Status Enqueue(const StepChunk& chunk) override {
    LENET_RETURN_IF_ERROR(CheckThread("Enqueue"));
    const size_t steps = chunk.learning_rates.size();
    if (!warm_ || steps < 1 || steps > kMaxChunkSteps || chunks_.size() >= kMaxChunksInFlight ||
        chunk.indices.size() != steps * static_cast<size_t>(options_.batch_size)) {
      return Misused(absl::StrCat("Enqueue of ", steps, " steps, ", chunk.indices.size(), " indices, with ",
                                  chunks_.size(), " chunks in flight"));
    }
    if (next_step_ && *next_step_ != chunk.first_step) {
      return Misused(absl::StrCat("Enqueue of step ", chunk.first_step, " after step ", *next_step_ - 1));
    }
    for (const uint32_t index : chunk.indices) {
      if (index >= options_.dataset->train.count) return Misused(absl::StrCat("index ", index));
    }
    next_step_ = chunk.first_step + static_cast<int64_t>(steps);
    if (group_->script_.on_enqueue) group_->script_.on_enqueue(rank_, chunk);
    chunks_.push_back({chunk.first_step,
                       {chunk.indices.begin(), chunk.indices.end()},
                       {chunk.learning_rates.begin(), chunk.learning_rates.end()}});
    return absl::OkStatus();
  }

  absl::Status Wait(std::span<float> losses) override {
    LENET_RETURN_IF_ERROR(CheckThread("Wait"));
    if (chunks_.empty() || chunks_.front().rates.size() != losses.size()) return Misused("Wait for another chunk");
    const Queued chunk = std::move(chunks_.front());
    chunks_.pop_front();
    const size_t batch = static_cast<size_t>(options_.batch_size);
    for (size_t i = 0; i < losses.size(); ++i) {
      const auto indices = std::span(chunk.indices).subspan(i * batch, batch);
      LENET_RETURN_IF_ERROR(Step(chunk.first_step + static_cast<int64_t>(i), indices, chunk.rates[i], &losses[i]));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<EvalResult> Evaluate(SplitKind split, int64_t begin, int64_t end) override {
    LENET_RETURN_IF_ERROR(CheckIdle("Evaluate"));
    const Split& images = split == SplitKind::kTrain ? options_.dataset->train : options_.dataset->test;
    if (begin < 0 || end < begin || end > images.count) return Misused(absl::StrCat("Evaluate ", begin, " to ", end));
    LENET_RETURN_IF_ERROR(group_->Play(FakeCall::kEvaluate, rank_, 0));
    LENET_RETURN_IF_ERROR(group_->Pause(group_->script_.evaluate_time));
    if (group_->script_.on_evaluate) group_->script_.on_evaluate(rank_, begin, end);
    EvalResult result;
    const FakeScript& script = group_->script_;
    const double share = script.accuracy ? script.accuracy(next_step_.value_or(script.first_step)) : 0;
    for (int64_t i = begin; i < end; ++i) {
      ++result.count;
      const bool correct =
          script.accuracy ? static_cast<double>(i) < share * static_cast<double>(images.count) : i % 2 == 0;
      if (correct) ++result.correct;
      result.loss_sum += 0.5;
    }
    return result;
  }

  absl::Status AllReduceSum(std::span<float> values) override {
    LENET_RETURN_IF_ERROR(CheckIdle("AllReduceSum"));
    LENET_RETURN_IF_ERROR(group_->Play(FakeCall::kAllReduce, rank_, 0));
    return comm()->AllReduceSum(values.data(), static_cast<int64_t>(values.size()), nullptr);
  }

  absl::Status Gradient(std::span<const uint32_t>, std::span<float>, std::span<float>, std::span<float>) override {
    return absl::UnimplementedError("the fake engine has no gradient");
  }

 private:
  struct Queued {
    int64_t first_step;
    std::vector<uint32_t> indices;
    std::vector<float> rates;
  };

  Communicator* comm() { return group_->comm_.communicator(rank_); }

  static absl::Status Misused(absl::string_view what) {
    return absl::InternalError(absl::StrCat("the engine was misused: ", what));
  }

  absl::Status CheckThread(absl::string_view call) {
    return std::this_thread::get_id() == thread_ ? absl::OkStatus() : Misused(absl::StrCat(call, ": another thread"));
  }

  absl::Status CheckIdle(absl::string_view call) {
    if (!chunks_.empty()) return Misused(absl::StrCat(call, " with a chunk in flight"));
    return CheckThread(call);
  }

  absl::Status Copy(std::span<const float> from, std::span<float> to) {
    LENET_RETURN_IF_ERROR(CheckIdle("a copy"));
    if (from.size() != to.size()) return absl::InvalidArgumentError("buffer size");
    std::copy(from.begin(), from.end(), to.begin());
    return absl::OkStatus();
  }

  absl::Status Step(int64_t step, std::span<const uint32_t> indices, float rate, float* loss) {
    bool corrupt = false;
    uint32_t hash = 2166136261;
    for (const uint32_t index : indices) hash = (hash ^ index) * 16777619;
    float mean = static_cast<float>(hash >> 8) / static_cast<float>(1 << 24);
    *loss = 3 * mean;
    LENET_RETURN_IF_ERROR(group_->Pause(group_->script_.step_time));
    LENET_RETURN_IF_ERROR(group_->Play(FakeCall::kStep, rank_, step, loss, &corrupt));
    LENET_RETURN_IF_ERROR(comm()->AllReduceSum(&mean, 1, nullptr));
    mean /= static_cast<float>(group_->size());
    for (const Parameter& parameter : options_.net->parameters()) {
      float& value = parameters_[static_cast<size_t>(parameter.offset)];
      value += rate * (mean - value);
      if (!state_.empty()) state_[static_cast<size_t>(parameter.offset)] += mean;
    }
    if (corrupt) parameters_[0] += 1;
    return absl::OkStatus();
  }

  FakeGroup* const group_;
  const int rank_;
  const EngineOptions options_;
  const std::thread::id thread_;
  std::vector<float> parameters_;
  std::vector<float> state_;
  std::deque<Queued> chunks_;
  std::optional<int64_t> next_step_;
  bool warm_ = false;
};

FakeGroup::FakeGroup(std::vector<int> device_ids, FakeScript script)
    : device_ids_(std::move(device_ids)), script_(std::move(script)), comm_(static_cast<int>(device_ids_.size())) {}

namespace {

std::vector<int> FirstDevices(int count) {
  std::vector<int> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

}  // namespace

FakeGroup::FakeGroup(int ranks, FakeScript script) : FakeGroup(FirstDevices(ranks), std::move(script)) {}

absl::StatusOr<std::unique_ptr<Engine>> FakeGroup::NewEngine(int rank, const EngineOptions& options) {
  if (aborted()) return Hang();
  LENET_RETURN_IF_ERROR(Play(FakeCall::kNewEngine, rank, 0));
  return std::make_unique<FakeEngine>(this, rank, options);
}

void FakeGroup::Abort(absl::string_view reason) {
  {
    MutexLock lock(&mutex_);
    if (!abort_reason_) abort_reason_ = std::string(reason);
    abort_changed_.SignalAll();
  }
  comm_.Abort(reason);
}

absl::Status FakeGroup::Play(FakeCall call, int rank, int64_t step, float* loss, bool* corrupt) {
  for (const FakeFault& fault : script_.faults) {
    if (fault.call != call || fault.rank != rank || (call == FakeCall::kStep && fault.step != step)) continue;
    switch (fault.kind) {
      case FakeFault::Kind::kError:
        return fault.status;
      case FakeFault::Kind::kHang:
        if (script_.on_hang) script_.on_hang();
        return Hang();
      case FakeFault::Kind::kLoss:
        if (loss != nullptr) *loss = fault.loss;
        break;
      case FakeFault::Kind::kCorrupt:
        if (corrupt != nullptr) *corrupt = true;
        break;
    }
  }
  return absl::OkStatus();
}

absl::Status FakeGroup::Pause(std::chrono::microseconds time) {
  if (time.count() == 0) return absl::OkStatus();
  const auto deadline = std::chrono::steady_clock::now() + time;
  MutexLock lock(&mutex_);
  while (!abort_reason_) {
    if (!abort_changed_.WaitUntil(&mutex_, deadline)) return absl::OkStatus();
  }
  return absl::AbortedError(*abort_reason_);
}

absl::Status FakeGroup::Hang() {
  MutexLock lock(&mutex_);
  while (!abort_reason_) abort_changed_.Wait(&mutex_);
  return absl::AbortedError(*abort_reason_);
}

}  // namespace lenet
