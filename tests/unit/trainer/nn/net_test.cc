#include "trainer/nn/net.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LayerSpec Conv(std::string name, int outputs, int kernel, int stride = 1, int padding = 0) {
  return {LayerKind::kConv2D, std::move(name), outputs, kernel, stride, padding};
}
LayerSpec Pool(int kernel, int stride) { return {.kind = LayerKind::kMaxPool2D, .kernel = kernel, .stride = stride}; }
LayerSpec Linear(std::string name, int outputs) {
  return {.kind = LayerKind::kLinear, .name = std::move(name), .outputs = outputs};
}
LayerSpec Plain(LayerKind kind) { return {.kind = kind}; }

const LayerSpec kFlatten = Plain(LayerKind::kFlatten);

// A small valid network, to spoil.
NetSpec Small() {
  return {.name = "small",
          .input = {2, 9, 7},
          .classes = 3,
          .layers = {Conv("conv1", 4, 3, /*stride=*/2, /*padding=*/1), Plain(LayerKind::kRelu), Pool(2, 1), kFlatten,
                     Linear("fc1", 5), Plain(LayerKind::kTanh), Linear("fc2", 3)}};
}

void ExpectError(const NetSpec& spec, const std::vector<std::string>& parts) {
  const absl::StatusOr<Net> net = Net::Create(spec);
  EXPECT_EQ(net.status().code(), absl::StatusCode::kInvalidArgument) << net.status();
  const std::string message(net.status().message());
  EXPECT_THAT(message, HasSubstr("network \"small\": "));
  for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part));
}

TEST(NetTest, InfersShapes) {
  const absl::StatusOr<Net> net = Net::Create(Small());
  ASSERT_TRUE(net.ok()) << net.status();
  ASSERT_EQ(net->layers().size(), 7u);
  const std::vector<ImageShape> outs = {{4, 5, 4}, {4, 5, 4}, {4, 4, 3}, {48, 1, 1}, {5, 1, 1}, {5, 1, 1}, {3, 1, 1}};
  ImageShape in = {2, 9, 7};
  for (size_t i = 0; i < outs.size(); ++i) {
    EXPECT_EQ(net->layers()[i].in, in) << i;
    EXPECT_EQ(net->layers()[i].out, outs[i]) << i;
    in = outs[i];
  }
}

TEST(NetTest, LaysOutItsParameters) {
  const Net net = Net::Create(Small()).value();
  ASSERT_EQ(net.parameters().size(), 6u);
  const std::vector<std::string> names = {"conv1.weight", "conv1.bias", "fc1.weight",
                                          "fc1.bias",     "fc2.weight", "fc2.bias"};
  const std::vector<std::vector<int64_t>> shapes = {{4, 2, 3, 3}, {4}, {5, 48}, {5}, {3, 5}, {3}};
  const std::vector<int64_t> sizes = {72, 4, 240, 5, 15, 3};
  const std::vector<int64_t> offsets = {0, 128, 192, 448, 512, 576};
  const std::vector<std::pair<int64_t, int64_t>> fans = {{18, 36}, {18, 36}, {48, 5}, {48, 5}, {5, 3}, {5, 3}};
  for (size_t i = 0; i < names.size(); ++i) {
    const Parameter& parameter = net.parameters()[i];
    EXPECT_EQ(parameter.name, names[i]);
    EXPECT_EQ(parameter.shape, shapes[i]) << names[i];
    EXPECT_EQ(parameter.size, sizes[i]) << names[i];
    EXPECT_EQ(parameter.offset, offsets[i]) << names[i];
    EXPECT_EQ(parameter.offset % Net::kAlignment, 0) << names[i];
    EXPECT_EQ(std::pair(parameter.fan_in, parameter.fan_out), fans[i]) << names[i];
    EXPECT_EQ(parameter.is_bias, i % 2 == 1) << names[i];
  }
  EXPECT_EQ(net.parameter_count(), 339);
  EXPECT_EQ(net.flat_size(), 640);
  std::vector<std::pair<int, int>> owned;
  for (const Layer& layer : net.layers()) owned.emplace_back(layer.weight, layer.bias);
  EXPECT_THAT(owned, ElementsAre(std::pair(0, 1), std::pair(-1, -1), std::pair(-1, -1), std::pair(-1, -1),
                                 std::pair(2, 3), std::pair(-1, -1), std::pair(4, 5)));
}

TEST(NetTest, PoolingDropsWhatNoWindowCovers) {
  NetSpec spec = Small();
  spec.layers = {Pool(3, 2), Pool(2, 3), kFlatten, Linear("fc", 3)};
  const Net net = Net::Create(spec).value();
  EXPECT_EQ(net.layers()[0].out, (ImageShape{2, 4, 3}));
  EXPECT_EQ(net.layers()[1].out, (ImageShape{2, 1, 1}));
}

