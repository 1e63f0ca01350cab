#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

constexpr char kLenet[] = "lenet";
constexpr char kLenet5Classic[] = "lenet5-classic";
constexpr char kLenetCaffe[] = "lenet-caffe";

LayerSpec Conv(std::string name, int outputs, int kernel, int padding = 0) {
  return {
      .kind = LayerKind::kConv2D, .name = std::move(name), .outputs = outputs, .kernel = kernel, .padding = padding};
}

LayerSpec Linear(std::string name, int outputs) {
  return {.kind = LayerKind::kLinear, .name = std::move(name), .outputs = outputs};
}

LayerSpec Pool(LayerKind kind) { return {.kind = kind, .kernel = 2, .stride = 2}; }

// LeNet-5's widths (LeCun et al., "Gradient-based learning applied to document recognition", 1998), every map of the
// second convolution joined to every map of the first.
std::vector<LayerSpec> LenetLayers(LayerKind activation, LayerKind pool, int padding, int classes) {
  const LayerSpec act = {.kind = activation};
  return {Conv("conv1", 6, 5, padding),
          act,
          Pool(pool),
          Conv("conv2", 16, 5),
          act,
          Pool(pool),
          {.kind = LayerKind::kFlatten},
          Linear("fc1", 120),
          act,
          Linear("fc2", 84),
          act,
          Linear("fc3", classes)};
}

// As Caffe's examples/mnist: no activation after the convolutions.
std::vector<LayerSpec> LenetCaffeLayers(int classes) {
  return {Conv("conv1", 20, 5),        Pool(LayerKind::kMaxPool2D),   Conv("conv2", 50, 5),
          Pool(LayerKind::kMaxPool2D), {.kind = LayerKind::kFlatten}, Linear("fc1", 500),
          {.kind = LayerKind::kRelu},  Linear("fc2", classes)};
}

}  // namespace

std::vector<std::string> PresetNames() { return {kLenet, kLenet5Classic, kLenetCaffe}; }

absl::StatusOr<NetSpec> PresetNet(absl::string_view preset, const ImageShape& input, int classes) {
  NetSpec spec = {.name = std::string(preset), .input = input, .classes = classes};
  if (preset == kLenet) {
    spec.layers = LenetLayers(LayerKind::kRelu, LayerKind::kMaxPool2D, /*padding=*/0, classes);
  } else if (preset == kLenet5Classic) {
    spec.layers = LenetLayers(LayerKind::kTanh, LayerKind::kAvgPool2D, /*padding=*/2, classes);
  } else if (preset == kLenetCaffe) {
    spec.layers = LenetCaffeLayers(classes);
  } else {
    return absl::NotFoundError(
        absl::StrCat("no network \"", preset, "\"; there are ", absl::StrJoin(PresetNames(), ", ")));
  }
  return spec;
}

}  // namespace lenet
