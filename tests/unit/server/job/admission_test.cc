#include "server/job/admission.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;

class AdmissionTest : public ::testing::Test {
 protected:
  static v1::TrainingSpec Small() { return ServerUnderTest::Request(10).spec(); }

  absl::StatusOr<Admitted> Try(const std::function<void(v1::TrainingSpec*)>& edit) {
    v1::TrainingSpec spec = Small();
    edit(&spec);
    return Admit(spec, server_.backend(), server_.catalog());
  }

  ServerUnderTest server_;
};

TEST_F(AdmissionTest, ResolvesWhatTheHeadersTell) {
  const Admitted admitted = Try([](auto* spec) {
                              spec->clear_max_steps();
                              spec->set_epochs(3);
                              spec->set_ranks(2);
                            }).value();
  EXPECT_EQ(admitted.devices.ranks, 2);
  EXPECT_EQ(admitted.resolved.ranks(), 2);
  EXPECT_EQ(admitted.resolved.global_batch_size(), 32);
  EXPECT_EQ(admitted.resolved.steps_per_epoch(), 20);
  EXPECT_EQ(admitted.resolved.total_steps(), 60);
  EXPECT_EQ(admitted.resolved.train_images(), 640);
  EXPECT_EQ(admitted.resolved.test_images(), 100);
}

TEST_F(AdmissionTest, KnowsTheFormOfAllWeightsButThoseThatTheLabelsDecide) {
  const Admitted admitted = Try([](auto*) {}).value();
  std::vector<std::string> open;
  for (const WeightForm& form : admitted.weights) {
    if (!form.shape) open.push_back(form.name);
  }
  EXPECT_EQ(admitted.weights.size(), 10u);
  EXPECT_EQ(admitted.weights[0].name, "conv1.weight");
  EXPECT_EQ(admitted.weights[0].shape, (std::vector<int64_t>{6, 1, 5, 5}));
  EXPECT_THAT(open, ::testing::ElementsAre("fc3.weight", "fc3.bias"));
}

TEST_F(AdmissionTest, RefusesWithTheRightStatusAndTheFieldsName) {
  struct Case {
    absl::StatusCode code;
    std::string words;
    std::function<void(v1::TrainingSpec*)> edit;
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::vector<Case> cases = {
      {absl::StatusCode::kNotFound, "spec.dataset", [](auto* s) { s->set_dataset("nothing"); }},
      {kInvalid, "spec.dataset", [](auto* s) { s->set_dataset("../x"); }},
      {kInvalid, "spec.dataset", [](auto* s) { s->set_dataset("/etc"); }},
      {kInvalid, "spec.dataset", [](auto* s) { s->set_dataset(".."); }},
      {kInvalid, "spec.dataset", [](auto* s) { s->set_dataset(std::string("small\0x", 7)); }},
      {kInvalid, "spec.dataset", [](auto* s) { s->set_dataset(std::string(10000, 'a')); }},
      {absl::StatusCode::kFailedPrecondition, "train-images-idx3-ubyte", [](auto* s) { s->set_dataset("broken"); }},
      {kInvalid, "spec.net", [](auto* s) { s->set_dataset("tiny-images"); }},
      {kInvalid, "spec.ranks = 3: must be at most 2", [](auto* s) { s->set_ranks(3); }},
      {kInvalid, "spec.device_ids", [](auto* s) { s->add_device_ids(7); }},
      {kInvalid, "spec.batch_size = 641: must be 1 to 640", [](auto* s) { s->set_batch_size(641); }},
      {kInvalid, "spec.batch_size = 2147483647", [](auto* s) { s->set_batch_size(2147483647); }},
      {kInvalid, "spec.global_batch_size = 33",
       [](auto* s) {
         s->set_ranks(2);
         s->clear_batch_size();
         s->set_global_batch_size(33);
       }},
      {kInvalid, "spec.epochs",
       [](auto* s) {
         s->clear_max_steps();
         s->set_epochs(0);
       }},
      {kInvalid, "spec.priority = 1001: must be -1000 to 1000", [](auto* s) { s->set_priority(1001); }},
      {kInvalid, "spec.checkpoints.keep_last = 0: must be 1 to 1000",
       [](auto* s) { s->mutable_checkpoints()->set_keep_last(0); }},
      {kInvalid, "spec.checkpoints.keep_last = 1001", [](auto* s) { s->mutable_checkpoints()->set_keep_last(1001); }},
      {kInvalid, "spec.precision = PRECISION_TF32", [](auto* s) { s->set_precision(v1::PRECISION_TF32); }},
      {kInvalid, "spec.engine = fused: must be layered", [](auto* s) { s->set_engine(v1::ENGINE_FUSED); }},
  };
  for (const Case& bad : cases) {
    const absl::Status status = Try(bad.edit).status();
    EXPECT_EQ(status.code(), bad.code) << bad.words << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.words));
  }
}

TEST_F(AdmissionTest, AnEarlierServersJobKeepsItsRanksAndItsData) {
  v1::Job job;
  *job.mutable_spec() = Small();
  job.mutable_spec()->set_ranks(0);
  *job.mutable_resolved() = Try([](auto* spec) { spec->set_ranks(1); })->resolved;
  const auto readmit = [&] { return Readmit(job, server_.backend(), server_.catalog()); };
  const Admitted same = readmit();
  EXPECT_TRUE(same.error.ok()) << same.error;
  EXPECT_EQ(same.devices.ranks, 1);  // of two devices, which ranks 0 would take

  job.mutable_resolved()->set_train_images(641);
  EXPECT_THAT(std::string(readmit().error.message()), HasSubstr("640 training images; it had 641"));
  job.mutable_resolved()->set_train_images(640);
  job.mutable_resolved()->set_learning_rate(0.5);
  EXPECT_EQ(readmit().resolved.learning_rate(), 0.5);  // a default of then
  EXPECT_TRUE(readmit().error.ok()) << readmit().error;
  job.mutable_resolved()->set_total_steps(11);
  EXPECT_TRUE(absl::IsFailedPrecondition(readmit().error));
  job.mutable_resolved()->set_ranks(3);
  EXPECT_THAT(std::string(readmit().error.message()), HasSubstr("spec.ranks = 3: must be at most 2"));
  job.mutable_resolved()->set_ranks(1);
  job.mutable_spec()->set_dataset("gone");
  EXPECT_TRUE(absl::IsNotFound(readmit().error));
}

}  // namespace
}  // namespace lenet