TEST(NetTest, RefusesInputsAndClassesOutOfBounds) {
  for (const ImageShape input : {ImageShape{0, 9, 7}, ImageShape{4097, 9, 7}}) {
    NetSpec spec = Small();
    spec.input = input;
    ExpectError(spec, {"input.channels is " + std::to_string(input.channels), "1 to 4096"});
  }
  NetSpec spec = Small();
  spec.input.height = -1;
  ExpectError(spec, {"input.height is -1", "1 to 4096"});
  spec = Small();
  spec.input.width = 2000000000;
  ExpectError(spec, {"input.width is 2000000000", "1 to 4096"});
  spec.input = {4096, 4096, 4096};
  ExpectError(spec, {"4096x4096x4096", "68719476736", "16777216"});
  for (const int classes : {1, 257, -2}) {
    spec = Small();
    spec.classes = classes;
    ExpectError(spec, {"classes is " + std::to_string(classes), "2 to 256"});
  }
}

TEST(NetTest, RefusesAKernelLargerThanItsInput) {
  NetSpec spec = Small();
  spec.layers[2] = Pool(5, 1);
  ExpectError(spec, {"layer 3 of 7 (MaxPool2D)", "5x5", "larger than its input, 5x4", "images of 9x7 are too small"});
  spec = Small();
  spec.layers[0] = Conv("conv1", 4, 10, 1, 1);
  ExpectError(spec, {"layer 1 of 7 (Conv2D conv1)", "10x10", "11x9 with padding"});
}

TEST(NetTest, RefusesWindowsOutOfBounds) {
  const struct {
    LayerSpec layer;
    std::string part;
  } kCases[] = {{Conv("conv1", 0, 3), "outputs is 0; it must be in 1 to 65536"},
                {Conv("conv1", 65537, 3), "outputs is 65537"},
                {Conv("conv1", 4, 0), "kernel is 0; it must be in 1 to 4096"},
                {Conv("conv1", 4, -3), "kernel is -3"},
                {Conv("conv1", 4, 3, 0), "stride is 0; it must be in 1 to 4096"},
                {Conv("conv1", 4, 3, 1, 3), "padding is 3; it must be in 0 to 2"},
                {Conv("conv1", 4, 3, 1, -1), "padding is -1; it must be in 0 to 2"}};
  for (const auto& test : kCases) {
    NetSpec spec = Small();
    spec.layers[0] = test.layer;
    ExpectError(spec, {"layer 1 of 7 (Conv2D conv1): ", test.part});
  }
}

TEST(NetTest, RefusesFieldsThatAKindDoesNotUse) {
  NetSpec spec = Small();
  spec.layers[1].outputs = 4;
  ExpectError(spec, {"layer 2 of 7 (ReLU): outputs is 4"});
  spec = Small();
  spec.layers[1].name = "relu1";
  ExpectError(spec, {"layer 2 of 7 (ReLU relu1): it takes no name"});
  spec = Small();
  spec.layers[2].padding = 1;
  ExpectError(spec, {"layer 3 of 7 (MaxPool2D): padding is 1"});
  spec = Small();
  spec.layers[4].kernel = 2;
  ExpectError(spec, {"layer 5 of 7 (Linear fc1): kernel is 2"});
  spec.layers[4].kernel = 0;
  spec.layers[4].stride = 2;
  ExpectError(spec, {"layer 5 of 7 (Linear fc1): stride is 2"});
}

TEST(NetTest, RefusesNamesThatAreMissingWrongOrUsedTwice) {
  NetSpec spec = Small();
  spec.layers[4].name = "";
  ExpectError(spec, {"layer 5 of 7 (Linear): its name is missing"});
  for (const std::string& name : {std::string("fc.1"), std::string("Fc"), std::string("a b"), std::string("a\0", 2)}) {
    spec.layers[4].name = name;
    ExpectError(spec, {"layer 5 of 7", "a-z, 0-9 and _"});
  }
  spec.layers[4].name = "fc2";
  ExpectError(spec, {"layer 7 of 7 (Linear fc2): its name is used twice"});
}

TEST(NetTest, RefusesLayersWhoseInputHasTheWrongForm) {
  NetSpec spec = Small();
  std::swap(spec.layers[3], spec.layers[4]);
  ExpectError(spec, {"layer 4 of 7 (Linear fc1)", "4x4x3, is not flat", "Flatten"});
  spec = Small();
  spec.layers[5] = Pool(1, 1);
  ExpectError(spec, {"layer 6 of 7 (MaxPool2D)", "flat, 5 features"});
  spec = Small();
  spec.layers[5] = kFlatten;
  ExpectError(spec, {"layer 6 of 7 (Flatten)", "flat already"});
}

TEST(NetTest, RefusesAnEndThatIsNotOneValueAClass) {
  NetSpec spec = Small();
  spec.layers.back().outputs = 4;
  ExpectError(spec, {"gives 4 values", "must give 3"});
  spec.layers.resize(3);
  ExpectError(spec, {"gives 4x4x3 values", "must give 3"});
  spec.layers = {kFlatten};
  ExpectError(spec, {"no layer has parameters"});
  spec.layers = {};
  ExpectError(spec, {"no layer has parameters"});
}

