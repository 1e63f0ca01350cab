// The contract of backend.h, call by call.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/backend_under_test.h"
#include "tests/support/rank_run.h"
#include "tests/support/rank_threads.h"
#include "tests/support/reference_net.h"
#include "tests/support/synthetic_data.h"
#include "trainer/base/status.h"
#include "trainer/nn/init.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kBatch = 8;
constexpr OptimizerSpec kMomentum = {.momentum = 0.9};

class EngineTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    LENET_USE_BACKEND(backend_, GetParam());
    dataset_ = NoiseDataset({1, 12, 12}, /*classes=*/5, /*train_count=*/40, /*test_count=*/101);
    absl::StatusOr<Net> net =
        Net::Create({.name = "small",
                     .input = {1, 12, 12},
                     .classes = 5,
                     .layers = {{.kind = LayerKind::kConv2D, .name = "conv", .outputs = 3, .kernel = 5},
                                {.kind = LayerKind::kRelu},
                                {.kind = LayerKind::kMaxPool2D, .kernel = 2, .stride = 2},
                                {.kind = LayerKind::kFlatten},
                                {.kind = LayerKind::kLinear, .name = "fc", .outputs = 5}}});
    ASSERT_TRUE(net.ok()) << net.status();
    net_ = std::make_unique<Net>(*std::move(net));
    parameters_.resize(net_->flat_size());
    Initialize(*net_, {}, /*seed=*/9, parameters_);
    options_ = {.net = net_.get(), .dataset = dataset_, .batch_size = kBatch, .optimizer = kMomentum};
  }

  // One rank's group and engine, with parameters_.
  void MakeEngine() {
    absl::StatusOr<std::unique_ptr<RankGroup>> group = NewGroupOf(backend_, 1);
    ASSERT_TRUE(group.ok()) << group.status();
    group_ = *std::move(group);
    absl::StatusOr<std::unique_ptr<Engine>> engine = group_->NewEngine(0, options_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    ASSERT_TRUE(engine_->WriteParameters(parameters_).ok());
  }

  std::vector<float> Parameters() {
    std::vector<float> flat(net_->flat_size());
    const absl::Status status = engine_->ReadParameters(flat);
    EXPECT_TRUE(status.ok()) << status;
    return flat;
  }

  std::vector<float> State() {
    std::vector<float> state(net_->flat_size());
    const absl::Status status = engine_->ReadState(state);
    EXPECT_TRUE(status.ok()) << status;
    return state;
  }

  absl::Status Enqueue(int steps, float rate = 0.1f) {
    std::vector<uint32_t> indices(steps * kBatch);
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<uint32_t>(i % 40);
    const std::vector<float> rates(steps, rate);
    return engine_->Enqueue({.indices = indices, .learning_rates = rates});
  }

  absl::Status NewEngineStatus(const EngineOptions& options) {
    absl::StatusOr<std::unique_ptr<RankGroup>> group = NewGroupOf(backend_, 1);
    return group.ok() ? (*group)->NewEngine(0, options).status() : group.status();
  }

  Backend* backend_ = nullptr;
  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<Net> net_;
  std::vector<float> parameters_;
  EngineOptions options_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineTest, BackendDescribesItsDevices) {
  EXPECT_EQ(std::string(backend_->name()), GetParam());
  ASSERT_FALSE(backend_->devices().empty());
  for (size_t i = 0; i < backend_->devices().size(); ++i) {
    const DeviceInfo& device = backend_->devices()[i];
    EXPECT_EQ(device.id, static_cast<int>(i));
    EXPECT_FALSE(device.name.empty());
    EXPECT_THAT(device.kind, HasSubstr(GetParam() + " "));
  }
  EXPECT_FALSE(backend_->versions().empty());
  EXPECT_FALSE(backend_->built_with().empty());
  for (const auto& built : backend_->built_with()) {
    const auto same_name = [&](const auto& found) { return found.first == built.first; };
    EXPECT_TRUE(std::ranges::any_of(backend_->versions(), same_name)) << built.first;
  }
  EXPECT_TRUE(backend_->supports(Precision::kFp32));
}

