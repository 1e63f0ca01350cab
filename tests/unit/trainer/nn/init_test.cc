#include "trainer/nn/init.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/base/random.h"

namespace lenet {
namespace {

Net Lenet(int classes = 10) { return Net::Create(PresetNet("lenet", {1, 28, 28}, classes).value()).value(); }

std::vector<float> Values(const Net& net, const InitSpec& init, uint64_t seed = 1) {
  // Not zero, to see that the gaps are cleared.
  std::vector<float> flat(static_cast<size_t>(net.flat_size()), 9.0f);
  Initialize(net, init, seed, flat);
  return flat;
}

std::vector<float> Of(const std::vector<float>& flat, const Parameter& parameter) {
  return std::vector<float>(flat.begin() + parameter.offset, flat.begin() + parameter.offset + parameter.size);
}

// Within uniform(low, high), and with its mean and variance to five standard errors.
void ExpectUniform(const std::vector<float>& values, double low, double high, const std::string& name) {
  const double n = static_cast<double>(values.size());
  const double width = high - low;
  double sum = 0, squares = 0;
  for (const float value : values) {
    EXPECT_GE(value, low) << name;
    EXPECT_LE(value, high) << name;
    const double x = (value - (low + high) / 2) / width;
    sum += x;
    squares += x * x;
  }
  EXPECT_LT(std::abs(sum / n), 5 * std::sqrt(1 / 12.0 / n)) << name;
  EXPECT_LT(std::abs(squares / n - 1 / 12.0), 5 * std::sqrt(1 / 180.0 / n)) << name;
}

TEST(InitTest, KaimingUniformIsPyTorchsDefault) {
  const Net net = Lenet();
  const std::vector<float> flat = Values(net, {});
  const std::vector<int> inputs = {25, 25, 150, 150, 256, 256, 120, 120, 84, 84};  // of each parameter's layer
  for (size_t i = 0; i < inputs.size(); ++i) {
    const double bound = std::pow(inputs[i], -0.5) * (1 + 1e-6);
    ExpectUniform(Of(flat, net.parameters()[i]), -bound, bound, net.parameters()[i].name);
  }
}

TEST(InitTest, XavierUniform) {
  const Net net = Lenet();
  const std::vector<float> flat = Values(net, {.kind = InitKind::kXavierUniform});
  const std::vector<int> fans = {25 + 150, 150 + 400, 256 + 120, 120 + 84, 84 + 10};
  for (size_t i = 0; i < fans.size(); ++i) {
    const Parameter& weight = net.parameters()[2 * i];
    const double bound = std::sqrt(6.0 / fans[i]) * (1 + 1e-6);
    ExpectUniform(Of(flat, weight), -bound, bound, weight.name);
    for (const float value : Of(flat, net.parameters()[2 * i + 1])) EXPECT_EQ(value, 0);
  }
}

TEST(InitTest, UniformGoesFromLowToHigh) {
  const Net net = Lenet();
  const std::vector<float> flat = Values(net, {.kind = InitKind::kUniform, .low = -0.05f, .high = 0.1f});
  for (const Parameter& parameter : net.parameters()) {
    ExpectUniform(Of(flat, parameter), -0.05 - 1e-8, 0.1 + 1e-8, parameter.name);
  }
}

TEST(InitTest, FillsGapsWithZeros) {
  const Net net = Lenet();
  const std::vector<float> flat = Values(net, {});
  std::vector<bool> owned(flat.size());
  for (const Parameter& parameter : net.parameters()) {
    std::fill_n(owned.begin() + parameter.offset, parameter.size, true);
  }
  EXPECT_LT(net.parameter_count(), net.flat_size());
  for (size_t i = 0; i < flat.size(); ++i) {
    ASSERT_TRUE(owned[i] || flat[i] == 0) << i;
  }
}

TEST(InitTest, DependsOnTheSeedAlone) {
  const Net net = Lenet();
  EXPECT_EQ(Values(net, {}, 1), Values(net, {}, 1));
  EXPECT_NE(Values(net, {}, 1), Values(net, {}, 2));
  EXPECT_NE(Values(net, {}, 1), Values(net, {}, (uint64_t{1} << 32) + 1));
}

TEST(InitTest, NoTwoParametersStartAlike) {
  const Net net = Lenet();
  const std::vector<float> flat = Values(net, {.kind = InitKind::kUniform, .low = 0, .high = 1});
  std::set<std::vector<float>> starts;
  for (const Parameter& parameter : net.parameters()) {
    const std::vector<float> values = Of(flat, parameter);
    starts.emplace(values.begin(), values.begin() + 6);
  }
  EXPECT_EQ(starts.size(), net.parameters().size());
}

TEST(InitTest, AParametersValuesAreItsOwnStream) {
  const Net net = Lenet();
  const std::vector<float> flat = Values(net, {.kind = InitKind::kUniform, .low = 0, .high = 1}, 7);
  for (size_t p = 0; p < net.parameters().size(); ++p) {
    const std::vector<float> values = Of(flat, net.parameters()[p]);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], UniformFloat(7, kInitStream + p, i));
  }
  // So the size of other layers changes nothing.
  const Net other = Net::Create(PresetNet("lenet", {1, 32, 32}, 10).value()).value();
  const std::vector<float> other_flat = Values(other, {.kind = InitKind::kUniform, .low = 0, .high = 1}, 7);
  EXPECT_EQ(Of(flat, net.parameters()[6]), Of(other_flat, other.parameters()[6]));
}

TEST(InitTest, ValidatesTheRange) {
  EXPECT_TRUE(ValidateInit({}).ok());
  EXPECT_TRUE(ValidateInit({.kind = InitKind::kXavierUniform}).ok());
  EXPECT_TRUE(ValidateInit({.kind = InitKind::kUniform, .low = -0.05f, .high = 0.05f}).ok());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const struct {
    float low;
    float high;
    std::string what;
  } kCases[] = {{0, 0, "init.high = 0: must be finite and above init.low = 0"},
                {1, -1, "init.high = -1: must be finite and above init.low = 1"},
                {nan, 1, "init.low = nan: must be finite"},
                {0, nan, "init.high = nan: must be finite and above init.low = 0"},
                {-infinity, 0, "init.low = -inf: must be finite"},
                {0, infinity, "init.high = inf: must be finite and above init.low = 0"}};
  for (const auto& test : kCases) {
    const absl::Status status = ValidateInit({.kind = InitKind::kUniform, .low = test.low, .high = test.high});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.what;
    EXPECT_EQ(std::string(status.message()), test.what);
  }
}

}  // namespace
}  // namespace lenet