TEST(NetTest, RefusesSizesThatWouldOverflow) {
  NetSpec spec = Small();
  spec.input = {1, 4096, 4096};
  spec.layers = {Conv("conv1", 65536, 1)};
  ExpectError(spec, {"layer 1 of 1 (Conv2D conv1)", "65536x4096x4096", "1099511627776", "16777216"});
  spec.layers = {kFlatten, Linear("fc", 65536)};
  ExpectError(spec, {"layer 2 of 2 (Linear fc)", "16777216 inputs", "65536 outputs", "268435456 parameters"});
  spec.layers = {Conv("conv1", 65536, 4096)};
  ExpectError(spec, {"1 inputs, 65536 outputs and kernel 4096", "268435456 parameters"});
  spec.input = {4096, 64, 64};
  spec.layers = {Conv("conv1", 65536, 64)};
  ExpectError(spec, {"4096 inputs", "268435456 parameters"});
  // Each below the bound, their sum above it.
  spec.input = {1, 128, 128};
  spec.layers = {kFlatten, Linear("fc1", 10000), Linear("fc2", 12000), Linear("fc3", 3)};
  ExpectError(spec, {"layer 3 of 4 (Linear fc2)", "268435456 parameters"});
  spec.layers.assign(257, Plain(LayerKind::kRelu));
  ExpectError(spec, {"257 layers", "256"});
}

Net Preset(absl::string_view name, const ImageShape& input = {1, 28, 28}, int classes = 10) {
  return Net::Create(PresetNet(name, input, classes).value()).value();
}

std::vector<LayerKind> Kinds(const Net& net) {
  std::vector<LayerKind> kinds;
  for (const Layer& layer : net.layers()) kinds.push_back(layer.spec.kind);
  return kinds;
}

TEST(PresetTest, Lenet) {
  using enum LayerKind;
  const Net net = Preset("lenet");
  EXPECT_EQ(net.parameter_count(), 44426);
  EXPECT_THAT(Kinds(net), ElementsAre(kConv2D, kRelu, kMaxPool2D, kConv2D, kRelu, kMaxPool2D, kFlatten, kLinear, kRelu,
                                      kLinear, kRelu, kLinear));
  const std::vector<std::pair<std::string, std::vector<int64_t>>> parameters = {
      {"conv1.weight", {6, 1, 5, 5}}, {"conv1.bias", {6}}, {"conv2.weight", {16, 6, 5, 5}}, {"conv2.bias", {16}},
      {"fc1.weight", {120, 256}},     {"fc1.bias", {120}}, {"fc2.weight", {84, 120}},       {"fc2.bias", {84}},
      {"fc3.weight", {10, 84}},       {"fc3.bias", {10}}};
  ASSERT_EQ(net.parameters().size(), parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(net.parameters()[i].name, parameters[i].first);
    EXPECT_EQ(net.parameters()[i].shape, parameters[i].second);
  }
}

TEST(PresetTest, Lenet5Classic) {
  using enum LayerKind;
  const Net net = Preset("lenet5-classic");
  EXPECT_EQ(net.parameter_count(), 61706);
  EXPECT_THAT(Kinds(net), ElementsAre(kConv2D, kTanh, kAvgPool2D, kConv2D, kTanh, kAvgPool2D, kFlatten, kLinear, kTanh,
                                      kLinear, kTanh, kLinear));
  EXPECT_EQ(net.layers()[0].out, (ImageShape{6, 28, 28}));
  EXPECT_EQ(net.layers()[5].out, (ImageShape{16, 5, 5}));
}

TEST(PresetTest, LenetCaffe) {
  using enum LayerKind;
  const Net net = Preset("lenet-caffe");
  EXPECT_EQ(net.parameter_count(), 431080);
  EXPECT_THAT(Kinds(net), ElementsAre(kConv2D, kMaxPool2D, kConv2D, kMaxPool2D, kFlatten, kLinear, kRelu, kLinear));
}

TEST(PresetTest, FollowsInputAndClasses) {
  const Net net = Preset("lenet", {3, 32, 40}, 47);
  EXPECT_EQ(net.parameters()[0].shape, (std::vector<int64_t>{6, 3, 5, 5}));
  EXPECT_EQ(net.parameters()[4].shape, (std::vector<int64_t>{120, 16 * 5 * 7}));
  EXPECT_EQ(net.parameters()[8].shape, (std::vector<int64_t>{47, 84}));
}

TEST(PresetTest, ImagesThatAreTooSmall) {
  const absl::Status status = Net::Create(PresetNet("lenet", {1, 15, 28}, 10).value()).status();
  EXPECT_EQ(status, absl::InvalidArgumentError(
                        "network \"lenet\": layer 6 of 12 (MaxPool2D): its kernel, 2x2, is larger than its input, 1x8; "
                        "images of 15x28 are too small for this network"));
  EXPECT_TRUE(Net::Create(PresetNet("lenet", {1, 16, 16}, 10).value()).ok());
}

TEST(PresetTest, AnUnknownNameListsTheKnown) {
  EXPECT_THAT(PresetNames(), ElementsAre("lenet", "lenet5-classic", "lenet-caffe"));
  const absl::Status status = PresetNet("resnet", {1, 28, 28}, 10).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"resnet\"; there are lenet, lenet5-classic, lenet-caffe"));
}

}  // namespace
}  // namespace lenet