TEST_P(EngineTest, InspectTellsWhatADeviceHasFree) {
  const int count = static_cast<int>(backend_->devices().size());
  for (const DeviceInfo& device : backend_->devices()) {
    const absl::StatusOr<DeviceStatus> status = backend_->Inspect(device.id);
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_LE(status->free_bytes, device.memory_bytes);
    EXPECT_EQ(status->free_bytes > 0, device.memory_bytes > 0);
    for (const int peer : status->reaches) EXPECT_TRUE(peer >= 0 && peer < count && peer != device.id) << peer;
  }
  for (const int id : {-1, count}) {
    EXPECT_EQ(backend_->Inspect(id).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(EngineTest, GroupsOfDevicesThatDoNotExistAreRefused) {
  const int count = static_cast<int>(backend_->devices().size());
  for (const std::vector<int>& ids : {std::vector<int>{}, std::vector<int>{-1}, std::vector<int>{count}}) {
    EXPECT_EQ(backend_->NewGroup(ids).status().code(), absl::StatusCode::kInvalidArgument);
  }
  const absl::StatusOr<std::unique_ptr<RankGroup>> twice = backend_->NewGroup(std::vector<int>{0, 0});
  if (backend_->oversubscribable()) {
    ASSERT_TRUE(twice.ok()) << twice.status();
    EXPECT_EQ((*twice)->size(), 2);
    EXPECT_FALSE((*twice)->aborted());
  } else {
    EXPECT_EQ(twice.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(EngineTest, OptionsThatDoNotFitAreRefused) {
  EngineOptions bad = options_;
  bad.batch_size = 0;
  EXPECT_EQ(NewEngineStatus(bad).code(), absl::StatusCode::kInvalidArgument);
  bad.batch_size = 41;
  EXPECT_EQ(NewEngineStatus(bad).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(NewEngineStatus(bad).message()), HasSubstr("41"));
  bad = options_;
  bad.dataset = NoiseDataset({1, 12, 13}, 5, 40, 10);
  EXPECT_EQ(NewEngineStatus(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = options_;
  bad.clip_norm = -1;
  EXPECT_EQ(NewEngineStatus(bad).code(), absl::StatusCode::kInvalidArgument);
  if (!backend_->supports(Precision::kTf32)) {
    bad = options_;
    bad.precision = Precision::kTf32;
    EXPECT_EQ(NewEngineStatus(bad).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(NewEngineStatus(options_).ok());
}

TEST_P(EngineTest, ParametersAndStateComeBackAsWritten) {
  MakeEngine();
  EXPECT_FALSE(engine_->name().empty());
  EXPECT_EQ(Parameters(), parameters_);
  EXPECT_THAT(State(), Each(0.0f));
  std::vector<float> state(net_->flat_size());
  std::iota(state.begin(), state.end(), 1.0f);
  ASSERT_TRUE(engine_->WriteState(state).ok());
  EXPECT_EQ(State(), state);
}

TEST_P(EngineTest, CallsOfTheWrongSizeAreRefusedAndChangeNothing) {
  MakeEngine();
  std::vector<float> wrong(net_->flat_size() + 1);
  std::vector<float> right(net_->flat_size());
  std::vector<uint32_t> indices(kBatch, 0);
  const std::vector<float> rates(Engine::kMaxChunkSteps + 1, 0.1f);
  std::vector<absl::Status> statuses = {
      engine_->WriteParameters(wrong),
      engine_->ReadParameters(wrong),
      engine_->WriteState(wrong),
      engine_->ReadState(wrong),
      engine_->Enqueue({.indices = {}, .learning_rates = {}}),
      engine_->Enqueue({.indices = std::span(indices).first(kBatch - 1), .learning_rates = std::span(rates).first(1)}),
      engine_->Enqueue({.indices = std::vector<uint32_t>(rates.size() * kBatch), .learning_rates = rates}),
      engine_->Gradient(std::span(indices).first(1), {}, {}, right),
      engine_->Gradient(indices, std::span(right).first(3), {}, {}),
      engine_->Gradient(indices, {}, std::span(right).first(3), {}),
      engine_->Gradient(indices, {}, {}, wrong),
      engine_->Evaluate(SplitKind::kTest, -1, 5).status(),
      engine_->Evaluate(SplitKind::kTest, 5, 4).status(),
      engine_->Evaluate(SplitKind::kTest, 0, 102).status(),
  };
  indices[3] = 40;  // one past the last
  statuses.push_back(engine_->Enqueue({.indices = indices, .learning_rates = std::span(rates).first(1)}));
  statuses.push_back(engine_->Gradient(indices, {}, {}, right));
  for (size_t i = 0; i < statuses.size(); ++i) {
    EXPECT_EQ(statuses[i].code(), absl::StatusCode::kInvalidArgument) << "call " << i << ": " << statuses[i];
  }
  EXPECT_EQ(Parameters(), parameters_);
  std::vector<float> loss(1);
  ASSERT_TRUE(Enqueue(1).ok());
  EXPECT_TRUE(engine_->Wait(loss).ok());
}

TEST_P(EngineTest, CallsOutOfTurnAreRefusedAndChangeNothing) {
  MakeEngine();
  std::vector<float> losses(1);
  EXPECT_EQ(engine_->Wait(losses).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Enqueue(1).ok());
  ASSERT_TRUE(Enqueue(1).ok());
  std::vector<float> flat(net_->flat_size());
  const std::vector<uint32_t> indices(kBatch, 0);
  for (const absl::Status& status :
       {Enqueue(1), engine_->WriteParameters(flat), engine_->ReadParameters(flat), engine_->WriteState(flat),
        engine_->ReadState(flat), engine_->Broadcast(), engine_->WarmUp(), engine_->Gradient(indices, {}, {}, flat),
        engine_->Evaluate(SplitKind::kTest, 0, 1).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("2 chunks are in flight"));
  }
  EXPECT_TRUE(engine_->Wait(losses).ok());
  EXPECT_TRUE(engine_->Wait(losses).ok());
  EXPECT_TRUE(engine_->ReadParameters(flat).ok());
}

TEST_P(EngineTest, WarmUpChangesNeitherParametersNorState) {
  MakeEngine();
  std::vector<float> state(net_->flat_size(), 0.0f);
  state[0] = 3;
  ASSERT_TRUE(engine_->WriteState(state).ok());
  const absl::Status status = engine_->WarmUp();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Parameters(), parameters_);
  EXPECT_EQ(State(), state);
}

TEST_P(EngineTest, GradientChangesNothingAndIsTheStepOfPlainSgd) {
  options_.optimizer = {};
  MakeEngine();
  std::vector<uint32_t> indices(kBatch);
  std::iota(indices.begin(), indices.end(), 0u);
  std::vector<float> gradient(net_->flat_size());
  std::vector<float> losses(kBatch);
  ASSERT_TRUE(engine_->Gradient(indices, {}, losses, gradient).ok());
  EXPECT_EQ(Parameters(), parameters_);
  ASSERT_TRUE(engine_->WarmUp().ok());
  ASSERT_TRUE(Enqueue(1, 0.5f).ok());
  std::vector<float> step_loss(1);
  ASSERT_TRUE(engine_->Wait(step_loss).ok());
  EXPECT_NEAR(step_loss[0], std::accumulate(losses.begin(), losses.end(), 0.0) / kBatch, 1e-6);
  const std::vector<float> after = Parameters();
  for (size_t i = 0; i < after.size(); ++i) {
    ASSERT_NEAR(after[i], parameters_[i] - 0.5f * gradient[i], 1e-6) << "at " << i;
  }
}

TEST_P(EngineTest, TwoChunksInFlightComeBackInOrder) {
  MakeEngine();
  ASSERT_TRUE(engine_->WarmUp().ok());
  std::vector<float> apart;
  for (int i = 0; i < 4; ++i) {
    std::vector<float> losses(3);
    ASSERT_TRUE(Enqueue(3).ok());
    ASSERT_TRUE(engine_->Wait(losses).ok());
    apart.insert(apart.end(), losses.begin(), losses.end());
  }
  const std::vector<float> parameters = Parameters();
  ASSERT_TRUE(engine_->WriteParameters(parameters_).ok());
  ASSERT_TRUE(engine_->WriteState(std::vector<float>(net_->flat_size())).ok());
  std::vector<float> together(12);
  ASSERT_TRUE(Enqueue(3).ok());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(i == 3 || Enqueue(3).ok());
    ASSERT_TRUE(engine_->Wait(std::span(together).subspan(i * 3, 3)).ok());
  }
  EXPECT_EQ(together, apart);
  EXPECT_EQ(Parameters(), parameters);
}

TEST_P(EngineTest, EvaluationAgreesWithTheReferenceNet) {
  MakeEngine();
  std::vector<uint32_t> all(101);
  std::iota(all.begin(), all.end(), 0u);
  const std::vector<double> exact(parameters_.begin(), parameters_.end());
  const ReferenceOutput reference = RunReferenceNet(*net_, exact, dataset_->test, all);
  for (const auto& [begin, end] : {std::pair{0, 101}, {0, 1}, {17, 33}, {50, 50}, {99, 101}}) {
    SCOPED_TRACE(begin);
    const absl::StatusOr<EvalResult> result = engine_->Evaluate(SplitKind::kTest, begin, end);
    ASSERT_TRUE(result.ok()) << result.status();
    int64_t correct = 0;
    double loss = 0;
    for (int i = begin; i < end; ++i) {
      const auto logits = reference.logits.begin() + i * 5;
      correct += std::max_element(logits, logits + 5) - logits == dataset_->test.labels[i];
      loss += reference.losses[i];
    }
    EXPECT_EQ(result->count, end - begin);
    EXPECT_EQ(result->correct, correct);
    EXPECT_NEAR(result->loss_sum, loss, 1e-5 * loss);
  }
  const absl::StatusOr<EvalResult> train = engine_->Evaluate(SplitKind::kTrain, 0, 40);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ(train->count, 40);
}

TEST_P(EngineTest, TheFirstOfEqualLogitsCounts) {
  parameters_.assign(parameters_.size(), 0.0f);
  MakeEngine();
  const absl::StatusOr<EvalResult> result = engine_->Evaluate(SplitKind::kTest, 0, 101);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->correct, std::count(dataset_->test.labels.begin(), dataset_->test.labels.end(), 0));
  EXPECT_NEAR(result->loss_sum, 101 * std::log(5.0), 1e-3);
}

TEST_P(EngineTest, ALossThatIsNotFiniteIsReportedAsItIs) {
  parameters_[net_->parameters()[0].offset] = std::numeric_limits<float>::quiet_NaN();
  MakeEngine();
  ASSERT_TRUE(Enqueue(2).ok());
  std::vector<float> losses(2);
  const absl::Status status = engine_->Wait(losses);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(std::isnan(losses[0]));
  EXPECT_TRUE(std::isnan(losses[1]));
}

TEST_P(EngineTest, OneGroupServesOneEngineAfterTheOther) {
  MakeEngine();
  ASSERT_TRUE(engine_->WarmUp().ok());
  std::vector<float> losses(2);
  ASSERT_TRUE(Enqueue(2).ok());
  ASSERT_TRUE(engine_->Wait(losses).ok());
  const std::vector<float> first = losses;
  for (int i = 0; i < 3; ++i) {
    engine_.reset();
    absl::StatusOr<std::unique_ptr<Engine>> engine = group_->NewEngine(0, options_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    ASSERT_TRUE(engine_->WriteParameters(parameters_).ok());
    ASSERT_TRUE(engine_->WarmUp().ok());
    ASSERT_TRUE(Enqueue(2).ok());
    ASSERT_TRUE(engine_->Wait(losses).ok());
    EXPECT_EQ(losses, first);
  }
}

TEST_P(EngineTest, AfterAnAbortEveryCollectiveFailsWithItsReason) {
  MakeEngine();
  ASSERT_TRUE(Enqueue(1).ok());
  group_->Abort("the other rank failed");
  group_->Abort("later");
  EXPECT_TRUE(group_->aborted());
  std::vector<float> loss(1);
  EXPECT_EQ(engine_->Wait(loss).code(), absl::StatusCode::kAborted);
  for (const absl::Status& status : {engine_->WarmUp(), engine_->Broadcast()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the other rank failed"));
  }
}

// Rank 1 never steps; rank 0 must not wait for it for ever.
TEST_P(EngineTest, AbortFreesARankThatWaitsForAnother) {
  if (!backend_->oversubscribable() && backend_->devices().size() < 2) GTEST_SKIP() << "needs 2 devices";
  absl::StatusOr<std::unique_ptr<RankGroup>> group = NewGroupOf(backend_, 2);
  ASSERT_TRUE(group.ok()) << group.status();
  const absl::Status status = RunRanks(2, [&](int rank) -> absl::Status {
    LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, (*group)->NewEngine(rank, options_));
    LENET_RETURN_IF_ERROR(engine->WriteParameters(parameters_));
    LENET_RETURN_IF_ERROR(engine->Broadcast());
    LENET_RETURN_IF_ERROR(engine->WarmUp());
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      (*group)->Abort("rank 1 gave up");
      return absl::OkStatus();
    }
    const std::vector<uint32_t> indices(kBatch, 1);
    const std::vector<float> rates(1, 0.1f);
    LENET_RETURN_IF_ERROR(engine->Enqueue({.indices = indices, .learning_rates = rates}));
    std::vector<float> loss(1);
    return engine->Wait(loss);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 gave up"));
}

INSTANTIATE_TEST_SUITE_P(Backend, EngineTest, ::testing::Values(LENET_TEST_BACKEND),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lenet
