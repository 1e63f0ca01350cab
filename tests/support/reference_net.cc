#include "tests/support/reference_net.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace lenet {
namespace {

// One image's values between two layers, [channels][height][width].
class Volume {
 public:
  explicit Volume(const ImageShape& shape) : shape_(shape), values_(static_cast<size_t>(shape.size())) {}

  double& at(int c, int y, int x) { return values_[Index(c, y, x)]; }
  // Zero outside the image.
  double padded(int c, int y, int x) const {
    const bool inside = y >= 0 && y < shape_.height && x >= 0 && x < shape_.width;
    return inside ? values_[Index(c, y, x)] : 0.0;
  }
  std::vector<double>& values() { return values_; }
  const std::vector<double>& values() const { return values_; }

 private:
  size_t Index(int c, int y, int x) const { return (static_cast<size_t>(c) * shape_.height + y) * shape_.width + x; }

  ImageShape shape_;
  std::vector<double> values_;
};

void Convolve(const Layer& layer, const double* weight, const double* bias, const Volume& in, Volume* out) {
  const int k = layer.spec.kernel;
  for (int o = 0; o < layer.out.channels; ++o) {
    for (int y = 0; y < layer.out.height; ++y) {
      for (int x = 0; x < layer.out.width; ++x) {
        double sum = bias[o];
        for (int c = 0; c < layer.in.channels; ++c) {
          for (int i = 0; i < k; ++i) {
            for (int j = 0; j < k; ++j) {
              sum += weight[((o * layer.in.channels + c) * k + i) * k + j] *
                     in.padded(c, y * layer.spec.stride + i - layer.spec.padding,
                               x * layer.spec.stride + j - layer.spec.padding);
            }
          }
        }
        out->at(o, y, x) = sum;
      }
    }
  }
}

void Pool(const Layer& layer, const Volume& in, Volume* out) {
  const int k = layer.spec.kernel;
  for (int c = 0; c < layer.out.channels; ++c) {
    for (int y = 0; y < layer.out.height; ++y) {
      for (int x = 0; x < layer.out.width; ++x) {
        double largest = -std::numeric_limits<double>::infinity();
        double sum = 0;
        for (int i = 0; i < k; ++i) {
          for (int j = 0; j < k; ++j) {
            const double value = in.padded(c, y * layer.spec.stride + i, x * layer.spec.stride + j);
            largest = std::max(largest, value);
            sum += value;
          }
        }
        out->at(c, y, x) = layer.spec.kind == LayerKind::kMaxPool2D ? largest : sum / (k * k);
      }
    }
  }
}

void Multiply(const Layer& layer, const double* weight, const double* bias, const Volume& in, Volume* out) {
  for (int o = 0; o < layer.out.channels; ++o) {
    double sum = bias[o];
    for (int i = 0; i < layer.in.channels; ++i) sum += weight[o * layer.in.channels + i] * in.values()[i];
    out->at(o, 0, 0) = sum;
  }
}

Volume RunLayer(const Net& net, const Layer& layer, const double* parameters, const Volume& in) {
  Volume out(layer.out);
  const auto values_of = [&](int parameter) { return parameters + net.parameters()[parameter].offset; };
  switch (layer.spec.kind) {
    case LayerKind::kConv2D:
      Convolve(layer, values_of(layer.weight), values_of(layer.bias), in, &out);
      break;
    case LayerKind::kLinear:
      Multiply(layer, values_of(layer.weight), values_of(layer.bias), in, &out);
      break;
    case LayerKind::kMaxPool2D:
    case LayerKind::kAvgPool2D:
      Pool(layer, in, &out);
      break;
    case LayerKind::kRelu:
      std::ranges::transform(in.values(), out.values().begin(), [](double v) { return std::max(v, 0.0); });
      break;
    case LayerKind::kTanh:
      std::ranges::transform(in.values(), out.values().begin(), [](double v) { return std::tanh(v); });
      break;
    case LayerKind::kFlatten:
      out.values() = in.values();
      break;
  }
  return out;
}

double CrossEntropy(const std::vector<double>& logits, int label) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return std::log(sum) + largest - logits[label];
}

}  // namespace

ReferenceOutput RunReferenceNet(const Net& net, std::span<const double> parameters, const Split& split,
                                std::span<const uint32_t> indices) {
  ReferenceOutput output;
  for (const uint32_t index : indices) {
    Volume volume(split.shape);
    for (size_t i = 0; i < volume.values().size(); ++i) {
      volume.values()[i] = split.images[index * volume.values().size() + i] / 255.0;
    }
    for (const Layer& layer : net.layers()) volume = RunLayer(net, layer, parameters.data(), volume);
    output.logits.insert(output.logits.end(), volume.values().begin(), volume.values().end());
    output.losses.push_back(CrossEntropy(volume.values(), split.labels[index]));
    output.mean_loss += output.losses.back() / static_cast<double>(indices.size());
  }
  return output;
}

std::vector<double> ReferenceGradient(const Net& net, std::span<const double> parameters, const Split& split,
                                      std::span<const uint32_t> indices, std::span<const int64_t> places) {
  constexpr double kStep = 2e-6;
  std::vector<double> shifted(parameters.begin(), parameters.end());
  const auto loss_at = [&](int64_t place, double shift) {
    shifted[place] = parameters[place] + shift;
    const double loss = RunReferenceNet(net, shifted, split, indices).mean_loss;
    shifted[place] = parameters[place];
    return loss;
  };
  std::vector<double> gradient;
  for (const int64_t place : places) {
    const double wide = (loss_at(place, kStep) - loss_at(place, -kStep)) / (2 * kStep);
    const double narrow = (loss_at(place, kStep / 2) - loss_at(place, -kStep / 2)) / kStep;
    // Smooth, the two differ by the step squared times a third derivative; over a kink by a share of its height.
    const bool smooth = std::abs(wide - narrow) <= 1e-7 * (1 + std::abs(narrow));
    gradient.push_back(smooth ? narrow : std::numeric_limits<double>::quiet_NaN());
  }
  return gradient;
}

}  // namespace lenet
