// A network as a validated list of layers. Knows no device.
#ifndef LENET_TRAINER_NN_NET_H_
#define LENET_TRAINER_NN_NET_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/data/dataset.h"

namespace lenet {

enum class LayerKind { kConv2D, kRelu, kTanh, kMaxPool2D, kAvgPool2D, kFlatten, kLinear };

absl::string_view LayerKindName(LayerKind kind);

// One layer as written by a user; fields that its kind does not use stay 0. Sizes are square. Convolution is
// cross-correlation, as in PyTorch. Pooling takes floor((in - kernel) / stride) + 1 windows and pads nothing.
struct LayerSpec {
  LayerKind kind = LayerKind::kRelu;
  std::string name;  // of its parameters: "conv1" owns conv1.weight and conv1.bias; empty if it has none
  int outputs = 0;   // Conv2D: output channels; Linear: output features
  int kernel = 0;    // Conv2D, pooling
  int stride = 1;    // Conv2D, pooling
  int padding = 0;   // Conv2D: zeros on each side
};

struct NetSpec {
  std::string name;
  ImageShape input;
  int classes = 0;
  std::vector<LayerSpec> layers;  // the loss, softmax cross-entropy over [N, classes], follows the last one
};

// A parameter tensor and its place in the flat buffers of parameters, gradients and optimiser state.
struct Parameter {
  std::string name;            // "conv1.weight", as PyTorch names it
  std::vector<int64_t> shape;  // weight: [out, in, kernel, kernel] or [out, in]; bias: [out]
  int64_t offset = 0;          // in floats, a multiple of Net::kAlignment
  int64_t size = 0;            // product of shape
  int64_t fan_in = 0;          // of its layer: in * kernel * kernel, or in
  int64_t fan_out = 0;         // out * kernel * kernel, or out
  bool is_bias = false;
};

// A layer with its inferred shapes. After Flatten a shape is [features, 1, 1].
struct Layer {
  LayerSpec spec;
  ImageShape in;
  ImageShape out;
  int weight = -1;  // index into Net::parameters(), or -1
  int bias = -1;
};

// Immutable.
class Net {
 public:
  static constexpr int64_t kAlignment = 64;  // floats; 256 bytes
  static constexpr int kMaxClasses = 256;
  // Bounds that keep every size and byte count far from overflow.
  static constexpr int kMaxLayers = 256;
  static constexpr int kMaxOutputs = 1 << 16;                  // of one layer: channels or features
  static constexpr int64_t kMaxFeatures = int64_t{1} << 24;    // one sample's values between two layers
  static constexpr int64_t kMaxParameters = int64_t{1} << 28;  // of the whole network

  // INVALID_ARGUMENT names the layer (position from 1, kind and name), the value and the bound: a kernel larger than
  // its padded input, padding not below the kernel, an input that is not flat before Linear or flat before a layer
  // that needs an image, a last layer that does not give `classes` features, a name that is missing, not of [a-z0-9_],
  // or used twice, a field set that the kind does not use, no layer with parameters, sizes out of bounds.
  static absl::StatusOr<Net> Create(NetSpec spec);

  const NetSpec& spec() const { return spec_; }
  std::span<const Layer> layers() const { return layers_; }
  std::span<const Parameter> parameters() const { return parameters_; }
  int64_t parameter_count() const { return parameter_count_; }  // trainable values, without padding
  int64_t flat_size() const { return flat_size_; }              // floats in a flat buffer; the gaps hold zeros

 private:
  Net() = default;

  NetSpec spec_;
  std::vector<Layer> layers_;
  std::vector<Parameter> parameters_;
  int64_t parameter_count_ = 0;
  int64_t flat_size_ = 0;
};

// A named network for this input and class count: "lenet", "lenet5-classic" or "lenet-caffe". NOT_FOUND lists the
// names; an input too small for it is Net::Create's error. Inputs of another size than 28x28 change the first Linear's
// width.
absl::StatusOr<NetSpec> PresetNet(absl::string_view preset, const ImageShape& input, int classes);
std::vector<std::string> PresetNames();

}  // namespace lenet

#endif  // LENET_TRAINER_NN_NET_H_
