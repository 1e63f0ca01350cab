// A network in plain loops and double precision, to compare a backend with.
#ifndef LENET_TESTS_SUPPORT_REFERENCE_NET_H_
#define LENET_TESTS_SUPPORT_REFERENCE_NET_H_

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/nn/net.h"

namespace lenet {

struct ReferenceOutput {
  std::vector<double> logits;  // [images, classes]
  std::vector<double> losses;  // [images], softmax cross-entropy
  double mean_loss = 0;
};

// `parameters` as Net's flat buffer.
ReferenceOutput RunReferenceNet(const Net& net, std::span<const double> parameters, const Split& split,
                                std::span<const uint32_t> indices);

// The derivative of the mean loss by each of these places in the flat buffer, by central differences. A place where the
// loss has a kink within the step (ReLU, max-pooling) gives NaN.
std::vector<double> ReferenceGradient(const Net& net, std::span<const double> parameters, const Split& split,
                                      std::span<const uint32_t> indices, std::span<const int64_t> places);

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_REFERENCE_NET_H_
