// Initial parameters.
#ifndef LENET_TRAINER_NN_INIT_H_
#define LENET_TRAINER_NN_INIT_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "trainer/nn/net.h"

namespace lenet {

enum class InitKind {
  kKaimingUniform,  // PyTorch's default for Conv2d and Linear: weight and bias uniform(-b, b), b = 1 / sqrt(fan_in)
  kXavierUniform,   // weight uniform(-b, b), b = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010); bias 0
  kUniform,         // weight and bias uniform(low, high)
};

struct InitSpec {
  InitKind kind = InitKind::kKaimingUniform;
  float low = 0;  // kUniform
  float high = 0;
};

// INVALID_ARGUMENT unless, for kUniform, low < high and both are finite.
absl::Status ValidateInit(const InitSpec& init);

// Fills flat[0 .. net.flat_size()); gaps become 0. Each parameter draws a stream of its own from `seed`, so no two
// layers start alike and a parameter's values do not depend on the layers before it.
void Initialize(const Net& net, const InitSpec& init, uint64_t seed, std::span<float> flat);

}  // namespace lenet

#endif  // LENET_TRAINER_NN_INIT_H_
