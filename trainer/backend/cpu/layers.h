// The layers of a network on the CPU.
#ifndef LENET_TRAINER_BACKEND_CPU_LAYERS_H_
#define LENET_TRAINER_BACKEND_CPU_LAYERS_H_

#include <cstdint>
#include <memory>

#include "trainer/backend/cpu/kernels.h"
#include "trainer/backend/cpu/layout.h"
#include "trainer/nn/net.h"

namespace lenet::cpu {

// A layer that is bound to its tensors. Parameters and gradient are Net's flat buffers. Nothing is allocated after the
// construction.
class CpuLayer {
 public:
  virtual ~CpuLayer() = default;

  // Over the first `blocks` blocks of images.
  virtual void Forward(int blocks, const float* parameters) = 0;
  // From the gradient of the output: that of the input, if it has one, and those of the layer's parameters, added to
  // what is there if `accumulate`. Images of a block that are not of the batch have a zero gradient.
  virtual void Backward(int blocks, const float* parameters, bool accumulate, float* gradient) = 0;
};

// What of a ReLU, in place, a layer beside it does. Said to both: the ReLU then leaves that half out.
struct FusedRelu {
  bool forward = false;   // the Conv2D or Linear before it gives the ReLU's output
  bool backward = false;  // the MaxPool2D after it gives the gradient of the ReLU's input
};

// Floats of memory that a Linear layer needs for itself.
int64_t LinearScratch(const Layer& layer, int max_blocks);

// `in` and `out` outlive the layer and are the same for ReLU and Tanh in place. `scratch` is for Linear.
std::unique_ptr<CpuLayer> NewLayer(const Kernels& kernels, const Net& net, const Layer& layer, const Tensor& in,
                                   const Tensor& out, FusedRelu relu, int max_blocks, float* scratch);

}  // namespace lenet::cpu

#endif  // LENET_TRAINER_BACKEND_CPU_LAYERS_H_
