// Numbers of one optimiser step, in a header of their own so that device code can include it.
#ifndef LENET_TRAINER_OPTIM_UPDATE_SCALARS_H_
#define LENET_TRAINER_OPTIM_UPDATE_SCALARS_H_

namespace lenet {

// What a step's update needs beside the buffers: float32 of values computed in double, as PyTorch does. (1 - beta
// must not be computed in float: 1 - 0.999f is off by 5e-5.)
struct UpdateScalars {
  float learning_rate = 0;
  float momentum = 0;      // SGD
  float weight_decay = 0;  // SGD, Adam
  float beta1 = 0;         // Adam, AdamW, and the next three
  float beta2 = 0;
  float one_minus_beta1 = 1;
  float one_minus_beta2 = 1;
  float epsilon = 0;
  float step_size = 0;         // Adam, AdamW: lr / (1 - beta1^t)
  float sqrt_correction2 = 1;  // Adam, AdamW: sqrt(1 - beta2^t)
  float decay = 1;             // AdamW: 1 - lr * weight_decay
};

}  // namespace lenet

#endif  // LENET_TRAINER_OPTIM_UPDATE_SCALARS_H_
