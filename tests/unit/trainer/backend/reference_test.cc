// Against results computed in float64 by another program, on MNIST: see the metadata of the file.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/backend_under_test.h"
#include "tests/support/rank_run.h"
#include "tests/support/relative_error.h"
#include "trainer/nn/net.h"
#include "trainer/train/safetensors.h"

namespace lenet {
namespace {

constexpr double kValueBound = 1e-5;  // relative 2-norms
constexpr double kStepsBound = 1e-4;

// Of f32 or f64.
std::vector<double> Values(const Tensor& tensor) {
  std::vector<double> values;
  const size_t width = tensor.dtype == DType::kF64 ? 8 : 4;
  for (size_t at = 0; at < tensor.data.size(); at += width) {
    float f32 = 0;
    double f64 = 0;
    std::memcpy(width == 8 ? static_cast<void*>(&f64) : &f32, tensor.data.data() + at, width);
    values.push_back(width == 8 ? f64 : double{f32});
  }
  return values;
}

// The number at `index` of those that follow `word`; 0 without the word.
double Number(const std::string& text, const std::string& word, int index = 0) {
  const size_t at = text.find(word + " ");
  if (at == std::string::npos) return 0;
  std::istringstream rest(text.substr(at + word.size()));
  double number = 0;
  for (int i = 0; i <= index; ++i) rest >> number;
  return number;
}

// From a description such as "AdamW lr 2e-3 betas 0.9 0.999 eps 1e-8 weight decay 1e-2 (decoupled), 6 steps".
OptimizerSpec ParseOptimizer(const std::string& text) {
  OptimizerSpec spec;
  if (text.starts_with("AdamW ")) {
    spec.kind = OptimizerKind::kAdamW;
  } else if (text.starts_with("Adam ")) {
    spec.kind = OptimizerKind::kAdam;
  } else {
    EXPECT_TRUE(text.starts_with("SGD ")) << text;
  }
  spec.momentum = Number(text, "momentum");
  spec.nesterov = text.find("Nesterov") != std::string::npos;
  spec.weight_decay = Number(text, "weight decay");
  if (spec.kind != OptimizerKind::kSgd) {
    spec.beta1 = Number(text, "betas", 0);
    spec.beta2 = Number(text, "betas", 1);
    spec.epsilon = Number(text, "eps");
  }
  return spec;
}

class ReferenceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    LENET_USE_BACKEND(backend_, GetParam());
    const char* other = std::getenv("LENET_REFERENCE");  // NOLINT(concurrency-mt-unsafe)
    const std::string path = other != nullptr ? other : LENET_TEST_DATA "/lenet_mnist_seed1.safetensors";
    absl::StatusOr<TensorFile> file = ReadTensorFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    ASSERT_EQ(file_.tensors.count("images"), 1u);
    const Tensor& images = file_.tensors.at("images");
    const Tensor& labels = file_.tensors.at("labels");
    ASSERT_EQ(images.shape.size(), 3u);
    Split split = {.shape = {1, static_cast<int>(images.shape[1]), static_cast<int>(images.shape[2])},
                   .count = images.shape[0]};
    split.images.resize(images.data.size());
    std::memcpy(split.images.data(), images.data.data(), images.data.size());
    split.labels.resize(labels.data.size());
    std::memcpy(split.labels.data(), labels.data.data(), labels.data.size());
    ASSERT_EQ(static_cast<int64_t>(split.labels.size()), split.count);
    const int classes = static_cast<int>(file_.tensors.at("init/fc3.bias").shape[0]);
    absl::StatusOr<NetSpec> spec = PresetNet("lenet", split.shape, classes);
    ASSERT_TRUE(spec.ok()) << spec.status();
    absl::StatusOr<Net> net = Net::Create(*std::move(spec));
    ASSERT_TRUE(net.ok()) << net.status();
    net_ = std::make_unique<Net>(*std::move(net));
    auto dataset = std::make_shared<Dataset>();
    dataset->name = "reference";
    dataset->classes = classes;
    dataset->train = split;
    dataset->test = split;
    dataset_ = dataset;
    batch_ = std::stoi(file_.metadata.at("batch"));
    ASSERT_GE(batch_, 1);
    ASSERT_LE(batch_, split.count);
  }

