// What Start asks for beside a spec: equal requests, another job's checkpoint, weights that come with the call.
#include "server/job/start_request.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"
#include "trainer/base/status.h"
#include "trainer/train/safetensors.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class StartRequestTest : public ::testing::Test {
 protected:
  // Of two ranks, with nothing but the dataset and the length given.
  static v1::StartRequest Plain(int64_t max_steps = 20) {
    v1::StartRequest request = ServerUnderTest::Request(max_steps, 2);
    request.mutable_spec()->clear_learning_rate();
    request.mutable_spec()->clear_optimizer();
    return request;
  }

  v1::Job Done(const v1::StartRequest& request) {
    const absl::StatusOr<v1::Job> job = server_.manager().Start(request);
    EXPECT_TRUE(job.ok()) << job.status();
    return server_.AwaitState(job->id(), v1::SUCCEEDED);
  }

  std::string Refusal(const v1::StartRequest& request, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = server_.manager().Start(request).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  // The file of a job's weights, after a change.
  std::string Weights(const std::function<void(TensorFile*)>& change) {
    TensorFile file = ReadTensorFile(source_.checkpoint()).value();
    change(&file);
    const std::filesystem::path path = server_.folder() / "weights.safetensors";
    EXPECT_TRUE(WriteTensorFile(path, file).ok());
    std::ifstream stream(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  }

  ServerUnderTest server_;
  const v1::Job source_ = Done(Plain());
};

TEST_F(StartRequestTest, TheDefaultRateCanBeWrittenOut) {
  v1::StartRequest request = Plain(30);
  request.mutable_resume_from()->set_job_id(source_.id());
  const double rate = source_.resolved().learning_rate();
  request.mutable_spec()->set_learning_rate(rate);
  EXPECT_EQ(Done(request).state(), v1::SUCCEEDED);
  request.mutable_spec()->set_learning_rate(rate * 1.0000001);
  EXPECT_THAT(Refusal(request), StartsWith(absl::StrCat("spec.learning_rate = ", Decimal(rate * 1.0000001),
                                                        ": must be ", Decimal(rate), ", as in job")));
  request.mutable_spec()->clear_learning_rate();
  request.mutable_spec()->set_clip_norm(1.0000001f);
  EXPECT_THAT(Refusal(request), StartsWith("spec.clip_norm = 1.0000001: must be 1, as in job"));
}

TEST_F(StartRequestTest, AnotherOptimizerIsNamedBeforeItsRate) {
  v1::StartRequest request = Plain();
  request.mutable_resume_from()->set_job_id(source_.id());
  request.mutable_spec()->mutable_optimizer()->set_kind(v1::Optimizer::ADAM);
  EXPECT_THAT(Refusal(request), StartsWith("spec.optimizer = kind: ADAM"));
}

TEST_F(StartRequestTest, ResumeFromMustNameAJob) {
  v1::StartRequest request = Plain();
  request.mutable_resume_from();
  EXPECT_THAT(Refusal(request), StartsWith("resume_from.job_id = \"\": must name a job"));
  request.mutable_resume_from()->set_step(0);
  EXPECT_THAT(Refusal(request), StartsWith("resume_from.job_id"));
}

TEST_F(StartRequestTest, AnEqualIdWithAnotherStartIsAnotherRequest) {
  std::vector<v1::StartRequest> starts(3, Plain());
  starts[1].mutable_resume_from()->set_job_id(source_.id());
  starts[2].set_initial_weights(Weights([](TensorFile*) {}));
  for (size_t made = 0; made < starts.size(); ++made) {
    for (v1::StartRequest& request : starts) request.set_request_id("id " + std::to_string(made));
    const std::string id = server_.manager().Start(starts[made])->id();
    for (size_t other = 0; other < starts.size(); ++other) {
      if (other == made) {
        EXPECT_EQ(server_.manager().Start(starts[other])->id(), id);
      } else {
        EXPECT_THAT(Refusal(starts[other], absl::StatusCode::kAlreadyExists), HasSubstr("with another start"));
      }
    }
    v1::StartRequest nothing = starts[made];
    nothing.mutable_resume_from()->Clear();
    EXPECT_THAT(Refusal(nothing), StartsWith("resume_from.job_id"));
  }
}

TEST_F(StartRequestTest, ARequestWhoseJobIsJustDeletedMakesAnother) {
  v1::StartRequest request = Plain();
  request.set_request_id("once");
  const std::string id = Done(request).id();
  server_.store().AfterRead([&] { EXPECT_TRUE(server_.manager().Delete(id).ok()); });
  const absl::StatusOr<v1::Job> job = server_.manager().Start(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_NE(job->id(), id);
}

TEST_F(StartRequestTest, WeightsThatFitBeginAJob) {
  v1::StartRequest request = Plain(2);
  request.set_initial_weights(Weights([](TensorFile*) {}));
  EXPECT_EQ(Done(request).state(), v1::SUCCEEDED);
  request.set_initial_weights(Weights([](TensorFile* file) {
    std::erase_if(file->tensors, [](const auto& named) { return named.first.starts_with("optimizer/"); });
  }));
  EXPECT_EQ(Done(request).state(), v1::SUCCEEDED);
}

TEST_F(StartRequestTest, WeightsThatDoNotFitAreRefusedByName) {
  v1::StartRequest request = Plain(2);
  const auto refusal = [&](const std::function<void(TensorFile*)>& change) {
    request.set_initial_weights(Weights(change));
    return Refusal(request);
  };
  EXPECT_EQ(refusal([](TensorFile* file) { file->tensors.erase("conv2.bias"); }),
            "initial_weights: tensor conv2.bias: is missing");
  EXPECT_EQ(refusal([](TensorFile* file) {
              file->tensors["fc1.weight"].shape = {256, 120};
            }),
            "initial_weights: tensor fc1.weight: shape [256,120]: must be [120,256]");
  EXPECT_EQ(refusal([](TensorFile* file) {
              file->tensors["conv1.bias"] = {.dtype = DType::kF64, .shape = {6}, .data = std::vector<std::byte>(48)};
            }),
            "initial_weights: tensor conv1.bias: must be F32");
  EXPECT_EQ(refusal([](TensorFile* file) { file->tensors["a\nb\u202e"] = {.shape = {0}}; }),
            "initial_weights: tensor a\\nb\\u202e: belongs to no layer of the net");
  const std::string longest =
      refusal([](TensorFile* file) { file->tensors[std::string(3'000'000, 'k')] = {.shape = {0}}; });
  EXPECT_THAT(longest, StartsWith("initial_weights: tensor kkkk"));
  EXPECT_LT(longest.size(), 200u);
  request.set_initial_weights(std::string((4 << 20) + 1, 'x'));
  EXPECT_EQ(Refusal(request), "initial_weights: 4194305 bytes: must be at most 4194304");
  EXPECT_EQ(server_.manager().ListJobs({})->jobs.size(), 1u);
}

// Which the labels alone tell.
TEST_F(StartRequestTest, WeightsOfOtherClassesFailInLoading) {
  v1::StartRequest request = Plain(2);
  request.set_initial_weights(Weights([](TensorFile* file) {
    file->tensors["fc3.weight"] = {.shape = {11, 84}, .data = std::vector<std::byte>(11 * 84 * 4)};
    file->tensors["fc3.bias"] = {.shape = {11}, .data = std::vector<std::byte>(11 * 4)};
  }));
  const v1::Job job = Done(request);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().phase(), "load");
  EXPECT_THAT(job.failure().message(), HasSubstr("fc3"));
}

}  // namespace
}  // namespace lenet
