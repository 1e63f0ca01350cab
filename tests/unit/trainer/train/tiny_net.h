// The net whose checkpoints are the fuzzer's seeds, and the kinds of optimizer that tell them apart.
#ifndef LENET_TESTS_UNIT_TRAINER_TRAIN_TINY_NET_H_
#define LENET_TESTS_UNIT_TRAINER_TRAIN_TINY_NET_H_

#include <array>

#include "trainer/nn/net.h"
#include "trainer/optim/optimizer.h"

namespace lenet {

inline Net TinyNet() {
  return *Net::Create(
      {.name = "tiny",
       .input = {.channels = 1, .height = 2, .width = 2},
       .classes = 2,
       .layers = {{.kind = LayerKind::kFlatten}, {.kind = LayerKind::kLinear, .name = "fc", .outputs = 2}}});
}

inline std::array<OptimizerSpec, 3> TinyOptimizers() {
  return {OptimizerSpec{}, OptimizerSpec{.momentum = 0.9}, OptimizerSpec{.kind = OptimizerKind::kAdam}};
}

}  // namespace lenet

#endif  // LENET_TESTS_UNIT_TRAINER_TRAIN_TINY_NET_H_
