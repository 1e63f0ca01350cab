#include "trainer/nn/net.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

bool HasParameters(LayerKind kind) { return kind == LayerKind::kConv2D || kind == LayerKind::kLinear; }

bool HasWindow(LayerKind kind) {
  return kind == LayerKind::kConv2D || kind == LayerKind::kMaxPool2D || kind == LayerKind::kAvgPool2D;
}

bool IsNameChar(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

std::string ShapeText(const ImageShape& shape) {
  return absl::StrCat(shape.channels, "x", shape.height, "x", shape.width);
}

// Infers one layer after the other and collects the parameters.
class Builder {
 public:
  explicit Builder(const NetSpec& spec) : spec_(spec) {}

  absl::Status Run();

  std::vector<Layer> TakeLayers() { return std::move(layers_); }
  std::vector<Parameter> TakeParameters() { return std::move(parameters_); }
  int64_t parameter_count() const { return parameter_count_; }
  int64_t flat_size() const { return flat_size_; }

 private:
  absl::Status CheckInput() const;
  absl::Status CheckFields(const LayerSpec& layer);
  absl::Status AddLayer(const LayerSpec& layer);
  absl::Status InferWindow(const LayerSpec& layer, ImageShape* out) const;
  absl::Status AddParameters(Layer* layer);
  void AddParameter(const LayerSpec& layer, bool is_bias, std::vector<int64_t> shape, int64_t fan_in, int64_t fan_out);

  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("network \"", spec_.name, "\": ", what));
  }

  template <typename... Args>
  absl::Status LayerError(const LayerSpec& layer, const Args&... what) const {
    return Error(absl::StrCat("layer ", layers_.size() + 1, " of ", spec_.layers.size(), " (",
                              LayerKindName(layer.kind), layer.name.empty() ? "" : " ", layer.name,
                              "): ", absl::StrCat(what...)));
  }

  absl::Status CheckRange(const LayerSpec& layer, absl::string_view field, int value, int low, int high) const {
    if (value >= low && value <= high) return absl::OkStatus();
    return LayerError(layer, field, " is ", value, "; it must be in ", low, " to ", high);
  }

  const NetSpec& spec_;
  std::vector<Layer> layers_;
  std::vector<Parameter> parameters_;
  std::set<std::string> names_;
  ImageShape shape_;
  bool flat_ = false;
  int64_t parameter_count_ = 0;
  int64_t flat_size_ = 0;
};

absl::Status Builder::CheckInput() const {
  const auto check = [this](absl::string_view field, int value, int low, int high) {
    if (value >= low && value <= high) return absl::OkStatus();
    return Error(absl::StrCat(field, " is ", value, "; it must be in ", low, " to ", high));
  };
  LENET_RETURN_IF_ERROR(check("input.channels", spec_.input.channels, 1, kMaxImageChannels));
  LENET_RETURN_IF_ERROR(check("input.height", spec_.input.height, 1, kMaxImageSide));
  LENET_RETURN_IF_ERROR(check("input.width", spec_.input.width, 1, kMaxImageSide));
  if (spec_.input.size() > Net::kMaxFeatures) {
    return Error(absl::StrCat("the input, ", ShapeText(spec_.input), ", has ", spec_.input.size(),
                              " values; the most is ", Net::kMaxFeatures));
  }
  LENET_RETURN_IF_ERROR(check("classes", spec_.classes, 2, Net::kMaxClasses));
  if (spec_.layers.size() > Net::kMaxLayers) {
    return Error(absl::StrCat("it has ", spec_.layers.size(), " layers; the most is ", Net::kMaxLayers));
  }
  return absl::OkStatus();
}

absl::Status Builder::CheckFields(const LayerSpec& layer) {
  if (HasParameters(layer.kind)) {
    if (layer.name.empty()) return LayerError(layer, "its name is missing");
    if (!std::all_of(layer.name.begin(), layer.name.end(), IsNameChar)) {
      return LayerError(layer, "its name may hold a-z, 0-9 and _ alone");
    }
    if (!names_.insert(layer.name).second) return LayerError(layer, "its name is used twice");
    LENET_RETURN_IF_ERROR(CheckRange(layer, "outputs", layer.outputs, 1, Net::kMaxOutputs));
  } else {
    if (!layer.name.empty()) return LayerError(layer, "it takes no name, for it has no parameters");
    if (layer.outputs != 0) return LayerError(layer, "outputs is ", layer.outputs, "; this kind does not use it");
  }
  if (HasWindow(layer.kind)) {
    LENET_RETURN_IF_ERROR(CheckRange(layer, "kernel", layer.kernel, 1, kMaxImageSide));
    LENET_RETURN_IF_ERROR(CheckRange(layer, "stride", layer.stride, 1, kMaxImageSide));
  } else {
    if (layer.kernel != 0) return LayerError(layer, "kernel is ", layer.kernel, "; this kind does not use it");
    if (layer.stride != 1) return LayerError(layer, "stride is ", layer.stride, "; this kind does not use it");
  }
  if (layer.kind == LayerKind::kConv2D) return CheckRange(layer, "padding", layer.padding, 0, layer.kernel - 1);
  if (layer.padding != 0) return LayerError(layer, "padding is ", layer.padding, "; this kind does not use it");
  return absl::OkStatus();
}