  std::vector<float> Initial() const {
    std::vector<float> flat(net_->flat_size());
    for (const Parameter& parameter : net_->parameters()) {
      const std::vector<double> values = Values(file_.tensors.at("init/" + parameter.name));
      std::copy(values.begin(), values.end(), flat.begin() + parameter.offset);
    }
    return flat;
  }

  // Every parameter's part of `flat` against the tensors of this prefix.
  void ExpectFlat(const std::vector<float>& flat, const std::string& prefix, double bound) const {
    for (const Parameter& parameter : net_->parameters()) {
      const Tensor& tensor = file_.tensors.at(prefix + parameter.name);
      EXPECT_EQ(tensor.shape, parameter.shape) << parameter.name;
      const auto begin = flat.begin() + parameter.offset;
      EXPECT_LE(RelativeError(std::vector<float>(begin, begin + parameter.size), Values(tensor)), bound)
          << prefix << parameter.name;
    }
  }

  void ExpectSteps(const std::string& setup) const {
    const std::vector<double> losses = Values(file_.tensors.at(setup + "/losses"));
    const std::string text = file_.metadata.at(setup);
    const double rate = Number(text, "lr");
    ASSERT_GT(rate, 0) << text;
    absl::StatusOr<RankRunResult> result =
        RunOnRanks(backend_, {.net = net_.get(),
                              .dataset = dataset_,
                              .batch_size = batch_,
                              .optimizer = ParseOptimizer(text),
                              .parameters = Initial(),
                              .learning_rates = std::vector<float>(losses.size(), static_cast<float>(rate)),
                              .chunk = 4,
                              .images = [this](int64_t step) { return Images(step); }});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_LE(RelativeError(result->losses[0], losses), kStepsBound);
    EXPECT_NEAR(result->losses[0][0], losses[0], kValueBound * losses[0]);
    ExpectFlat(result->parameters[0], setup + "/final/", kStepsBound);
  }

  std::vector<uint32_t> Images(int64_t step) const {
    std::vector<uint32_t> images(batch_);
    for (int i = 0; i < batch_; ++i) images[i] = static_cast<uint32_t>((step * batch_ + i) % dataset_->train.count);
    return images;
  }

  Backend* backend_ = nullptr;
  TensorFile file_;
  std::unique_ptr<Net> net_;
  std::shared_ptr<const Dataset> dataset_;
  int batch_ = 0;
};

TEST_P(ReferenceTest, LogitsLossesAndGradients) {
  absl::StatusOr<std::unique_ptr<RankGroup>> group = NewGroupOf(backend_, 1);
  ASSERT_TRUE(group.ok()) << group.status();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      (*group)->NewEngine(0, {.net = net_.get(), .dataset = dataset_, .batch_size = batch_});
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->WriteParameters(Initial()).ok());
  std::vector<float> logits(batch_ * net_->spec().classes);
  std::vector<float> losses(batch_);
  std::vector<float> gradient(net_->flat_size());
  const absl::Status status = (*engine)->Gradient(Images(0), logits, losses, gradient);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_LE(RelativeError(logits, Values(file_.tensors.at("logits"))), kValueBound);
  EXPECT_LE(RelativeError(losses, Values(file_.tensors.at("loss_per_sample"))), kValueBound);
  ExpectFlat(gradient, "grad/", kValueBound);
}

TEST_P(ReferenceTest, Sgd) { ExpectSteps("sgd"); }
TEST_P(ReferenceTest, Momentum) { ExpectSteps("momentum"); }
TEST_P(ReferenceTest, Nesterov) { ExpectSteps("nesterov"); }
TEST_P(ReferenceTest, Adam) { ExpectSteps("adam"); }
TEST_P(ReferenceTest, AdamW) { ExpectSteps("adamw"); }

INSTANTIATE_TEST_SUITE_P(Backend, ReferenceTest, ::testing::Values(LENET_TEST_BACKEND),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lenet
