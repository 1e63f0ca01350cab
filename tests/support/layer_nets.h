// Small networks that together hold every kind of layer in every role: with and without padding and stride, odd sizes,
// windows that overlap, meet and leave gaps, layers before and behind one another.
#ifndef LENET_TESTS_SUPPORT_LAYER_NETS_H_
#define LENET_TESTS_SUPPORT_LAYER_NETS_H_

#include <ostream>
#include <vector>

#include "trainer/nn/net.h"

namespace lenet {

// For GoogleTest, which puts a test's parameter into its name.
inline void PrintTo(const NetSpec& spec, std::ostream* out) { *out << spec.name; }

// Each spec's name is of [A-Za-z0-9], for use in a test's name.
std::vector<NetSpec> LayerNets();

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_LAYER_NETS_H_
