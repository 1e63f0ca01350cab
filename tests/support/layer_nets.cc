#include "tests/support/layer_nets.h"

#include <string>
#include <utility>

namespace lenet {
namespace {

LayerSpec Conv(std::string name, int outputs, int kernel, int stride = 1, int padding = 0) {
  return {.kind = LayerKind::kConv2D,
          .name = std::move(name),
          .outputs = outputs,
          .kernel = kernel,
          .stride = stride,
          .padding = padding};
}
LayerSpec Linear(std::string name, int outputs) {
  return {.kind = LayerKind::kLinear, .name = std::move(name), .outputs = outputs};
}
LayerSpec MaxPool(int kernel, int stride) {
  return {.kind = LayerKind::kMaxPool2D, .kernel = kernel, .stride = stride};
}
LayerSpec AvgPool(int kernel, int stride) {
  return {.kind = LayerKind::kAvgPool2D, .kernel = kernel, .stride = stride};
}
LayerSpec Relu() { return {.kind = LayerKind::kRelu}; }
LayerSpec Tanh() { return {.kind = LayerKind::kTanh}; }
LayerSpec Flatten() { return {.kind = LayerKind::kFlatten}; }

// These layers behind a convolution, whose gradient passes through them, and a classifier behind them.
NetSpec Between(std::string name, std::vector<LayerSpec> layers, ImageShape input = {2, 9, 8}) {
  NetSpec spec = {.name = std::move(name), .input = input, .classes = 4, .layers = {Conv("first", 3, 3)}};
  for (LayerSpec& layer : layers) spec.layers.push_back(std::move(layer));
  bool flat = false;
  for (const LayerSpec& layer : spec.layers) flat = flat || layer.kind == LayerKind::kFlatten;
  if (!flat) spec.layers.push_back(Flatten());
  spec.layers.push_back(Linear("last", 4));
  return spec;
}

}  // namespace

std::vector<NetSpec> LayerNets() {
  return {
      {.name = "Linear", .input = {1, 3, 5}, .classes = 3, .layers = {Flatten(), Linear("fc", 3)}},
      {.name = "LinearWide",
       .input = {1, 4, 4},
       .classes = 17,
       .layers = {Flatten(), Linear("fc1", 33), Linear("fc2", 16), Linear("fc3", 17)}},
      {.name = "LinearReluTanh",
       .input = {1, 4, 6},
       .classes = 2,
       .layers = {Flatten(), Linear("fc1", 20), Relu(), Linear("fc2", 7), Tanh(), Linear("fc3", 2)}},
      {.name = "ActivationsFirst",
       .input = {2, 3, 3},
       .classes = 3,
       .layers = {Tanh(), Relu(), Flatten(), Tanh(), Linear("fc", 3)}},
      {.name = "PoolFirst",
       .input = {2, 7, 6},
       .classes = 3,
       .layers = {AvgPool(2, 1), MaxPool(2, 2), Conv("conv", 4, 2), Flatten(), Linear("fc", 3)}},
      {.name = "OutputActivation",
       .input = {1, 5, 5},
       .classes = 3,
       .layers = {Conv("conv", 2, 3), Flatten(), Linear("fc", 3), Tanh()}},
      {.name = "NoLinear", .input = {1, 6, 6}, .classes = 4, .layers = {Conv("conv", 4, 6), Flatten()}},

      Between("Conv", {}),
      Between("ConvConv", {Conv("second", 5, 3)}),
      Between("ConvPadded", {Conv("second", 4, 3, 1, 1)}),
      Between("ConvPaddedFully", {Conv("second", 2, 5, 1, 4)}),
      Between("ConvStrided", {Conv("second", 4, 3, 2)}),
      Between("ConvStridedPadded", {Conv("second", 4, 5, 3, 2)}),
      Between("ConvStrideAboveKernel", {Conv("second", 4, 2, 3, 1)}),
      Between("ConvStrideEqualsKernel", {Conv("second", 4, 2, 2)}),
      Between("ConvPointwise", {Conv("second", 9, 1)}),
      Between("ConvWhole", {Conv("second", 6, 6)}),
      Between("ConvManyChannels", {Conv("second", 23, 3), Tanh(), Conv("third", 18, 2)}),
      Between("ConvSixteenWide", {Conv("second", 2, 3, 1, 1)}, {1, 18, 18}),
      Between("ConvReluConvPadded", {Relu(), Conv("second", 4, 3, 1, 1), Tanh(), Conv("third", 3, 3, 2, 1)}),

      Between("Relu", {Relu()}),
      Between("Tanh", {Tanh()}),
      Between("TanhTanh", {Tanh(), Tanh()}),
      Between("ReluTanhRelu", {Relu(), Tanh(), Relu()}),
      Between("TanhRelu", {Tanh(), Relu()}),
      Between("FlattenRelu", {AvgPool(2, 2), Flatten(), Relu(), Linear("middle", 5)}),

      Between("MaxPool2x2", {MaxPool(2, 2)}),
      Between("MaxPoolOverlap", {MaxPool(3, 2)}),
      Between("MaxPoolDense", {MaxPool(2, 1)}),
      Between("MaxPoolGaps", {MaxPool(2, 3)}),
      Between("MaxPool3x3", {MaxPool(3, 3)}),
      Between("MaxPoolWhole", {MaxPool(6, 1)}),
      Between("MaxPoolOne", {MaxPool(1, 1)}),
      Between("ReluMaxPool", {Relu(), MaxPool(2, 2)}),
      Between("ReluMaxPoolOverlap", {Relu(), MaxPool(3, 1)}),
      Between("TanhMaxPool", {Tanh(), MaxPool(3, 2)}),
      Between("MaxPoolRelu", {MaxPool(2, 2), Relu()}),
      Between("MaxPoolTanh", {MaxPool(2, 2), Tanh()}),
      Between("MaxPoolConvPadded", {MaxPool(2, 2), Conv("second", 3, 3, 1, 2)}),
      Between("AvgPool2x2", {AvgPool(2, 2)}),
      Between("AvgPoolOverlap", {AvgPool(3, 2)}),
      Between("AvgPoolGaps", {AvgPool(2, 3)}),
      Between("AvgPool3x3", {AvgPool(3, 3)}),
      Between("ReluAvgPool", {Relu(), AvgPool(2, 2)}),
      Between("TanhAvgPoolTanh", {Tanh(), AvgPool(2, 1), Tanh()}),
      Between("PoolPool", {MaxPool(2, 2), AvgPool(2, 1), Relu(), MaxPool(2, 1)}),
  };
}

}  // namespace lenet