absl::Status Builder::InferWindow(const LayerSpec& layer, ImageShape* out) const {
  if (flat_) return LayerError(layer, "its input is flat, ", shape_.size(), " features; it needs an image");
  const int height = shape_.height + 2 * layer.padding;
  const int width = shape_.width + 2 * layer.padding;
  if (layer.kernel > height || layer.kernel > width) {
    return LayerError(layer, "its kernel, ", layer.kernel, "x", layer.kernel, ", is larger than its input, ", height,
                      "x", width, layer.padding > 0 ? " with padding" : "", "; images of ", spec_.input.height, "x",
                      spec_.input.width, " are too small for this network");
  }
  out->height = (height - layer.kernel) / layer.stride + 1;
  out->width = (width - layer.kernel) / layer.stride + 1;
  return absl::OkStatus();
}

void Builder::AddParameter(const LayerSpec& layer, bool is_bias, std::vector<int64_t> shape, int64_t fan_in,
                           int64_t fan_out) {
  Parameter parameter;
  parameter.name = absl::StrCat(layer.name, is_bias ? ".bias" : ".weight");
  parameter.size = 1;
  for (const int64_t extent : shape) parameter.size *= extent;
  parameter.shape = std::move(shape);
  parameter.offset = flat_size_;
  parameter.fan_in = fan_in;
  parameter.fan_out = fan_out;
  parameter.is_bias = is_bias;
  parameter_count_ += parameter.size;
  flat_size_ += (parameter.size + Net::kAlignment - 1) / Net::kAlignment * Net::kAlignment;
  parameters_.push_back(std::move(parameter));
}

absl::Status Builder::AddParameters(Layer* layer) {
  const LayerSpec& spec = layer->spec;
  const bool conv = spec.kind == LayerKind::kConv2D;
  const int64_t outputs = spec.outputs;
  const int64_t inputs = conv ? layer->in.channels : layer->in.size();
  const int64_t window = conv ? int64_t{spec.kernel} * spec.kernel : 1;
  // Channels and outputs are at most 2^16, a window 2^24, flat inputs 2^24: nothing here can overflow.
  if (parameter_count_ + (inputs * window + 1) * outputs > Net::kMaxParameters) {
    return LayerError(spec, "its ", inputs, " inputs, ", outputs, " outputs",
                      conv ? absl::StrCat(" and kernel ", spec.kernel) : "", " bring the network above ",
                      Net::kMaxParameters, " parameters");
  }
  std::vector<int64_t> shape = {outputs, inputs};
  if (conv) shape.insert(shape.end(), {spec.kernel, spec.kernel});
  layer->weight = static_cast<int>(parameters_.size());
  layer->bias = layer->weight + 1;
  AddParameter(spec, /*is_bias=*/false, std::move(shape), inputs * window, outputs * window);
  AddParameter(spec, /*is_bias=*/true, {outputs}, inputs * window, outputs * window);
  return absl::OkStatus();
}

absl::Status Builder::AddLayer(const LayerSpec& spec) {
  LENET_RETURN_IF_ERROR(CheckFields(spec));
  Layer layer;
  layer.spec = spec;
  layer.in = shape_;
  layer.out = shape_;
  switch (spec.kind) {
    case LayerKind::kConv2D:
      LENET_RETURN_IF_ERROR(InferWindow(spec, &layer.out));
      layer.out.channels = spec.outputs;
      break;
    case LayerKind::kMaxPool2D:
    case LayerKind::kAvgPool2D:
      LENET_RETURN_IF_ERROR(InferWindow(spec, &layer.out));
      break;
    case LayerKind::kRelu:
    case LayerKind::kTanh:
      break;
    case LayerKind::kFlatten:
      if (flat_) return LayerError(spec, "its input is flat already");
      layer.out = {static_cast<int>(shape_.size()), 1, 1};
      flat_ = true;
      break;
    case LayerKind::kLinear:
      if (!flat_) return LayerError(spec, "its input, ", ShapeText(shape_), ", is not flat; put Flatten before it");
      layer.out = {spec.outputs, 1, 1};
      break;
  }
  if (layer.out.size() > Net::kMaxFeatures) {
    return LayerError(spec, "its output, ", ShapeText(layer.out), ", has ", layer.out.size(), " values; the most is ",
                      Net::kMaxFeatures);
  }
  if (HasParameters(spec.kind)) LENET_RETURN_IF_ERROR(AddParameters(&layer));
  shape_ = layer.out;
  layers_.push_back(std::move(layer));
  return absl::OkStatus();
}

absl::Status Builder::Run() {
  LENET_RETURN_IF_ERROR(CheckInput());
  shape_ = spec_.input;
  for (const LayerSpec& layer : spec_.layers) LENET_RETURN_IF_ERROR(AddLayer(layer));
  if (parameters_.empty()) return Error("no layer has parameters");
  if (!flat_ || shape_.channels != spec_.classes) {
    return Error(absl::StrCat("its last layer gives ", flat_ ? absl::StrCat(shape_.channels) : ShapeText(shape_),
                              " values a sample; it must give ", spec_.classes, ", one a class"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view LayerKindName(LayerKind kind) {
  switch (kind) {
    case LayerKind::kConv2D:
      return "Conv2D";
    case LayerKind::kRelu:
      return "ReLU";
    case LayerKind::kTanh:
      return "Tanh";
    case LayerKind::kMaxPool2D:
      return "MaxPool2D";
    case LayerKind::kAvgPool2D:
      return "AvgPool2D";
    case LayerKind::kFlatten:
      return "Flatten";
    case LayerKind::kLinear:
      return "Linear";
  }
  return "unknown";
}

absl::StatusOr<Net> Net::Create(NetSpec spec) {
  Builder builder(spec);
  LENET_RETURN_IF_ERROR(builder.Run());
  Net net;
  net.layers_ = builder.TakeLayers();
  net.parameters_ = builder.TakeParameters();
  net.parameter_count_ = builder.parameter_count();
  net.flat_size_ = builder.flat_size();
  net.spec_ = std::move(spec);
  return net;
}

}  // namespace lenet
